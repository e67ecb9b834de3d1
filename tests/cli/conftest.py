"""What the tests of the command share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.models.families import write_checkpoint


@pytest.fixture(autouse=True)
def _environment_stays() -> Iterator[None]:
    """The command sets variables for the libraries of its own process, which here is that of the tests."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def weights_alone(tmp_path: Path) -> Path:
    """A Hugging Face folder with valid weights and no tokenizer."""
    return write_checkpoint("llama", tmp_path / "model")
