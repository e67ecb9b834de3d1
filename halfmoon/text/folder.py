"""Tokenizer and chat template from a Hugging Face folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from halfmoon.errors import ModelError
from halfmoon.text.loaded import LoadedText, blamed_on
from halfmoon.text.tokenizer import Tokenizer

_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


def load_folder_text(folder: Path) -> LoadedText:
    """Reads tokenizer.json, tokenizer_config.json, special_tokens_map.json and chat_template.jinja.

    All but the first may be missing. Raises ModelError that names the file at fault.
    """
    config = {
        **_read_object(folder / "special_tokens_map.json"),
        **_present(_read_object(folder / "tokenizer_config.json")),
    }
    named = {name: content for name in _NAMED if (content := _content(config.get(name))) is not None}
    tokenizer = _tokenizer(folder / "tokenizer.json", config, named)
    end = tokenizer.token_id(named.get("eos_token", ""))
    return LoadedText(
        tokenizer=tokenizer,
        chat_source=_chat_source(folder, config),
        end_token_ids=() if end is None else (end,),
    )


def _tokenizer(path: Path, config: Mapping[str, Any], named: Mapping[str, str]) -> Tokenizer:
    if not path.is_file():
        raise ModelError(
            f"{path}: missing; a model folder needs a tokenizer.json (the form of the `tokenizers` library)"
        )
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more exact
        raise ModelError(f"{path}: not a valid tokenizer: {error}") from error
    backend.add_special_tokens(_missing_special_tokens(backend, config, named))
    add_bos = config.get("add_bos_token")
    with blamed_on(path):
        return Tokenizer(backend, named_tokens=named, add_bos=add_bos if isinstance(add_bos, bool) else None)


def _missing_special_tokens(
    backend: tokenizers.Tokenizer, config: Mapping[str, Any], named: Mapping[str, str]
) -> list[AddedToken]:
    """Tokens of the vocabulary that the configuration calls special and tokenizer.json does not."""
    known = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    additional = config.get("additional_special_tokens") or []
    contents = [*named.values(), *(content for token in additional if (content := _content(token)) is not None)]
    return [
        AddedToken(content, special=True, normalized=False)
        for content in dict.fromkeys(contents)
        if content not in known and backend.token_to_id(content) is not None
    ]


def _chat_source(folder: Path, config: Mapping[str, Any]) -> str | None:
    """`chat_template.jinja` where there is one, else the configuration's: one source, or a list of named ones."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return _read_text(file)
    template = config.get("chat_template")
    if not isinstance(template, list):
        return template if isinstance(template, str) else None
    sources = {entry["name"]: entry["template"] for entry in template if {"name", "template"} <= set(entry)}
    return sources.get("default", next(iter(sources.values()), None))


def _content(token: object) -> str | None:
    """A token is written as its string, or as an object that holds it."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) and token else None


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is no such file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise ModelError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: holds no JSON object")
    return value


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
