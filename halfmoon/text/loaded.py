"""What a loader finds out about a model's text, whatever the model's form on disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from halfmoon.errors import ModelError
from halfmoon.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class LoadedText:
    """`chat_source` is the chat template's source; `end_token_ids` are those that only the tokenizer's files name."""

    tokenizer: Tokenizer
    chat_source: str | None
    end_token_ids: tuple[int, ...]


@contextmanager
def blamed_on(path: Path) -> Iterator[None]:
    """Puts the file or folder at fault before the message of a ModelError."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{path}: {error.message}") from error
