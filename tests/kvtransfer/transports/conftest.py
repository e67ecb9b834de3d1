"""Every test of this folder that asks for `kind` or `small` runs over every transport."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kvtransfer.kinds import NAMES
from tests.kvtransfer.rig import Rig, rig


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """Of a transport."""
    return str(request.param)


@pytest.fixture
async def small(name: str, tmp_path: Path) -> AsyncIterator[Rig]:
    """An owner of eight blocks of a page."""
    async with rig(name, tmp_path) as made:
        yield made
