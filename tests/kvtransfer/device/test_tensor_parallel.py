"""Caches that share out their KV heads differently take each other's pages through the layout of the wire."""

import json
import os
import subprocess
import sys

import pytest

from tests.kvtransfer.device.sharded_caches import GEOMETRY, PAIRS

Reports = dict[tuple[int, int], dict[str, object]]


@pytest.fixture(scope="module")
def reports() -> Reports:
    """What `sharded_caches` says with eight simulated devices."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.kvtransfer.device.sharded_caches"],
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
        stdout=subprocess.PIPE,
        check=True,
        timeout=110,
    )
    return dict(zip(PAIRS, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize(("owner", "reader"), PAIRS)
def test_pages_written_into_a_cache_of_other_shards_are_equal(reports: Reports, owner: int, reader: int) -> None:
    report = reports[owner, reader]
    assert report["equal"]
    assert report["others_empty"]
    each = [[GEOMETRY.kv_heads // shards] * shards for shards in (owner, reader)]
    assert report["heads"] == each


@pytest.mark.parametrize(("owner", "reader"), PAIRS)
def test_no_device_needs_another_to_move_its_heads(reports: Reports, owner: int, reader: int) -> None:
    assert not reports[owner, reader]["exchanged"]
