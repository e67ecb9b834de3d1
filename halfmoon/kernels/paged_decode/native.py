"""On the CPU: one chunk of work is a KV head of a row: keys and values are read once for the heads that share them."""

from functools import lru_cache

import jax
import jax.ffi
from jax import Array
from llvmlite import ir

from halfmoon.kernels.attention_native import AttendTile, Pages, PageShape, Place
from halfmoon.native.emit import I32, I64, PTR, VOID, Call, function
from halfmoon.native.machine import compiler

_MOST_ROWS = 6
"""Heads of a group in one tile."""


def paged_decode(q: Array, k_pages: Array, v_pages: Array, tables: Array, lengths: Array) -> Array:
    """See the plain XLA implementation."""
    heads, head_dim, _ = q.shape
    kv_heads, page_size = k_pages.shape[1], k_pages.shape[3]
    target = _target(PageShape(head_dim, page_size), heads // kv_heads)
    result = jax.ShapeDtypeStruct(q.shape, q.dtype)
    return jax.ffi.ffi_call(target, result, vmap_method="sequential")(q, k_pages, v_pages, tables, lengths)


@lru_cache(maxsize=16)
def _target(shape: PageShape, group: int) -> str:
    name = f"halfmoon_paged_decode_{shape.head_dim}_{shape.page_size}_{group}"
    compiler().register(name, _module(shape, group))
    return name


def _module(shape: PageShape, group: int) -> ir.Module:
    module = ir.Module("paged_decode")
    emitter, (frame,) = function(module, "chunks", ir.FunctionType(I64, [PTR]))
    call = Call(emitter, frame)
    emitter.builder.ret(emitter.builder.mul(call.argument(0).dim(2), call.argument(1).dim(1)))

    emitter, (frame, chunk) = function(module, "kernel", ir.FunctionType(VOID, [PTR, I64]))
    call = Call(emitter, frame)
    queries, keys, values, tables, lengths = (call.argument(index) for index in range(5))
    batch, kv_heads = queries.dim(2), keys.dim(1)
    row, head = emitter.builder.sdiv(chunk, kv_heads), emitter.builder.srem(chunk, kv_heads)
    limit = emitter.index(lengths.data, row)
    table = emitter.at(tables.data, emitter.mul_add(row, tables.dim(1)), I32)
    pages = Pages(keys.data, values.data, table, kv_heads, head)
    source, target = queries.data, call.result(0).data

    for first in range(0, group, _MOST_ROWS):

        def place(index: int, d: ir.Value, first: int = first) -> ir.Value:
            line = emitter.mul_add(emitter.mul_add(head, group, first + index), shape.head_dim, d)
            return emitter.mul_add(line, batch, row)

        def query(index: int, d: ir.Value, place: Place = place) -> ir.Value:
            return emitter.at(source, place(index, d))

        def out(index: int, d: ir.Value, place: Place = place) -> ir.Value:
            return emitter.at(target, place(index, d))

        rows = min(_MOST_ROWS, group - first)
        AttendTile(emitter, shape, rows).run(query, [limit] * rows, pages, out)
    emitter.builder.ret_void()
    return module
