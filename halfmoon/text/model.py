"""Everything about a model that concerns text, in one object."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfmoon.errors import ModelError
from halfmoon.text.chat import ChatTemplate
from halfmoon.text.folder import load_folder_text
from halfmoon.text.gguf_file import load_gguf_text
from halfmoon.text.loaded import blamed_on
from halfmoon.text.tokenizer import Tokenizer
from halfmoon.weights import open_checkpoint

_SAMPLING_KEYS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


@dataclass(frozen=True, slots=True)
class TextModel:
    """A model without its weights: what router and gateway need.

    `vocab_size` counts the ids that the model knows, `max_model_len` the tokens of its context. `end_token_ids` end a
    choice. `generation_defaults` are sampling parameters that the model's authors recommend. `fingerprint` is that of
    the checkpoint. `chat` is None where the model has no chat template.
    """

    tokenizer: Tokenizer
    chat: ChatTemplate | None
    vocab_size: int
    max_model_len: int
    end_token_ids: tuple[int, ...]
    generation_defaults: Mapping[str, float]
    fingerprint: str


def load_text_model(path: Path) -> TextModel:
    """Loads from a Hugging Face folder or a GGUF file; no tensor is read. Raises ModelError in one line."""
    if not path.exists():
        raise ModelError(f"{path}: no such folder or file")
    loaded = load_folder_text(path) if path.is_dir() else load_gguf_text(path)
    checkpoint = open_checkpoint(path)
    config, generation = checkpoint.config, checkpoint.generation_config
    ends = (*_ids(config.get("eos_token_id")), *_ids(generation.get("eos_token_id")), *loaded.end_token_ids)
    return TextModel(
        tokenizer=loaded.tokenizer,
        chat=_chat(loaded.chat_source, loaded.tokenizer, path),
        vocab_size=_positive(config, "vocab_size", path),
        max_model_len=_positive(config, "max_position_embeddings", path),
        end_token_ids=tuple(dict.fromkeys(ends)),
        generation_defaults=dict(_numbers(generation)),
        fingerprint=checkpoint.fingerprint,
    )


def _chat(source: str | None, tokenizer: Tokenizer, path: Path) -> ChatTemplate | None:
    if source is None:
        return None
    with blamed_on(path):
        return ChatTemplate(source, tokenizer.named_tokens)


def _ids(value: object) -> Iterator[int]:
    """Token ids from a field that holds one, several or none."""
    for item in value if isinstance(value, list | tuple) else [value]:
        if isinstance(item, int):
            yield item


def _positive(config: Mapping[str, Any], key: str, path: Path) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value <= 0:
        raise ModelError(f"{path}: the model's config names no {key}")
    return value


def _numbers(generation: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key in _SAMPLING_KEYS:
        value = generation.get(key)
        if isinstance(value, int | float):
            yield key, float(value)
