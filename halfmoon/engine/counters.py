"""What an engine counts."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """What the engine has done since it started."""

    prompt_tokens_computed: int = 0
    prompt_tokens_cached: int = 0
    prompt_tokens_restored: int = 0
    tokens_generated: int = 0
    prefill_steps: int = 0
    decode_steps: int = 0
    blocks_received: int = 0
    preemptions: int = 0
    pages_kept: int = 0
