"""One compiled runner for all engine tests."""

from pathlib import Path

import pytest

from halfmoon.models import load_model
from halfmoon.runner.runner import Runner
from halfmoon.weights import open_checkpoint
from tests.engine.small import make_runner
from tests.models.families import write_checkpoint


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Over the small Llama."""
    folder: Path = tmp_path_factory.mktemp("small") / "llama"
    return make_runner(load_model(open_checkpoint(write_checkpoint("llama", folder))))
