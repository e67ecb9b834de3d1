"""On the CPU: one chunk of work is a head of a run; its tokens go by tiles, each over the pages up to its own last."""

from functools import lru_cache

import jax
import jax.ffi
from jax import Array
from llvmlite import ir

from halfmoon.kernels.attention_native import AttendTile, Pages, PageShape
from halfmoon.native.emit import I32, I64, PTR, VOID, Call, function
from halfmoon.native.machine import compiler

_MOST_ROWS = 8
"""Tokens in one tile."""


def chunked_prefill(q: Array, k_pages: Array, v_pages: Array, tables: Array, starts: Array) -> Array:
    """See the plain XLA implementation."""
    _, head_dim, tokens = q.shape
    run = tokens // starts.shape[0]
    rows = next(rows for rows in range(_MOST_ROWS, 0, -1) if run % rows == 0)
    target = _target(PageShape(head_dim, k_pages.shape[3]), rows)
    result = jax.ShapeDtypeStruct(q.shape, q.dtype)
    return jax.ffi.ffi_call(target, result, vmap_method="sequential")(q, k_pages, v_pages, tables, starts)


@lru_cache(maxsize=16)
def _target(shape: PageShape, rows: int) -> str:
    name = f"halfmoon_chunked_prefill_{shape.head_dim}_{shape.page_size}_{rows}"
    compiler().register(name, _module(shape, rows))
    return name


def _module(shape: PageShape, rows: int) -> ir.Module:
    module = ir.Module("chunked_prefill")
    emitter, (frame,) = function(module, "chunks", ir.FunctionType(I64, [PTR]))
    call = Call(emitter, frame)
    emitter.builder.ret(emitter.builder.mul(call.argument(0).dim(0), call.argument(4).dim(0)))

    emitter, (frame, chunk) = function(module, "kernel", ir.FunctionType(VOID, [PTR, I64]))
    call, builder = Call(emitter, frame), emitter.builder
    queries, keys, values, tables, starts = (call.argument(index) for index in range(5))
    heads, tokens, kv_heads, runs = queries.dim(0), queries.dim(2), keys.dim(1), starts.dim(0)
    run, head = builder.sdiv(chunk, heads), builder.srem(chunk, heads)
    start = emitter.index(starts.data, run)
    length = builder.sdiv(tokens, runs)
    kv_head = builder.sdiv(head, builder.sdiv(heads, kv_heads))
    table = emitter.at(tables.data, emitter.mul_add(run, tables.dim(1)), I32)
    pages = Pages(keys.data, values.data, table, kv_heads, kv_head)
    source, target = queries.data, call.result(0).data
    tile = AttendTile(emitter, shape, rows)
    with emitter.loop(emitter.number(0), length, rows) as token:
        first = emitter.mul_add(run, length, token)

        def place(index: int, d: ir.Value) -> ir.Value:
            return emitter.mul_add(
                emitter.mul_add(head, shape.head_dim, d), tokens, builder.add(first, emitter.number(index))
            )

        limits = [emitter.mul_add(start, 1, token, 1, index + 1) for index in range(rows)]
        tile.run(
            lambda index, d: emitter.at(source, place(index, d)),
            limits,
            pages,
            lambda index, d: emitter.at(target, place(index, d)),
        )
    builder.ret_void()
    return module
