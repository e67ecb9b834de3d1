"""The split server with pages that go from device to device: the same answers, and host pools that carry nothing."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e import reference
from tests.e2e.fleet import Fleet, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

CASES = reference.cases()
DEVICE_GAUGES = (
    "halfmoon_kv_device_bytes",
    "halfmoon_kv_device_handles",
    "halfmoon_kv_device_grants",
    "halfmoon_kv_device_readers",
    "halfmoon_kv_device_fetches",
    "halfmoon_kv_device_fetches_abandoned",
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, default_model: Path) -> Iterator[Fleet]:
    """With the default model."""
    del default_model  # it is fetched
    folder = tmp_path_factory.mktemp("devices")
    with serving(folder, "--split-threshold", "0", "--transports", "jax,shm,tcp") as fleet:
        yield fleet


async def test_answers_are_the_references_and_pages_came_from_the_device(fleet: Fleet) -> None:
    async with httpx.AsyncClient(base_url=fleet.url) as client:
        for case in CASES.values():
            reference.assert_equal(case, await reference.complete(client, **reference.request(case)))
    assert fleet.total("decode", "halfmoon_kv_device_bytes_read_total") > 0
    assert fleet.total("decode", "halfmoon_kv_bytes_read_total") == 0
    assert "pages did not come from device to device" not in fleet.log()
    fleet.assert_at_rest()
    for role in ("prefill", "decode"):
        assert [fleet.total(role, gauge) for gauge in DEVICE_GAUGES] == [0.0] * len(DEVICE_GAUGES)
