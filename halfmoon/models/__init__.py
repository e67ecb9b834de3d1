"""Model families as Flax NNX modules, and the one place that picks a family for a checkpoint."""

from halfmoon.models.registry import load_model

__all__ = ["load_model"]
