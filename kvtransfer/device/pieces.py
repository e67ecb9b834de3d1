"""Blocks cut along the KV heads into arrays of one device each, and put together again for other devices."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import SingleDeviceSharding

from halfmoon.kernels.kv_pages.sharding import blocks_sharding, tensor_mesh
from kvtransfer.device.block_hash import hash_values
from kvtransfer.device.layout import DeviceLayout

_HEADS = 2
"""Axis of the KV heads in blocks [n, layers, kv_heads, page_size, 2 * head_dim]."""


class Placement:
    """A layout on the devices that it names the number of, in the order of the heads that they hold."""

    def __init__(self, layout: DeviceLayout, devices: Sequence[jax.Device]) -> None:
        self.layout = layout
        self._devices = tuple(devices[: layout.shards])
        self._sharding = blocks_sharding(tensor_mesh(self._devices))

    def warm_up(self) -> None:
        """Compiles all that blocks can go through here, whatever the other side's shards: nothing does while serving.

        Blocks are as an engine gathers them or as they arrive.
        """
        layout = self.layout
        heads = layout.geometry.kv_heads
        counts = [pieces for pieces in range(layout.shards, heads + 1, layout.shards) if heads % pieces == 0]
        for pages in layout.page_counts:
            gathered = jnp.zeros((pages, *layout.geometry.shape), jnp.dtype(layout.geometry.dtype))
            if layout.shards > 1:
                gathered = jax.device_put(gathered, self._sharding)
            hash_values(gathered)
            for pieces in counts:
                arrived = [jax.device_put(piece, piece.sharding) for piece in self.cut(gathered, pieces)]
                hash_values(self.join(arrived))

    def specs(self, pages: int, pieces: int) -> list[jax.ShapeDtypeStruct]:
        """What the pieces of `pages` blocks are once they have arrived here."""
        geometry = self.layout.geometry
        layers, heads, size, width = geometry.shape
        shape = (pages, layers, heads // pieces, size, width)
        places = [self._devices[piece * self.layout.shards // pieces] for piece in range(pieces)]
        return [
            jax.ShapeDtypeStruct(shape, jnp.dtype(geometry.dtype), sharding=SingleDeviceSharding(place))
            for place in places
        ]

    def cut(self, blocks: Array, pieces: int) -> list[Array]:
        """`pieces` arrays, each on the device that holds its heads; no copy where a device's share is one piece."""
        shares = sorted(blocks.addressable_shards, key=lambda shard: shard.index[_HEADS].start or 0)
        each = pieces // len(shares)
        return [piece for share in shares for piece in ([share.data] if each == 1 else _split(share.data, each))]

    def join(self, pieces: Sequence[Array]) -> Array:
        """The reverse of `cut`, of pieces that lie as `specs` says: blocks shared out over this worker's devices."""
        each = len(pieces) // self.layout.shards
        shares = [_concatenate(pieces[start : start + each]) for start in range(0, len(pieces), each)]
        if len(shares) == 1:
            return shares[0]
        shape = (shares[0].shape[0], *self.layout.geometry.shape)
        return jax.make_array_from_single_device_arrays(shape, self._sharding, shares)


def _concatenate(pieces: Sequence[Array]) -> Array:
    return pieces[0] if len(pieces) == 1 else _join_heads(list(pieces))


@functools.partial(jax.jit, static_argnames="count")
def _split(share: Array, count: int) -> list[Array]:
    return jnp.split(share, count, axis=_HEADS)


@jax.jit
def _join_heads(pieces: list[Array]) -> Array:
    return jnp.concatenate(pieces, axis=_HEADS)
