"""What a router can be told."""

from dataclasses import dataclass
from pathlib import Path

from halfmoon.config import DEADLINES, ROUTER_QUEUE, SPLIT_THRESHOLD


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """What the policy weighs with, all in tokens.

    `split_threshold`: a decode worker that lacks no more than this many tokens of the prompt computes them itself, and
    moving a prompt's KV counts as much as computing this many tokens. `running_cost`: a request that a decode worker
    already has counts as this many tokens. `overload`: with more than this queued at every prefill worker, decode
    workers that have less to do compute prompts too.
    """

    split_threshold: int = SPLIT_THRESHOLD
    running_cost: int = 16
    overload: int = 16_384


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """A router: where it listens, which model it serves, and its bounds.

    `port` 0 takes a free one; `metrics_port` None serves no metrics over HTTP, 0 on a free port. `served_model_name`
    None means the name of the model's folder or file. `max_model_len` None means the model's own context, in tokens.
    `queue` bounds the requests held at once.
    """

    model_path: Path
    host: str = "127.0.0.1"
    port: int = 0
    metrics_port: int | None = None
    served_model_name: str | None = None
    max_model_len: int | None = None
    queue: int = ROUTER_QUEUE
    request_deadline: float = DEADLINES.request
    dead_after: float = DEADLINES.dead_after
    heartbeat: float = DEADLINES.heartbeat
    policy: PolicySettings = PolicySettings()

    @property
    def model_name(self) -> str:
        """The name that clients use."""
        return self.served_model_name or self.model_path.name
