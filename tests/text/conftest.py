"""What the tests of text share."""

from pathlib import Path

import pytest

from halfmoon.text import TextModel, load_text_model


@pytest.fixture(scope="session")
def default_text(default_model: Path) -> TextModel:
    """Text of the default model."""
    return load_text_model(default_model)
