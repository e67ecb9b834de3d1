"""On the CPU: products that read the weights once, as they lie in the checkpoint, at the speed of memory or arithmetic.

A tile is some rows of W by one or two vectors of x's columns: each step over k loads those vectors once and multiplies
them with one weight of each row, spread over a vector. For a single column the vectors lie along k instead.
"""

from functools import lru_cache

import jax
import jax.ffi
import jax.numpy as jnp
from jax import Array
from llvmlite import ir

from halfmoon.native.emit import F32, I64, PTR, VOID, Buffer, Call, Emitter, function, vector
from halfmoon.native.machine import compiler, vectors

_BLOCK_ROWS = 96
"""Rows of W in one chunk of work: whole tiles, 100 kB or more of weights."""
_ROW_VECTORS = 4
"""Rows at a time for a single column."""


def matmul(x: Array, *weights: Array) -> tuple[Array, ...]:
    """W @ x [out, T] for each W [out, in], with x [in, T]."""
    results = [jax.ShapeDtypeStruct((w.shape[0], x.shape[1]), jnp.float32) for w in weights]
    target = _target(len(weights), transposed=False)
    return tuple(jax.ffi.ffi_call(target, results, vmap_method="sequential")(x, *weights))


def matmul_transposed(x: Array, weight: Array) -> Array:
    """(W @ x)^T [T, out] of W [out, in] and x [in, T]."""
    result = jax.ShapeDtypeStruct((x.shape[1], weight.shape[0]), jnp.float32)
    return jax.ffi.ffi_call(_target(1, transposed=True), result, vmap_method="sequential")(x, weight)


@lru_cache(maxsize=8)
def _target(count: int, *, transposed: bool) -> str:
    name = f"halfmoon_matmul_{count}" + ("_transposed" if transposed else "")
    compiler().register(name, _module(count, transposed=transposed))
    return name


def _module(count: int, *, transposed: bool) -> ir.Module:
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
        blocks = _blocks(emitter, call.argument(1 + index))
        mine = emitter.builder.icmp_unsigned("<", chunk, blocks)
        with emitter.builder.if_then(mine):
            _block(
                emitter, call.argument(0), call.argument(1 + index), call.result(index), chunk, transposed=transposed
            )
            emitter.builder.ret_void()
        chunk = emitter.builder.sub(chunk, blocks)
    emitter.builder.ret_void()
    return module


def _blocks(emitter: Emitter, weight: Buffer) -> ir.Value:
    rows = emitter.builder.add(weight.dim(0), emitter.number(_BLOCK_ROWS - 1))
    return emitter.builder.sdiv(rows, emitter.number(_BLOCK_ROWS))


def _block(emitter: Emitter, x: Buffer, weight: Buffer, y: Buffer, block: ir.Value, *, transposed: bool) -> None:
    builder = emitter.builder
    first = builder.mul(block, emitter.number(_BLOCK_ROWS))
    last = emitter.smaller(builder.add(first, emitter.number(_BLOCK_ROWS)), weight.dim(0))
    product = _Product(emitter, x, weight, y, transposed=transposed)
    single = builder.icmp_signed("==", product.columns, emitter.number(1))
    with builder.if_else(single) as (one, many):
        with one:
            product.by_rows(first, last)
        with many:
            product.by_columns(first, last)


