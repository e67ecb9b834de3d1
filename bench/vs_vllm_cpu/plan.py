"""What is asked of each server."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Phase:
    """`requests` of `input_len` tokens in and `output_len` out, at one concurrency."""

    name: str
    input_len: int
    output_len: int
    requests: int
    concurrency: int


SINGLE = Phase("concurrency 1", 128, 64, 10, 1)
PREFILL = Phase("prefill alone", 128, 1, 16, 8)

FULL = (
    SINGLE,
    Phase("concurrency 8", 128, 64, 32, 8),
    Phase("concurrency 32", 128, 64, 96, 32),
    Phase("long prompts", 2000, 64, 8, 4),
    PREFILL,
)
"""The comparison."""

QUICK = (
    Phase("concurrency 1", 128, 64, 3, 1),
    Phase("concurrency 8", 128, 64, 8, 8),
    Phase("concurrency 32", 128, 64, 32, 32),
    PREFILL,
)
"""Enough to see that everything works."""
