"""Flags of the prefix store: where pages of earlier prompts are kept when the device needs their room."""

import argparse
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from cli import flag_types
from halfmoon.config import PageGeometry
from halfmoon.errors import ConfigError
from halfmoon.weights.cache_folder import cache_folder


@dataclass(frozen=True, slots=True)
class StoreFlags:
    """`memory`, in bytes, is a part of the host pool, None for all that nobody else needs; `disk` is in bytes.

    `folder` is for all workers of a machine, None for one in the user's cache folder. `cluster` is the address of a
    Mooncake master, None for none, to whose pool each worker lends `lent` bytes.
    """

    memory: int | None = None
    disk: int = 0
    folder: Path | None = None
    cluster: str | None = None
    lent: int = 0

    @classmethod
    def parse(cls, args: Namespace) -> "StoreFlags":
        """From the flags of `add_store`. Raises ConfigError for flags that contradict each other."""
        for flag, below in (("--kv-store-disk", args.kv_store_disk), ("--kv-store-cluster", args.kv_store_cluster)):
            if below and args.kv_store_memory == 0:
                raise ConfigError(f"{flag} without --kv-store-memory: pages go there from host memory")
        lent = args.kv_store_cluster_memory
        return cls(args.kv_store_memory, args.kv_store_disk, args.kv_store_path, args.kv_store_cluster, lent)

    def argv(self) -> list[str]:
        """The flags that `parse` reads as this."""
        flags = ["--kv-store-disk", str(self.disk)] if self.disk else []
        flags += ["--kv-store-memory", str(self.memory)] if self.memory is not None else []
        flags += ["--kv-store-cluster", self.cluster] if self.cluster else []
        flags += ["--kv-store-cluster-memory", str(self.lent)] if self.lent else []
        return [*flags, "--kv-store-path", str(self.folder.absolute())] if self.folder is not None else flags

    def blocks(self, geometry: PageGeometry, host_blocks: int, *, reserve: int = 0) -> int:
        """Host blocks for the store, of so many in all, of which it gets all but `reserve` at most.

        Raises ConfigError when it is to have more than there are.
        """
        blocks = host_blocks if self.memory is None else self.memory // geometry.block_bytes
        if blocks > host_blocks:
            raise ConfigError(
                f"--kv-store-memory holds {blocks} pages, and the host pool, of which it is a part, {host_blocks}: "
                "give more --host-kv-memory"
            )
        return min(blocks, host_blocks - reserve)

    def worker_folder(self, worker_id: str | None) -> Path | None:
        """One worker's own folder; None without a disk. Raises ConfigError for a worker that will not find it again."""
        if not self.disk:
            return None
        if worker_id is None:
            raise ConfigError("--kv-store-disk needs --worker-id: by its name a worker finds its pages again")
        return (self.folder or cache_folder() / "kv-store") / quote(worker_id, safe="")


def add_store(group: argparse._ArgumentGroup) -> None:
    """What `StoreFlags.parse` reads."""
    group.add_argument(
        "--kv-store-memory",
        metavar="SIZE",
        type=flag_types.size_or_none_of_it,
        help="how much of the host pool may keep pages that the KV cache has no room for; 0 for none "
        "(default: all that nobody else needs)",
    )
    group.add_argument(
        "--kv-store-disk",
        metavar="SIZE",
        type=flag_types.size_or_none_of_it,
        default=0,
        help="how much each worker may keep on disk beyond that, for later and for after a restart (default: 0)",
    )
    group.add_argument(
        "--kv-store-path", metavar="FOLDER", type=Path, help="where on disk (default: in the user's cache folder)"
    )
    group.add_argument(
        "--kv-store-cluster",
        metavar="HOST:PORT",
        type=flag_types.address,
        help="a mooncake_master, whose pool keeps pages for all workers that name it (extra: mooncake)",
    )
    group.add_argument(
        "--kv-store-cluster-memory",
        metavar="SIZE",
        type=flag_types.size_or_none_of_it,
        default=0,
        help="memory that each worker lends to that pool, beside all other (default: 0)",
    )
