"""Models for the tests of the command."""

from pathlib import Path

import pytest

from halfmoon.weights import fetch_default_model
from tests.models.families import write_checkpoint


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default model's file, fetched when it is not cached."""
    return fetch_default_model()


@pytest.fixture
def weights_alone(tmp_path: Path) -> Path:
    """A Hugging Face folder with valid weights and no tokenizer."""
    return write_checkpoint("llama", tmp_path / "model")
