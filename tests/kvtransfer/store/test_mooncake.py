"""Pages in a Mooncake Store, with a real master: found by other workers, and lost with the master without harm."""

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from halfmoon.errors import ConfigError
from kvtransfer import PlaneSpec, block_checksum
from kvtransfer.store.base import TierPage, TierPlace
from kvtransfer.store.mooncake import MooncakeTier
from tests.kvtransfer.groups import free_port
from tests.kvtransfer.planes import GEOMETRY, at_rest, plane_spec, planes
from tests.kvtransfer.store.pages import content, hashes, page_hash, put


class Master:
    """A `mooncake_master` process that can be killed, stopped, and started again at its address."""

    def __init__(self) -> None:
        self._port = free_port()
        self._metrics_port = free_port()
        self.address = f"127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        package = find_spec("mooncake")
        assert package is not None
        assert package.origin is not None
        self.process = subprocess.Popen(
            [
                str(Path(package.origin).parent / "mooncake_master"),
                f"--rpc_port={self._port}",
                f"--metrics_port={self._metrics_port}",
                "--metrics_host=127.0.0.1",
                "--logtostderr",
                "--minloglevel=2",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 10.0
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("the master does not listen")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)


@pytest.fixture
def master() -> Iterator[Master]:
    made = Master()
    yield made
    made.process.send_signal(signal.SIGCONT)
    made.kill()


def spec(master: Master, incarnation: int, *, fingerprint: str = "model") -> PlaneSpec:
    return plane_spec(
        f"worker-{incarnation}",
        incarnation,
        fingerprint=fingerprint,
        store_blocks=8,
        cluster_master=master.address,
        cluster_bytes=16 << 20,
    )


@pytest.fixture
def tiers(master: Master) -> Iterator[list[MooncakeTier]]:
    """Two workers of one model, and one of another."""
    with ExitStack() as stack:
        made = [MooncakeTier(spec(master, 1)), MooncakeTier(spec(master, 2))]
        made.append(MooncakeTier(spec(master, 3, fingerprint="another")))
        for tier in made:
            stack.callback(tier.close)
        yield made


def soon(seconds: float = 10.0) -> float:
    return time.monotonic() + seconds


def write(tier: MooncakeTier, *numbers: int, seconds: float = 10.0) -> list[bool]:
    pages = [(page_hash(number), content(page_hash(number))) for number in numbers]
    return tier.write([TierPage(each, block_checksum(data), data) for each, data in pages], deadline=soon(seconds))


def read(tier: MooncakeTier, *numbers: int, seconds: float = 10.0) -> list[int]:
    """The numbers of the pages that are there. Fails the test for a wrong byte."""
    places = [TierPlace(page_hash(number), np.zeros(GEOMETRY.block_bytes, np.uint8)) for number in numbers]
    found = []
    for number, place, checksum in zip(numbers, places, tier.read(places, deadline=soon(seconds)), strict=True):
        if checksum is not None:
            assert np.array_equal(place.data, content(place.content_hash))
            assert checksum == block_checksum(place.data)
            found.append(number)
    return found


def test_one_worker_finds_what_another_has_stored_and_only_of_its_model(tiers: list[MooncakeTier]) -> None:
    writer, reader, stranger = tiers
    many = tuple(range(20))
    assert write(writer, *many) == [True] * 20
    assert reader.contains(hashes(1, 99), deadline=soon()) == [True, False]
    assert read(reader, *many, 99) == list(many)
    assert read(stranger, 1) == []
    assert (writer.usage().stored, writer.usage().dropped) == (20, 0)


def test_a_page_that_is_not_what_it_must_be_is_a_miss_and_can_be_stored_anew(tiers: list[MooncakeTier]) -> None:
    writer, reader, _ = tiers
    data = content(page_hash(1))
    writer.write([TierPage(page_hash(1), block_checksum(data) ^ 1, data)], deadline=soon())
    assert read(reader, 1) == []
    assert reader.usage().damaged == 1
    assert write(writer, 1) == [True]
    assert read(reader, 1) == [1]


def test_a_master_that_is_gone_looks_like_a_miss_and_its_successor_has_lost_what_was_there(
    master: Master, tiers: list[MooncakeTier]
) -> None:
    writer, reader, _ = tiers
    assert write(writer, 1) == [True]
    assert read(reader, 1) == [1]
    master.kill()
    assert reader.contains(hashes(1), deadline=soon()) == [False]
    assert read(reader, 1) == []
    assert write(writer, 2) == [False]
    assert writer.usage().dropped == 1
    master.start()
    deadline = time.monotonic() + 30.0
    while write(writer, 3) != [True]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert read(reader, 1, 3) == [3]


def test_a_master_that_does_not_answer_costs_the_deadline_once_and_nothing_after_it(
    master: Master, tiers: list[MooncakeTier]
) -> None:
    writer, _, _ = tiers
    assert write(writer, 1) == [True]
    master.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    assert read(writer, 1, seconds=0.5) == []
    assert 0.5 <= time.monotonic() - began < 2.0
    began = time.monotonic()
    assert writer.contains(hashes(1), deadline=soon()) == [False]
    assert write(writer, 2) == [False]
    assert time.monotonic() - began < 0.5
    master.process.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + 40.0
    while read(writer, 1) != [1]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_without_a_master_there_is_nothing_and_nobody_waits_for_more_than_the_deadline() -> None:
    tier = MooncakeTier(plane_spec("worker", 1, store_blocks=8, cluster_master=f"127.0.0.1:{free_port()}"))
    began = time.monotonic()
    assert read(tier, 1, seconds=0.3) == []
    assert write(tier, 1) == [False]
    assert time.monotonic() - began < 2.0
    tier.close()


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="host:port, not 'somewhere'"):
        MooncakeTier(plane_spec("worker", 1, store_blocks=8, cluster_master="somewhere"))


async def test_the_prefix_store_of_another_worker_brings_pages_back_from_the_pool(master: Master) -> None:
    async with planes(spec(master, 1), spec(master, 2)) as (first, second):
        assert await put(first, *range(8)) == 8
        lease = await second.store.acquire(hashes(*range(8)), 0.0)
        deadline = time.monotonic() + 20.0
        while len(lease.offsets) < 8:
            assert time.monotonic() < deadline
            await second.store.release(lease)
            lease = await second.store.acquire(hashes(*range(8)), 2.0)
        for number, offset in enumerate(lease.offsets):
            assert np.array_equal(second.block(offset), content(page_hash(number)))
        assert await second.store.release(lease)
        await at_rest(first, second)
