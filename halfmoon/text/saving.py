"""Writes a model's text side as the files of a Hugging Face folder."""

import json
from pathlib import Path

from halfmoon.text.gguf_file import load_gguf_text


def save_gguf_text(file: Path, folder: Path) -> None:
    """Tokenizer and chat template of the GGUF `file` as tokenizer.json, tokenizer_config.json and chat_template.jinja.

    Raises ModelError for a file without a tokenizer that is supported, OSError where `folder` cannot be written.
    """
    text = load_gguf_text(file)
    text.tokenizer.save(folder / "tokenizer.json")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": text.tokenizer.adds_bos,
        **text.tokenizer.named_tokens,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8")
    if text.chat_source is not None:
        (folder / "chat_template.jinja").write_text(text.chat_source, "utf-8")
