"""Constants and small configuration objects that several packages must agree on."""

from dataclasses import dataclass

import numpy as np

PAGE_SIZE = 64
"""Tokens of a page unless a flag says otherwise; equal across tiers."""


SPLIT_THRESHOLD = 32
"""Uncached tokens up to which a decode worker computes a prompt itself unless a flag says otherwise."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Bounds of every wait, in seconds."""

    heartbeat: float = 1.0
    dead_after: float = 4.0
    lease: float = 30.0
    connect: float = 1.0
    control: float = 2.0
    request: float = 600.0
    drain: float = 30.0


DEADLINES = Deadlines()

MAX_CHOICES = 128
"""Choices of one request."""

MAX_LOGPROBS = 20
"""Alternatives at one position, computed wherever log-probabilities are asked for."""

MAX_LOGIT_BIASES = 1024
"""Tokens that one request may bias."""

MAX_STOP_TOKEN_IDS = 256
"""Stop tokens that one request may name beside the model's end tokens."""

RETRY_AFTER = 1.0
"""Seconds, one heartbeat, after which what was full, draining or gone may serve again: the hint with a refusal."""

ROUTER_QUEUE = 1024
"""Requests that a router holds at once."""

MAX_MESSAGE_BYTES = 64 << 20
"""Largest gRPC message: prompt log-probabilities of a long prompt are the largest thing that travels."""


@dataclass(frozen=True, slots=True)
class PageGeometry:
    """Shape of one page of KV of all layers: [layers, kv_heads, page_size, 2 * head_dim], row major."""

    layers: int
    kv_heads: int
    page_size: int
    head_dim: int
    dtype: str

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """[layers, kv_heads, page_size, 2 * head_dim]: K and V side by side in the last axis."""
        return (self.layers, self.kv_heads, self.page_size, 2 * self.head_dim)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return 2 if self.dtype == "bfloat16" else np.dtype(self.dtype).itemsize

    @property
    def block_bytes(self) -> int:
        """Bytes of one block on the wire."""
        size = self.itemsize
        for axis in self.shape:
            size *= axis
        return size

    def pages_for(self, tokens: int) -> int:
        """Pages that hold `tokens` positions."""
        return -(-tokens // self.page_size)
