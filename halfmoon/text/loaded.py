"""What a loader finds out about a model's text, whatever the model's form on disk."""

from dataclasses import dataclass

from halfmoon.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class LoadedText:
    """`chat_source` is the chat template's source; `end_token_ids` are those that the tokenizer's own files name."""

    tokenizer: Tokenizer
    chat_source: str | None
    end_token_ids: tuple[int, ...]
