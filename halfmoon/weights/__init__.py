"""Reading models from disk: safetensors folders, GGUF files, the hub, the embedded default."""

from halfmoon.weights.checkpoint import Checkpoint, StoredCheckpoint, TensorInfo
from halfmoon.weights.default_model import cached_model, fetch_default_model
from halfmoon.weights.describe import describe
from halfmoon.weights.export import export_safetensors
from halfmoon.weights.opening import open_checkpoint
from halfmoon.weights.progress import QUIET, ConsoleProgress, Progress
from halfmoon.weights.resolve import resolve_model, served_name

__all__ = [
    "QUIET",
    "Checkpoint",
    "ConsoleProgress",
    "Progress",
    "StoredCheckpoint",
    "TensorInfo",
    "cached_model",
    "describe",
    "export_safetensors",
    "fetch_default_model",
    "open_checkpoint",
    "resolve_model",
    "served_name",
]
