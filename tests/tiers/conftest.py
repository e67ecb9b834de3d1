"""The small runner, and one prefill and one decode worker for most tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from halfmoon.models import load_model
from halfmoon.runner.runner import Runner
from halfmoon.weights import open_checkpoint
from tests.engine.small import make_runner
from tests.models.families import write_checkpoint
from tests.tiers.workers import TestWorker, worker


@pytest.fixture(scope="session")
def runners(tmp_path_factory: pytest.TempPathFactory) -> tuple[Runner, Runner]:
    """Two runners over one small model: engines in different threads share no cache."""
    folder: Path = tmp_path_factory.mktemp("small") / "llama"
    model = load_model(open_checkpoint(write_checkpoint("llama", folder)))
    return make_runner(model), make_runner(model)


@pytest.fixture
async def pair(runners: tuple[Runner, Runner]) -> AsyncIterator[tuple[TestWorker, TestWorker]]:
    """A prefill and a decode worker; afterwards both are at rest."""
    async with worker(runners[0], role="prefill") as prefill, worker(runners[1], role="decode") as decode:
        yield prefill, decode
        await prefill.assert_at_rest()
        await decode.assert_at_rest()
