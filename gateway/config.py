"""What a gateway is told at start."""

import math
from dataclasses import dataclass

from halfmoon.config import DEADLINES
from halfmoon.errors import ConfigError


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Addresses and bounds of one gateway; durations in seconds. Raises ConfigError on values that cannot work.

    `routers` are `host:port` addresses that are used in turn. `port` 0 takes a free one. `api_key` None leaves the API
    open. `max_running` bounds the API requests under way, `prompts_at_once` the prompts of one list that the router
    holds at the same time. `write_seconds` is how long a client may leave its stream unread. `vllm_names`
    shows metrics under vLLM's names too.
    """

    routers: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    drain_seconds: float = DEADLINES.drain
    request_seconds: float = DEADLINES.request
    control_seconds: float = DEADLINES.control
    body_seconds: float = 30.0
    write_seconds: float = 30.0
    max_body_bytes: int = 32 << 20
    max_running: int = 2048
    prompts_at_once: int = 64
    vllm_names: bool = False

    def __post_init__(self) -> None:
        """Checks what a flag may get wrong."""
        if not self.routers or not all(self.routers):
            raise ConfigError("a gateway needs the address of at least one router", param="router")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port {self.port} is not between 0 and 65535", param="port")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.strip()):
            raise ConfigError("the API key must be ASCII and not empty", param="api_key")
        for name in ("drain_seconds", "request_seconds", "control_seconds", "body_seconds", "write_seconds"):
            seconds = float(getattr(self, name))
            if not (math.isfinite(seconds) and seconds >= 0):
                raise ConfigError(f"{name} must be a number of seconds, not {seconds}", param=name)
        for name in ("max_body_bytes", "max_running", "prompts_at_once"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1", param=name)
