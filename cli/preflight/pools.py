"""How many pages a worker's memory makes, and whether they are enough."""

from dataclasses import dataclass

from cli.preflight.memory import DEFAULT_KV_BYTES, MIB
from halfmoon.config import PageGeometry
from halfmoon.errors import ConfigError


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """Context in tokens; device pages and host blocks."""

    max_model_len: int
    pages: int
    host_blocks: int

    @classmethod
    def of(
        cls, geometry: PageGeometry, max_model_len: int, *, kv_memory: int | None, host_kv_memory: int | None
    ) -> "PoolSizes":
        """From memory in bytes, None for the default. Raises ConfigError when a full context would not fit a pool."""
        kv_memory = kv_memory or DEFAULT_KV_BYTES
        sizes = cls(
            max_model_len=max_model_len,
            pages=kv_memory // geometry.block_bytes,
            host_blocks=(host_kv_memory or kv_memory) // geometry.block_bytes,
        )
        _check("--kv-memory", sizes.pages, geometry, max_model_len)
        _check("--host-kv-memory", sizes.host_blocks, geometry, max_model_len)
        return sizes


def _check(flag: str, pages: int, geometry: PageGeometry, context: int) -> None:
    if pages < geometry.pages_for(context):
        held, needed = pages * geometry.page_size, geometry.pages_for(context) * geometry.block_bytes
        shorter = f", or --max-model-len {held} or less" if held else ""
        raise ConfigError(
            f"{flag} holds {held} tokens, fewer than the context of {context}: "
            f"give {flag} {-(-needed // MIB)}MiB or more{shorter}"
        )
