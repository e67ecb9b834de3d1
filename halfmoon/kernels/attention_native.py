"""On the CPU: attention of a tile of query rows over a sequence's pages, with an online softmax, page by page.

The rows of a tile share a KV head: the heads of a group for decode, successive tokens of one head for prefill. Keys lie
as [head_dim, page], values as [page, head_dim], so that both products read them in the order in which they lie.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from halfmoon.native.emit import F32, Emitter, vector
from halfmoon.native.machine import vectors

Place = Callable[[int, ir.Value], ir.Value]
"""(row, d) -> where that element of the queries or of the output lies."""


@dataclass(frozen=True, slots=True)
class PageShape:
    """Sizes that a kernel is compiled for; both are multiples of the vector."""

    head_dim: int
    page_size: int

    @property
    def elements(self) -> int:
        """Elements of one head in one page."""
        return self.head_dim * self.page_size


@dataclass(frozen=True, slots=True)
class Pages:
    """Where a KV head of a sequence lies: page p's keys begin at keys + (table[p] * kv_heads + head) * elements."""

    keys: ir.Value
    values: ir.Value
    table: ir.Value
    kv_heads: ir.Value
    head: ir.Value


class AttendTile:
    """`rows` query rows over the first positions of a sequence; has scratch memory in the function it is made in."""

    def __init__(self, emitter: Emitter, shape: PageShape, rows: int) -> None:
        self._emitter = emitter
        self._shape = shape
        self._rows = rows
        self._lanes = vectors().lanes
        self._queries = emitter.scratch(F32, shape.head_dim * rows)
        self._weights = emitter.scratch(F32, rows * shape.page_size)
        self._sums = emitter.scratch(F32, rows * shape.head_dim)
        self._maxima = [emitter.variable(F32) for _ in range(rows)]
        self._totals = [emitter.variable(F32) for _ in range(rows)]

    def run(
        self,
        query: Place,
        limits: Sequence[ir.Value],
        pages: Pages,
        out: Place,
    ) -> None:
        """query(row, d) and out(row, d) are addresses; row r sees positions below limits[r], which do not fall."""
        emitter, shape = self._emitter, self._shape
        self._start(query)
        last = limits[-1]
        count = emitter.builder.sdiv(
            emitter.builder.add(last, emitter.number(shape.page_size - 1)), emitter.number(shape.page_size)
        )
        with emitter.loop(emitter.number(0), count) as index:
            page = emitter.mul_add(emitter.index(pages.table, index), pages.kv_heads, pages.head)
            offset = emitter.mul_add(page, shape.elements)
            first = emitter.mul_add(index, shape.page_size)
            self._score(emitter.at(pages.keys, offset))
            keep = [self._soften(row, first, limits[row]) for row in range(self._rows)]
            known = emitter.smaller(emitter.builder.sub(last, first), emitter.number(shape.page_size))
            self._add_values(emitter.at(pages.values, offset), known, keep)
        self._finish(out)

    def _start(self, query: Place) -> None:
        emitter, shape = self._emitter, self._shape
        scale = ir.Constant(F32, shape.head_dim**-0.5)
        for row in range(self._rows):
            emitter.builder.store(ir.Constant(F32, float("-inf")), self._maxima[row])
            emitter.builder.store(ir.Constant(F32, 0.0), self._totals[row])
        with emitter.loop(emitter.number(0), emitter.number(shape.head_dim)) as d:
            for row in range(self._rows):
                value = emitter.builder.fmul(emitter.load(query(row, d)), scale)
                emitter.store(value, emitter.at(self._queries, emitter.mul_add(d, self._rows, row)))
        zero = emitter.constant(0.0, vector(self._lanes))
        with emitter.loop(emitter.number(0), emitter.number(self._rows * shape.head_dim), self._lanes) as place:
            emitter.store(zero, emitter.at(self._sums, place))

    def _score(self, keys: ir.Value) -> None:
        """weights [rows, page] = queries [head_dim, rows]^T @ keys [head_dim, page]."""
        emitter, size = self._emitter, self._shape.page_size
        for begin, count in self._vector_tiles(size):
            zero = [[emitter.constant(0.0, vector(self._lanes))] * count for _ in range(self._rows)]
            products = self._multiply(
                zero,
                depth=emitter.number(self._shape.head_dim),
                scalar=lambda k, row: emitter.at(self._queries, emitter.mul_add(k, self._rows, row)),
                lines=emitter.at(keys, emitter.number(begin)),
                width=size,
            )
            self._store(products, self._weights, size, begin)

    def _soften(self, row: int, first: ir.Value, limit: ir.Value) -> ir.Value:
        """Turns a row's scores into weights; returns the factor by which what was summed before shrinks."""
        emitter, builder = self._emitter, self._emitter.builder
        kind, size = vector(self._lanes), self._shape.page_size
        known = builder.sub(limit, first)
        masked, scores, seen = emitter.constant(float("-inf"), kind), [], []
        for begin in range(0, size, self._lanes):
            visible = emitter.lanes_below(begin, known, self._lanes)
            place = emitter.at(self._weights, emitter.number(row * size + begin))
            scores.append(builder.select(visible, emitter.load(place, kind), masked))
            seen.append(visible)
        peak = scores[0]
        for each in scores[1:]:
            peak = emitter.maximum(peak, each)
        before = emitter.get(self._maxima[row], F32)
        maximum = emitter.maximum(before, emitter.max_lanes(peak))
        keep = emitter.exp(builder.fsub(before, maximum))
        total = emitter.constant(0.0, kind)
        for index, (score, visible) in enumerate(zip(scores, seen, strict=True)):
            weight = emitter.exp(builder.fsub(score, emitter.splat(maximum, self._lanes)))
            weight = builder.select(visible, weight, emitter.constant(0.0, kind))
            total = builder.fadd(total, weight)
            emitter.store(weight, emitter.at(self._weights, emitter.number(row * size + index * self._lanes)))
        builder.store(maximum, self._maxima[row])
        builder.store(
            emitter.fma(emitter.get(self._totals[row], F32), keep, emitter.sum_lanes(total)), self._totals[row]
        )
        return keep

    def _add_values(self, values: ir.Value, known: ir.Value, keep: Sequence[ir.Value]) -> None:
        """sums [rows, head_dim] = keep * sums + weights @ values, the first `known` of [page, head_dim]."""
        emitter, width = self._emitter, self._shape.head_dim
        kind = vector(self._lanes)
        for begin, count in self._vector_tiles(width):
            sums = [
                [
                    emitter.builder.fmul(
                        emitter.load(
                            emitter.at(self._sums, emitter.number(row * width + begin + v * self._lanes)), kind
                        ),
                        emitter.splat(keep[row], self._lanes),
                    )
                    for v in range(count)
                ]
                for row in range(self._rows)
            ]
            sums = self._multiply(
                sums,
                depth=known,
                scalar=lambda k, row: emitter.at(self._weights, emitter.mul_add(row, self._shape.page_size, k)),
                lines=emitter.at(values, emitter.number(begin)),
                width=width,
            )
            self._store(sums, self._sums, width, begin)

    def _finish(self, out: Place) -> None:
        emitter, width = self._emitter, self._shape.head_dim
        for row in range(self._rows):
            inverse = emitter.builder.fdiv(ir.Constant(F32, 1.0), emitter.get(self._totals[row], F32))
            emitter.builder.store(inverse, self._totals[row])
        with emitter.loop(emitter.number(0), emitter.number(width)) as d:
            for row in range(self._rows):
                value = emitter.load(emitter.at(self._sums, emitter.builder.add(d, emitter.number(row * width))))
                value = emitter.builder.fmul(value, emitter.get(self._totals[row], F32))
                emitter.store(value, out(row, d))

    def _multiply(
        self,
        start: list[list[ir.Value]],
        *,
        depth: ir.Value,
        scalar: Callable[[ir.Value, int], ir.Value],
        lines: ir.Value,
        width: int,
    ) -> list[list[ir.Value]]:
        """start [rows, vectors] + the sum over k of scalar(k, row) * the vectors that begin at lines + k * width."""
        emitter, kind = self._emitter, vector(self._lanes)
        sums = [[emitter.variable(kind, value) for value in row] for row in start]
        with emitter.loop(emitter.number(0), depth) as k:
            base = emitter.at(lines, emitter.mul_add(k, width))
            parts = [
                emitter.load(emitter.at(base, emitter.number(v * self._lanes)), kind) for v in range(len(start[0]))
            ]
            for row, places in enumerate(sums):
                factor = emitter.splat(emitter.load(scalar(k, row)), self._lanes)
                for place, part in zip(places, parts, strict=True):
                    emitter.builder.store(emitter.fma(factor, part, emitter.get(place, kind)), place)
        return [[emitter.get(place, kind) for place in row] for row in sums]

    def _store(self, parts: list[list[ir.Value]], base: ir.Value, width: int, begin: int) -> None:
        for row, vectors_of_row in enumerate(parts):
            for v, value in enumerate(vectors_of_row):
                place = self._emitter.number(row * width + begin + v * self._lanes)
                self._emitter.store(value, self._emitter.at(base, place))

    def _vector_tiles(self, width: int) -> list[tuple[int, int]]:
        """(first element, vectors) of parts of a line such that all sums of a part fit into the registers."""
        most = max(1, (vectors().registers * 3 // 4) // self._rows)
        total = width // self._lanes
        return [(v * self._lanes, min(most, total - v)) for v in range(0, total, most)]
