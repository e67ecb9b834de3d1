"""Causal attention of runs of new tokens over their sequences' cached pages."""

from halfmoon.kernels.chunked_prefill.xla import chunked_prefill

__all__ = ["chunked_prefill"]
