"""Writing LLVM functions from Python: loops, vectors and the few operations that the CPU kernels need.

Pointers are opaque; offsets are in elements of the type that is read or written.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
F32, PTR, VOID = ir.FloatType(), ir.PointerType(), ir.VoidType()

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_EXP_TAYLOR = (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)
_EXP_LOWEST = -87.0
"""exp of less is taken as exp of this: 1.6e-38, still a normal float32."""


class Emitter:
    """A builder at work in one function."""

    def __init__(self, module: ir.Module, function: ir.Function) -> None:
        self.module = module
        self.function = function
        self._places = ir.IRBuilder(function.append_basic_block("places"))
        self.builder = ir.IRBuilder(function.append_basic_block("begin"))
        self._places.position_before(self._places.branch(self.builder.block))

    def number(self, value: int) -> ir.Constant:
        """A 64-bit constant."""
        return ir.Constant(I64, value)

    def variable(self, kind: ir.Type, start: ir.Value | None = None) -> ir.Value:
        """A place for a value that changes; LLVM turns it into a register."""
        place = self._places.alloca(kind)
        if start is not None:
            self.builder.store(start, place)
        return place

    def scratch(self, kind: ir.Type, count: int) -> ir.Value:
        """Uninitialised memory on the stack, aligned for vectors."""
        place = self._places.alloca(kind, size=ir.Constant(I64, count))
        place.align = 64
        place.type = PTR  # not a pointer to one kind: scalars and vectors are kept in it
        return place

    def get(self, place: ir.Value, kind: ir.Type) -> ir.Value:
        """The value in a variable."""
        return self.builder.load(place, typ=kind)

    @contextmanager
    def loop(self, start: ir.Value, stop: ir.Value, step: int = 1) -> Iterator[ir.Value]:
        """for index in range(start, stop, step)."""
        index = self.variable(I64, start)
        head, body, after = (self.function.append_basic_block(name) for name in ("loop", "body", "after"))
        self.builder.branch(head)
        self.builder.position_at_end(head)
        current = self.get(index, I64)
        self.builder.cbranch(self.builder.icmp_signed("<", current, stop), body, after)
        self.builder.position_at_end(body)
        yield current
        self.builder.store(self.builder.add(current, self.number(step)), index)
        self.builder.branch(head)
        self.builder.position_at_end(after)

    def at(self, base: ir.Value, offset: ir.Value, kind: ir.Type = F32) -> ir.Value:
        """The address of element `offset` from `base`."""
        return self.builder.gep(base, [offset], source_etype=kind)

    def load(self, address: ir.Value, kind: ir.Type = F32) -> ir.Value:
        """Reads a scalar or a vector that lies at any multiple of 4 bytes."""
        return self.builder.load(address, align=_alignment(kind), typ=kind)

    def index(self, table: ir.Value, place: ir.Value) -> ir.Value:
        """Entry `place` of an int32 table, as 64 bits."""
        return self.builder.sext(self.load(self.at(table, place, I32), I32), I64)

    def store(self, value: ir.Value, address: ir.Value) -> None:
        """Writes what `load` reads."""
        self.builder.store(value, address, align=_alignment(value.type))

    def mul_add(self, *terms: ir.Value | int) -> ir.Value:
        """a * b + c * d + ... of 64-bit integers given as a, b, c, d, ...; an odd last one is added alone."""
        values = [self.number(each) if isinstance(each, int) else each for each in terms]
        total = values.pop() if len(values) % 2 else self.number(0)
        for left, right in zip(values[::2], values[1::2], strict=True):
            total = self.builder.add(total, self.builder.mul(left, right))
        return total

    def whole(self, first: ir.Value, last: ir.Value, step: int) -> ir.Value:
        """Where the last whole step from `first` that does not pass `last` ends."""
        steps = self.builder.sdiv(self.builder.sub(last, first), self.number(step))
        return self.mul_add(steps, step, first)

    def smaller(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The smaller of two integers."""
        return self.builder.select(self.builder.icmp_signed("<", a, b), a, b)

    def lanes_below(self, first: int, limit: ir.Value, lanes: int) -> ir.Value:
        """Which of first, first + 1, ... in a vector's lanes are below a 64-bit limit."""
        steps = ir.Constant(ir.VectorType(I32, lanes), list(range(first, first + lanes)))
        bound = self.splat(self.builder.trunc(limit, I32), lanes)
        return self.builder.icmp_signed("<", steps, bound)

    def splat(self, scalar: ir.Value, lanes: int) -> ir.Value:
        """A vector with the scalar in every lane; the scalar itself for one lane."""
        if lanes == 1:
            return scalar
        kind = ir.VectorType(scalar.type, lanes)
        one = self.builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(I32, 0))
        mask = ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
        return self.builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), mask)

    def intrinsic(self, name: str, *arguments: ir.Value, result: ir.Type | None = None) -> ir.Value:
        """Calls an LLVM intrinsic that is overloaded by the type of its last argument, which it returns if not told."""
        kind = arguments[-1].type
        signature = ir.FunctionType(result or kind, [each.type for each in arguments])
        return self.builder.call(_declared(self.module, f"{name}.{_suffix(kind)}", signature), arguments)

    def fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """a * b + c, rounded once."""
        return self.intrinsic("llvm.fma", a, b, c)

    def maximum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The larger of two numbers, lane by lane."""
        return self.intrinsic("llvm.maxnum", a, b)

    def prefetch(self, address: ir.Value) -> None:
        """Asks for the cache line at an address, which may lie anywhere, to be brought near."""
        name, flags = "llvm.prefetch.p0", (0, 2, 1)  # to read, into the second cache, data
        signature = ir.FunctionType(VOID, [PTR, I32, I32, I32])
        self.builder.call(_declared(self.module, name, signature), [address, *(ir.Constant(I32, f) for f in flags)])

    def sum_lanes(self, vector: ir.Value) -> ir.Value:
        """The sum of a vector's lanes, in any order."""
        function = _declared(
            self.module, f"llvm.vector.reduce.fadd.{_suffix(vector.type)}", ir.FunctionType(F32, [F32, vector.type])
        )
        return self.builder.call(function, [ir.Constant(F32, -0.0), vector], fastmath=["reassoc"])

    def max_lanes(self, vector: ir.Value) -> ir.Value:
        """The largest of a vector's lanes."""
        return self.intrinsic("llvm.vector.reduce.fmax", vector, result=F32)

    def constant(self, value: float, like: ir.Type) -> ir.Constant:
        """A float in every lane of the type."""
        return ir.Constant(like, [value] * like.count if isinstance(like, ir.VectorType) else value)

    def exp(self, x: ir.Value) -> ir.Value:
        """e to the x for x at most 0, within 2 units in the last place; below -87 it stays at exp(-87)."""
        kind, lanes = x.type, x.type.count if isinstance(x.type, ir.VectorType) else 1
        x = self.maximum(x, self.constant(_EXP_LOWEST, kind))
        power = self.intrinsic("llvm.roundeven", self.builder.fmul(x, self.constant(_LOG2_E, kind)))
        rest = self.fma(power, self.constant(-_LN2_HIGH, kind), x)
        rest = self.fma(power, self.constant(-_LN2_LOW, kind), rest)
        result = self.constant(_EXP_TAYLOR[0], kind)
        for coefficient in _EXP_TAYLOR[1:]:
            result = self.fma(result, rest, self.constant(coefficient, kind))
        whole = I32 if lanes == 1 else ir.VectorType(I32, lanes)
        shift = self.builder.shl(self.builder.fptosi(power, whole), self._integers(23, whole))
        bits = self.builder.add(self.builder.bitcast(result, whole), shift)
        return self.builder.bitcast(bits, kind)

    def _integers(self, value: int, like: ir.Type) -> ir.Constant:
        return ir.Constant(like, [value] * like.count if isinstance(like, ir.VectorType) else value)


