"""Caches and blocks on several devices: each device holds the same share of the KV heads, all of every page."""

from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TENSOR_AXIS = "tensor"
"""Name of the mesh axis over which KV heads are shared out."""

_CACHE_SPEC = P(None, TENSOR_AXIS)
_BLOCKS_SPEC = P(None, None, TENSOR_AXIS)


def tensor_mesh(devices: Sequence[jax.Device]) -> Mesh:
    """A mesh whose only axis shares KV heads out over `devices`, in their order."""
    return Mesh(np.array(devices), (TENSOR_AXIS,))


def cache_sharding(mesh: Mesh) -> NamedSharding:
    """Of K and V of one layer, [pages, kv_heads, ...]."""
    return NamedSharding(mesh, _CACHE_SPEC)


def blocks_sharding(mesh: Mesh) -> NamedSharding:
    """Of blocks, [n, layers, kv_heads, page_size, 2 * head_dim]: gathered from sharded caches, no head moves."""
    return NamedSharding(mesh, _BLOCKS_SPEC)
