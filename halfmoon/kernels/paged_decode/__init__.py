"""Attention of one new token a sequence over its cached pages."""

from halfmoon.kernels.paged_decode.xla import paged_decode

__all__ = ["paged_decode"]
