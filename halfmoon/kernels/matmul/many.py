"""Products with many columns of x.

A tile is some rows of W by one or two vectors of x's columns: each step over k loads those vectors once and multiplies
them with one weight of each row, spread over a vector.
"""

from llvmlite import ir

from halfmoon.native.emit import F32, Buffer, Emitter, vector
from halfmoon.native.machine import vectors


class ManyColumns:
    """Writes y = W [N, K] @ x [K, T], or its transpose, for rows of W."""

    def __init__(self, emitter: Emitter, x: Buffer, w: Buffer, y: Buffer, *, transposed: bool) -> None:
        self._emitter = emitter
        self._x, self._w, self._y = x.data, w.data, y.data
        self._rows, self._depth, self._columns = w.dim(0), x.dim(0), x.dim(1)
        self._tile_rows = 12 if vectors().registers == 32 else 6
        self._turned = emitter.scratch(F32, 2 * vectors().lanes * self._tile_rows) if transposed else None

    def rows(self, first: ir.Value, last: ir.Value) -> None:
        """Rows first to last."""
        whole = self._emitter.whole(first, last, self._tile_rows)
        with self._emitter.loop(first, whole, self._tile_rows) as row:
            self._row_tile(row, self._tile_rows)
        with self._emitter.loop(whole, last) as row:
            self._row_tile(row, 1)

    def _row_tile(self, row: ir.Value, rows: int) -> None:
        """All columns of some rows: by pairs of vectors, then by ever narrower ones."""
        emitter, lanes = self._emitter, vectors().lanes
        begin = emitter.number(0)
        widths = [(2, lanes), (1, lanes)]
        while lanes > 1:
            lanes //= 2
            widths.append((1, lanes))
        for count, lanes in widths:
            end = emitter.whole(begin, self._columns, count * lanes)
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
            base = emitter.at(inputs, emitter.mul_add(k, self._columns))
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
                begin = emitter.mul_add(self._columns, emitter.builder.add(row, emitter.number(r)), column)
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
