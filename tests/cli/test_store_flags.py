"""The flags of the prefix store."""

import argparse
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from cli.flags import EngineFlags
from cli.fleet import plan_fleet
from cli.main import build_parser
from cli.store_flags import StoreFlags, add_store
from halfmoon.config import PageGeometry
from halfmoon.errors import ConfigError
from tests.cli.test_fleet import OPTIONS

GEOMETRY = PageGeometry(layers=16, kv_heads=8, page_size=64, head_dim=64, dtype="float32")
"""4 MiB a page."""


def parsed(*argv: str) -> StoreFlags:
    parser = argparse.ArgumentParser()
    add_store(parser.add_argument_group())
    return StoreFlags.parse(parser.parse_args(argv))


def test_by_default_the_store_has_the_host_pool_and_no_disk() -> None:
    assert parsed() == StoreFlags()
    assert parsed().blocks(GEOMETRY, 100) == 100
    assert parsed().blocks(GEOMETRY, 100, reserve=8) == 92
    assert parsed().worker_folder(None) is None


@pytest.mark.parametrize(("size", "blocks"), [("0", 0), ("40MiB", 10), ("400MiB", 92)])
def test_its_memory_is_a_part_of_the_host_pool(size: str, blocks: int) -> None:
    assert parsed("--kv-store-memory", size).blocks(GEOMETRY, 100, reserve=8) == blocks


def test_more_memory_than_the_host_pool_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="give more --host-kv-memory"):
        parsed("--kv-store-memory", "1GiB").blocks(GEOMETRY, 100)


def test_a_disk_needs_host_memory_and_a_name_by_which_the_worker_finds_its_pages() -> None:
    with pytest.raises(ConfigError, match="--kv-store-memory"):
        parsed("--kv-store-disk", "1GiB", "--kv-store-memory", "0")
    with pytest.raises(ConfigError, match="--kv-store-cluster"):
        parsed("--kv-store-cluster", "here:50051", "--kv-store-memory", "0")
    with pytest.raises(ConfigError, match="needs --worker-id"):
        parsed("--kv-store-disk", "1GiB").worker_folder(None)


def test_every_worker_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALFMOON_CACHE", "/cache")
    flags = parsed("--kv-store-disk", "1GiB")
    assert flags.worker_folder("prefill-0") == Path("/cache/kv-store/prefill-0")
    assert replace(flags, folder=Path("/there")).worker_folder("a/../b") == Path("/there/a%2F..%2Fb")


@pytest.mark.parametrize(
    "flags", [StoreFlags(), StoreFlags(0), StoreFlags(1 << 30, 1 << 33, Path("/there"), "m:1", 1 << 20)]
)
def test_serve_passes_them_on_to_its_workers(flags: StoreFlags) -> None:
    programs = plan_fleet(replace(OPTIONS, engine=replace(OPTIONS.engine, store=flags)))
    for program in programs[1:-1]:
        told: Namespace = build_parser().parse_args(program.command[3:])
        assert EngineFlags.parse(told).store == flags