class Call:
    """The buffers of one call of a kernel, read by the functions that call.ll defines."""

    def __init__(self, emitter: Emitter, frame: ir.Value) -> None:
        self._emitter = emitter
        self._frame = frame

    def argument(self, index: int) -> "Buffer":
        """An argument."""
        return self._buffer("argument", index)

    def result(self, index: int) -> "Buffer":
        """A result."""
        return self._buffer("result", index)

    def _buffer(self, table: str, index: int) -> "Buffer":
        function = _declared(self._emitter.module, table, ir.FunctionType(PTR, [PTR, I64]))
        place = self._emitter.builder.call(function, [self._frame, self._emitter.number(index)])
        return Buffer(self._emitter, place)


class Buffer:
    """An array that XLA passes."""

    def __init__(self, emitter: Emitter, place: ir.Value) -> None:
        self._emitter = emitter
        self._place = place

    @property
    def data(self) -> ir.Value:
        """The address of the first element."""
        function = _declared(self._emitter.module, "data", ir.FunctionType(PTR, [PTR]))
        return self._emitter.builder.call(function, [self._place])

    def dim(self, axis: int) -> ir.Value:
        """The length along an axis."""
        function = _declared(self._emitter.module, "dim", ir.FunctionType(I64, [PTR, I64]))
        return self._emitter.builder.call(function, [self._place, self._emitter.number(axis)])


def function(module: ir.Module, name: str, kind: ir.FunctionType) -> tuple[Emitter, list[ir.Value]]:
    """A new function: where to write it, and its arguments."""
    defined = ir.Function(module, kind, name)
    return Emitter(module, defined), list(defined.args)


def _declared(module: ir.Module, name: str, kind: ir.FunctionType) -> ir.Function:
    found = module.globals.get(name)
    return found if found is not None else ir.Function(module, kind, name)


def vector(lanes: int) -> ir.Type:
    """float32 in so many lanes."""
    return ir.VectorType(F32, lanes) if lanes > 1 else F32


def _alignment(kind: ir.Type) -> int:
    return 8 if kind in (I64, PTR) else 4


def _suffix(kind: ir.Type) -> str:
    return f"v{kind.count}f32" if isinstance(kind, ir.VectorType) else "f32"