class _Product:
    """y [N, T] = W [N, K] @ x [K, T] for some rows."""

    def __init__(self, emitter: Emitter, x: Buffer, w: Buffer, y: Buffer, *, transposed: bool) -> None:
        self._emitter = emitter
        self._x, self._w, self._y = x.data, w.data, y.data
        self._rows, self._depth, self.columns = w.dim(0), x.dim(0), x.dim(1)
        self._tile_rows = 12 if vectors().registers == 32 else 6
        self._turned = emitter.scratch(F32, 2 * vectors().lanes * self._tile_rows) if transposed else None

    def by_columns(self, first: ir.Value, last: ir.Value) -> None:
        """Several columns."""
        whole = self._whole(first, last, self._tile_rows)
        with self._emitter.loop(first, whole, self._tile_rows) as row:
            self._row_tile(row, self._tile_rows)
        with self._emitter.loop(whole, last) as row:
            self._row_tile(row, 1)

    def by_rows(self, first: ir.Value, last: ir.Value) -> None:
        """One column."""
        whole = self._whole(first, last, _ROW_VECTORS)
        with self._emitter.loop(first, whole, _ROW_VECTORS) as row:
            self._dot(row, _ROW_VECTORS)
        with self._emitter.loop(whole, last) as row:
            self._dot(row, 1)

    def _whole(self, first: ir.Value, last: ir.Value, step: int) -> ir.Value:
        builder = self._emitter.builder
        tiles = builder.sdiv(builder.sub(last, first), self._emitter.number(step))
        return builder.add(first, builder.mul(tiles, self._emitter.number(step)))

    def _row_tile(self, row: ir.Value, rows: int) -> None:
        """All columns of some rows: by pairs of vectors, then by ever narrower ones."""
        emitter, lanes = self._emitter, vectors().lanes
        begin = emitter.number(0)
        widths = [(2, lanes), (1, lanes)]
        while lanes > 1:
            lanes //= 2
            widths.append((1, lanes))
        for count, lanes in widths:
            end = self._whole(begin, self.columns, count * lanes)
            with emitter.loop(begin, end, count * lanes) as column:
                self._tile(row, rows, column, count, lanes)
            begin = end

    def _tile(self, row: ir.Value, rows: int, column: ir.Value, count: int, lanes: int) -> None:
        emitter, kind = self._emitter, vector(lanes)
        zero = emitter.constant(0.0, kind)
        sums = [[emitter.variable(kind, zero) for _ in range(count)] for _ in range(rows)]
        weights = emitter.at(self._w, emitter.mul_add(row, self._depth))
        inputs = emitter.at(self._x, column)
        with emitter.loop(emitter.number(0), self._depth) as k:
            if rows > 1:  # the next rows' weights, a line for each step: they would come late by themselves
                emitter.prefetch(emitter.at(weights, emitter.mul_add(self._depth, rows, k, rows)))
            base = emitter.at(inputs, emitter.mul_add(k, self.columns))
            values = [emitter.load(emitter.at(base, emitter.number(v * lanes)), kind) for v in range(count)]
            for r in range(rows):
                weight = emitter.load(emitter.at(weights, emitter.mul_add(self._depth, r, k)))
                spread = emitter.splat(weight, lanes)
                for v in range(count):
                    emitter.builder.store(emitter.fma(spread, values[v], emitter.get(sums[r][v], kind)), sums[r][v])
        parts = [[emitter.get(each, kind) for each in line] for line in sums]
        if self._turned is None:
            self._store(parts, row, column, lanes)
        else:
            self._store_turned(parts, row, column, lanes)

    def _store(self, parts: list[list[ir.Value]], row: ir.Value, column: ir.Value, lanes: int) -> None:
        emitter = self._emitter
        for r, line in enumerate(parts):
            for v, part in enumerate(line):
                begin = emitter.mul_add(self.columns, emitter.builder.add(row, emitter.number(r)), column)
                emitter.store(part, emitter.at(self._y, emitter.mul_add(begin, 1, v * lanes)))

    def _store_turned(self, parts: list[list[ir.Value]], row: ir.Value, column: ir.Value, lanes: int) -> None:
        """Through memory that stays in the nearest cache: the rows of one column follow each other in y."""
        emitter, width = self._emitter, len(parts[0]) * lanes
        for r, line in enumerate(parts):
            for v, part in enumerate(line):
                emitter.store(part, emitter.at(self._turned, emitter.number(r * width + v * lanes)))
        with emitter.loop(emitter.number(0), emitter.number(width)) as c:
            begin = emitter.mul_add(self._rows, emitter.builder.add(column, c), row)
            for r in range(len(parts)):
                value = emitter.load(emitter.at(self._turned, emitter.mul_add(c, 1, r * width)))
                emitter.store(value, emitter.at(self._y, emitter.mul_add(begin, 1, r)))

    def _dot(self, row: ir.Value, rows: int) -> None:
        emitter, lanes = self._emitter, vectors().lanes
        kind, count = vector(lanes), 2
        sums = [[emitter.variable(kind, emitter.constant(0.0, kind)) for _ in range(count)] for _ in range(rows)]
        weights = emitter.at(self._w, emitter.mul_add(row, self._depth))
        whole = self._whole(emitter.number(0), self._depth, count * lanes)
        with emitter.loop(emitter.number(0), whole, count * lanes) as k:
            for v in range(count):
                along = emitter.builder.add(k, emitter.number(v * lanes))
                value = emitter.load(emitter.at(self._x, along), kind)
                for r in range(rows):
                    if rows > 1:
                        emitter.prefetch(emitter.at(weights, emitter.mul_add(self._depth, rows + r, along)))
                    weight = emitter.load(emitter.at(weights, emitter.mul_add(self._depth, r, along)), kind)
                    emitter.builder.store(emitter.fma(weight, value, emitter.get(sums[r][v], kind)), sums[r][v])
        totals = []
        for r in range(rows):
            both = emitter.builder.fadd(emitter.get(sums[r][0], kind), emitter.get(sums[r][1], kind))
            totals.append(emitter.variable(F32, emitter.sum_lanes(both)))
        with emitter.loop(whole, self._depth) as k:
            value = emitter.load(emitter.at(self._x, k))
            for r in range(rows):
                weight = emitter.load(emitter.at(weights, emitter.mul_add(self._depth, r, k)))
                emitter.builder.store(emitter.fma(weight, value, emitter.get(totals[r], F32)), totals[r])
        for r in range(rows):
            place = emitter.builder.add(row, emitter.number(r))
            emitter.store(emitter.get(totals[r], F32), emitter.at(self._y, place))
