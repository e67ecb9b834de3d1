"""Products with at most eight columns of x, as in decode: the vectors lie along k, each weight is loaded once.

A tile is some rows of W by all columns; each pair of a row and a column has a vector of sums of its own.
"""

from llvmlite import ir

from halfmoon.native.emit import F32, Buffer, Emitter, vector
from halfmoon.native.machine import vectors

MOST_COLUMNS = 8


class FewColumns:
    """Writes y = W [N, K] @ x, or its transpose, for rows of W; x comes as [T, K]."""

    def __init__(self, emitter: Emitter, x: Buffer, w: Buffer, y: Buffer, *, columns: int, transposed: bool) -> None:
        self._emitter = emitter
        self._x, self._w, self._y = x.data, w.data, y.data
        self._rows, self._depth = w.dim(0), w.dim(1)
        self._columns = columns
        self._transposed = transposed
        most_sums = vectors().registers * 3 // 4
        self._tile_rows = max(1, min(6, most_sums // columns))
        self._chains = 2 if self._tile_rows * columns <= most_sums // 2 else 1

    def rows(self, first: ir.Value, last: ir.Value) -> None:
        """Rows first to last."""
        whole = self._emitter.whole(first, last, self._tile_rows)
        with self._emitter.loop(first, whole, self._tile_rows) as row:
            self._tile(row, self._tile_rows)
        with self._emitter.loop(whole, last) as row:
            self._tile(row, 1)

    def _tile(self, row: ir.Value, rows: int) -> None:
        emitter, step = self._emitter, self._chains * vectors().lanes
        kind = vector(vectors().lanes)
        pairs = [(r, t) for r in range(rows) for t in range(self._columns)]
        weights = emitter.at(self._w, emitter.mul_add(row, self._depth))
        sums = {
            pair: [emitter.variable(kind, emitter.constant(0.0, kind)) for _ in range(self._chains)] for pair in pairs
        }
        whole = emitter.whole(emitter.number(0), self._depth, step)
        with emitter.loop(emitter.number(0), whole, step) as k:
            for chain in range(self._chains):
                along = emitter.mul_add(k, 1, chain * vectors().lanes)
                places = {pair: places[chain] for pair, places in sums.items()}
                self._add_products(weights, rows, along, places)
        totals = {pair: emitter.variable(F32, self._total(places)) for pair, places in sums.items()}
        with emitter.loop(whole, self._depth) as k:
            self._add_products(weights, rows, k, totals)
        for (r, t), place in totals.items():
            emitter.store(emitter.get(place, F32), self._result(emitter.mul_add(row, 1, r), t))

    def _add_products(
        self, weights: ir.Value, rows: int, k: ir.Value, sums: dict[tuple[int, int], ir.NamedValue]
    ) -> None:
        """Adds what a vector, or a single step, along k gives to the sums of each row and column."""
        emitter = self._emitter
        kind = next(iter(sums.values())).allocated_type
        parts = []
        for r in range(rows):
            if kind != F32:  # the next tile's weights would come late by themselves
                emitter.prefetch(emitter.at(weights, emitter.mul_add(self._depth, rows + r, k)))
            parts.append(emitter.load(emitter.at(weights, emitter.mul_add(self._depth, r, k)), kind))
        for t in range(self._columns):
            value = emitter.load(emitter.at(self._x, emitter.mul_add(self._depth, t, k)), kind)
            for r in range(rows):
                place = sums[r, t]
                emitter.builder.store(emitter.fma(parts[r], value, emitter.get(place, kind)), place)

    def _total(self, places: list[ir.NamedValue]) -> ir.Value:
        emitter, kind = self._emitter, vector(vectors().lanes)
        total = emitter.get(places[0], kind)
        for place in places[1:]:
            total = emitter.builder.fadd(total, emitter.get(place, kind))
        return emitter.sum_lanes(total)

    def _result(self, row: ir.Value, column: int) -> ir.Value:
        if self._transposed:
            return self._emitter.at(self._y, self._emitter.mul_add(self._rows, column, row))
        return self._emitter.at(self._y, self._emitter.mul_add(row, self._columns, column))
