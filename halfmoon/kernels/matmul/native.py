"""On the CPU: products that read the weights once, as they lie in the checkpoint."""

from collections.abc import Sequence
from functools import lru_cache

import jax
import jax.ffi
import jax.numpy as jnp
from jax import Array
from llvmlite import ir

from halfmoon.kernels.matmul.few import MOST_COLUMNS, FewColumns
from halfmoon.kernels.matmul.many import ManyColumns
from halfmoon.native.emit import I64, PTR, VOID, Buffer, Call, Emitter, function
from halfmoon.native.machine import compiler

_BLOCK_ROWS = 96
"""Rows of W in one chunk of work: whole tiles, 100 kB or more of weights."""


def matmul(x: Array, *weights: Array) -> tuple[Array, ...]:
    """W @ x [out, T] for each W [out, in], with x [in, T]."""
    return _products(x, weights, [(w.shape[0], x.shape[1]) for w in weights], transposed=False)


def matmul_transposed(x: Array, weight: Array) -> Array:
    """(W @ x)^T [T, out] of W [out, in] and x [in, T]."""
    (product,) = _products(x, (weight,), [(x.shape[1], weight.shape[0])], transposed=True)
    return product


def _products(
    x: Array, weights: Sequence[Array], shapes: Sequence[tuple[int, int]], *, transposed: bool
) -> tuple[Array, ...]:
    columns = x.shape[1] if x.shape[1] <= MOST_COLUMNS else None
    results = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    call = jax.ffi.ffi_call(_target(len(weights), columns, transposed=transposed), results, vmap_method="sequential")
    return tuple(call(x if columns is None else x.T, *weights))


@lru_cache(maxsize=64)
def _target(count: int, columns: int | None, *, transposed: bool) -> str:
    """The kernel for so many weights, and for `columns` columns of x or, None, for many."""
    name = f"halfmoon_matmul_{count}_{columns or 'many'}" + ("_transposed" if transposed else "")
    compiler().register(name, _module(count, columns, transposed=transposed))
    return name


def _module(count: int, columns: int | None, *, transposed: bool) -> ir.Module:
    module = ir.Module("matmul")
    emitter, (frame,) = function(module, "chunks", ir.FunctionType(I64, [PTR]))
    call = Call(emitter, frame)
    total = emitter.number(0)
    for index in range(count):
        total = emitter.builder.add(total, _blocks(emitter, call.argument(1 + index)))
    emitter.builder.ret(total)

    emitter, (frame, chunk) = function(module, "kernel", ir.FunctionType(VOID, [PTR, I64]))
    call = Call(emitter, frame)
    for index in range(count):
        x, weight, y = call.argument(0), call.argument(1 + index), call.result(index)
        blocks = _blocks(emitter, weight)
        mine = emitter.builder.icmp_unsigned("<", chunk, blocks)
        with emitter.builder.if_then(mine):
            product: FewColumns | ManyColumns
            if columns is None:
                product = ManyColumns(emitter, x, weight, y, transposed=transposed)
            else:
                product = FewColumns(emitter, x, weight, y, columns=columns, transposed=transposed)
            _block(emitter, product, weight, chunk)
            emitter.builder.ret_void()
        chunk = emitter.builder.sub(chunk, blocks)
    emitter.builder.ret_void()
    return module


def _blocks(emitter: Emitter, weight: Buffer) -> ir.Value:
    rows = emitter.builder.add(weight.dim(0), emitter.number(_BLOCK_ROWS - 1))
    return emitter.builder.sdiv(rows, emitter.number(_BLOCK_ROWS))


def _block(emitter: Emitter, product: FewColumns | ManyColumns, weight: Buffer, block: ir.Value) -> None:
    first = emitter.mul_add(block, _BLOCK_ROWS)
    product.rows(first, emitter.smaller(emitter.mul_add(first, 1, _BLOCK_ROWS), weight.dim(0)))
