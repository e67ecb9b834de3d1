"""Writing new keys and values into their pages, in place."""

from halfmoon.kernels.kv_write.xla import write_runs, write_tokens

__all__ = ["write_runs", "write_tokens"]
