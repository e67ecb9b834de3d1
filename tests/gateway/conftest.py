"""Fixtures: a gateway in front of a router that answers everything, shared by the tests of a module."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.gateway.fakes import Served, serving
from tests.gateway.speaker import speak


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_served() -> AsyncIterator[Served]:
    """One of each for a module."""
    async with serving() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def served(module_served: Served) -> Served:
    """One of each, whose router answers everything and remembers nothing; for tests with `loop_scope="module"`."""
    module_served.router.script = speak
    module_served.router.requests.clear()
    module_served.router.cancelled.clear()
    return module_served
