"""A whole model that loads in no time: random weights, a tokenizer, and a context in which prompts take a while."""

import json
from pathlib import Path

from tests.models.families import write_checkpoint
from tests.text.tokenizers_made import byte_level, write_folder

CONTEXT = 8192
VOCABULARY = 300
CONTROLS = 3
"""Ids below are control tokens."""

PAGE_SIZE = 64
SMALL_FLAGS = ("--kernels", "xla", "--kv-memory", "64MiB")
"""Plain XLA compiles soonest, and is kept from run to run."""

BLOCK_BYTES = 2 * 2 * PAGE_SIZE * 2 * 16 * 4


def write_small_model(folder: Path) -> Path:
    """As a Hugging Face folder; returns it."""
    write_folder(write_checkpoint("llama", folder), byte_level())
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "max_position_embeddings": CONTEXT}))
    return folder
