"""The model that both servers load, and what it costs to run."""

import json
import sys
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Self

from bench.vs_vllm_cpu.steps import run_step

_EXPORT_SECONDS = 1800.0
_FLOAT32 = 4


def export_model(folder: Path) -> Path:
    """The default model as a folder of safetensors in float32, written unless it is there."""
    if not (folder / "config.json").exists() or not list(folder.glob("*.safetensors")):
        command = [sys.executable, "-m", "cli.main", "models", "export"]
        run_step(
            "Writing the default model as safetensors",
            [*command, "--dtype", "float32", str(folder)],
            folder.parent / "export.log",
            seconds=_EXPORT_SECONDS,
        )
    return folder


@dataclass(frozen=True, slots=True)
class ModelCost:
    """Numbers of weights in the layers and in the output head, in float32; attention's width over all layers."""

    vocab_size: int
    layer_weights: int
    head_weights: int
    attention_width: int

    @classmethod
    def read(cls, folder: Path) -> Self:
        """From a folder's configuration and the headers of its weights."""
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        shapes = {name: shape for path in folder.glob("*.safetensors") for name, shape in _shapes(path).items()}
        matrices = {name: prod(shape) for name, shape in shapes.items() if len(shape) == 2}
        embedding = sum(size for name, size in matrices.items() if "embed_tokens" in name)
        head = sum(size for name, size in matrices.items() if "lm_head" in name)
        heads = config["num_attention_heads"]
        head_dim = config.get("head_dim") or config["hidden_size"] // heads
        return cls(
            vocab_size=config["vocab_size"],
            layer_weights=sum(matrices.values()) - embedding - head,
            head_weights=head or embedding,
            attention_width=config["num_hidden_layers"] * heads * head_dim,
        )

    def prefill_flops(self, tokens: int) -> float:
        """Floating-point operations of a prompt: the layers for each token, the head once, causal attention."""
        attention = 4 * self.attention_width * tokens * tokens / 2
        return 2 * (self.layer_weights * tokens + self.head_weights) + attention

    @property
    def step_bytes(self) -> int:
        """Bytes that a decode step at batch 1 reads at least: all weights once."""
        return _FLOAT32 * (self.layer_weights + self.head_weights)


def _shapes(path: Path) -> dict[str, list[int]]:
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
