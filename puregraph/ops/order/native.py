"""Sort along an axis in native code: a radix sort of keys and indices, from the least significant byte.

Keys are unsigned integers in the order of the elements; nan is the last. Where less than all elements are wanted, those
whose first byte is too large are left out first. Few elements are sorted by counting how many precede each.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.opensize import sized
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import SIZES, IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.core.protocols import Strided

MIN_TASK_ELEMENTS = 1 << 12  # elements of a task, at least
MAX_COUNTED_ELEMENTS = 64  # elements that are sorted by counting
DIGIT_VALUES = 256


class LineStrides(NamedTuple):
    """Strides of x, values and indices: along the axis, and for each other axis, whose lengths are `sizes`."""

    along: tuple[int, int, int]
    sizes: tuple[int, ...]
    others: tuple[tuple[int, int, int], ...]


def stridesAlong(shape: Sequence[int], strides: Sequence[Sequence[int]], axis: int) -> LineStrides:
    """The strides of three arrays that differ along one axis alone."""
    x, values, indices = strides
    rest = [a for a in range(len(shape)) if a != axis and shape[a] > 1]
    sizes = tuple([shape[a] for a in rest])
    others = tuple([(x[a], values[a], indices[a]) for a in rest])
    return LineStrides((x[axis], values[axis], indices[axis]), sizes, others)


def sortAlong(
    x: Strided, values: Strided, indices: Strided, element: str, n: int, count: int, lines: LineStrides, isLargest: bool
) -> list[KernelCall]:
    """The `count` least or largest of n elements along lines, in order, and where they are."""
    amount = 1
    for size in lines.sizes:
        amount *= size
    share = max(1, MIN_TASK_ELEMENTS // n)
    room = max(MAX_COUNTED_ELEMENTS, 1 << (n - 1).bit_length())
    slots: dict[str, Any] = {"x": x, "values": values, "indices": indices, "n": n, "count": count}
    slots |= {"lines": amount, "share": share}
    slots |= dict(zip(("xStep", "valueStep", "indexStep"), lines.along))
    for i, (size, steps) in enumerate(zip(lines.sizes, lines.others)):
        slots |= {f"size{i}": size} | {f"{name}{i}": step for name, step in zip(("x", "value", "index"), steps)}
    form = SortForm(element, isLargest, len(lines.sizes), room)
    key = f"{form} {jit.lanes(SIZES[element])}"
    return [KernelCall(sized("sort {}x{}", amount, n), key, partial(writeSort, form), slots, -(-amount // share))]


class SortForm(NamedTuple):
    """The parameters of the kernel's code; scratch memory has space for `room` elements of a line."""

    element: str
    isLargest: bool
    axes: int
    room: int


def writeSort(form: SortForm, code: IRBuilder) -> None:
    """Each task has `share` lines."""
    pointers = [code.pointer(n, k) for n, k in zip(("x", "values", "indices"), (form.element, form.element, "i64"))]
    n, count, lines, share = (code.integer(name) for name in ("n", "count", "lines", "share"))
    along = [code.integer(name) for name in ("xStep", "valueStep", "indexStep")]
    axes = [
        (code.integer(f"size{i}"), [code.integer(f"{name}{i}") for name in ("x", "value", "index")])
        for i in range(form.axes)
    ]
    sort = SortCode(code, form, n, count)
    start = code.task * share
    with code.loop(start, code.min(start + share, lines), unroll=1) as line:
        rest, starts = line, pointers
        for size, steps in reversed(axes):
            starts = [pointer.at(rest % size * step) for pointer, step in zip(starts, steps)]
            rest = rest // size
        sort.line(starts, along)


class SortCode:
    """Writes the sort of one line in scratch memory: two buffers of keys and indices, and counts of bytes."""

    def __init__(self, code: IRBuilder, form: SortForm, n: IRValue, count: IRValue):
        self.code, self.form, self.n, self.count = code, form, n, count
        self.kind = {"f32": "i32", "f64": "i64"}.get(form.element, form.element)
        self.bits = 8 * SIZES[self.kind]
        self.keys = code.scratch(self.kind, 2 * form.room)
        self.order = code.scratch("i32", 2 * form.room)
        self.counts = code.scratch("i64", DIGIT_VALUES * (self.bits // 8))
        self.left = code.variable(code.i64(0))
        self.side = code.variable(code.i64(0))  # where the current buffer begins
        self.total = code.variable(code.i64(0))

    def line(self, starts: list[IRPointer], along: list[IRValue]) -> None:
        """Make keys, leave out those that are not wanted, sort, and write."""
        code, (x, values, indices) = self.code, starts
        with code.loop(0, self.n, unroll=1) as i:
            self.keys.store(i, self.keyOf(x.load(i * along[0])))
            self.order.store(i, code.convert(i, "i32"))
        self.left.value = self.n
        self.side.value = 0
        with code.when((self.count < self.n) & (self.n > MAX_COUNTED_ELEMENTS)):
            self.leaveOut()
        left = self.left.value

        def put(rank: IRValue, index: IRValue) -> None:
            values.store(rank * along[1], x.load(index * along[0]))
            indices.store(rank * along[2], index)

        with code.when(left <= MAX_COUNTED_ELEMENTS):
            self.byCounting(left, put)
        with code.when(left > MAX_COUNTED_ELEMENTS):
            self.byBytes(left)
            with code.loop(0, self.count, unroll=1) as rank:
                put(rank, code.convert(self.order.load(self.side.value + rank), "i64"))

    def keyOf(self, element: IRValue) -> IRValue:
        """The key: unsigned, in the order of the elements; +0 and -0 are equal, and all nan."""
        code, first = self.code, -(1 << self.bits - 1)
        if not element.type.isFloat:
            key = element ^ first
        else:
            bits = code.bitcast(element + 0.0, self.kind)  # -0 + 0 is 0
            key = code.select(bits < 0, ~bits, bits ^ first)
            key = code.select(element == element, key, code.constant(-1, IRType(self.kind)))
        return ~key if self.form.isLargest else key

    def digit(self, key: IRValue, shift: int) -> IRValue:
        """A byte of a key, as an index of its counts."""
        byte = self.code.convert((key >> shift) & (DIGIT_VALUES - 1), "i64")
        return byte + DIGIT_VALUES * (shift // 8)

    def clear(self, shift: int) -> None:
        """No counts of a byte."""
        lanes = jit.lanes(8)
        zero = self.code.constant(0, IRType("i64", lanes))
        first = DIGIT_VALUES * (shift // 8)
        with self.code.loop(first, first + DIGIT_VALUES, lanes) as i:
            self.counts.store(i, zero)

    def tally(self, key: IRValue, shift: int) -> None:
        """One more key with this byte."""
        at = self.digit(key, shift)
        self.counts.store(at, self.counts.load(at) + 1)

    def leaveOut(self) -> None:
        """Keep the elements whose first byte is at most that of the last one wanted; their order stays."""
        code, shift = self.code, self.bits - 8
        first = DIGIT_VALUES * (shift // 8)
        limit = code.variable(code.i64(0))
        self.clear(shift)
        with code.loop(0, self.n, unroll=1) as i:
            self.tally(self.keys.load(i), shift)
        self.total.value = 0
        with code.loop(first, first + DIGIT_VALUES, unroll=1) as byte:
            limit.value = code.select(self.total.value < self.count, byte, limit.value)
            self.total.value = self.total.value + self.counts.load(byte)
        self.left.value = 0
        last = limit.value
        with code.loop(0, self.n, unroll=1) as i:
            key, to = self.keys.load(i), self.left.value
            self.keys.store(to, key)
            self.order.store(to, code.convert(i, "i32"))
            self.left.value = to + code.select(self.digit(key, shift) <= last, code.i64(1), code.i64(0))

    def byCounting(self, left: IRValue, put: Any) -> None:
        """The rank of each is the number of keys below it, and of equal ones before it."""
        code = self.code
        lanes = min(8, jit.lanes(SIZES[self.kind]))
        of, first = IRType(self.kind, lanes), -(1 << self.bits - 1)
        with code.loop(0, left, unroll=1) as i:
            mine = code.splat(self.keys.load(i) ^ first, lanes)  # compared as signed
            before = code.variable(code.constant(0, of))
            with code.loop(0, left, lanes) as j:
                others = self.keys.load(j, lanes) ^ code.constant(first, of)
                isBefore = (others < mine) | (others == mine) & code.mask(i - j, lanes)
                counts = code.select(isBefore & code.mask(left - j, lanes), code.constant(1, of), code.constant(0, of))
                before.value = before.value + counts
            rank = code.convert(code.sumLanes(before.value), "i64")
            with code.when(rank < self.count):
                put(rank, code.convert(self.order.load(i), "i64"))

    def byBytes(self, left: IRValue) -> None:
        """Stable passes over all bytes; one that is the same in all keys needs none."""
        code = self.code
        for shift in range(0, self.bits, 8):
            self.clear(shift)
        with code.loop(0, left, unroll=1) as i:
            for shift in range(0, self.bits, 8):
                self.tally(self.keys.load(i), shift)
        for shift in range(0, self.bits, 8):
            same = self.counts.load(self.digit(self.keys.load(self.side.value), shift))
            with code.when(same < left):
                self.onePass(left, shift)

    def onePass(self, left: IRValue, shift: int) -> None:
        """From the current buffer to the other, in the order of one byte."""
        code, first = self.code, DIGIT_VALUES * (shift // 8)
        self.total.value = 0
        with code.loop(first, first + DIGIT_VALUES, unroll=1) as byte:
            amount, before = self.counts.load(byte), self.total.value
            self.counts.store(byte, before)
            self.total.value = before + amount
        side = self.side.value
        other = code.i64(self.form.room) - side
        keys, order, toKeys, toOrder = (p.at(s) for s in (side, other) for p in (self.keys, self.order))
        with code.loop(0, left, unroll=1) as i:
            key = keys.load(i)
            at = self.digit(key, shift)
            to = self.counts.load(at)
            self.counts.store(at, to + 1)
            toKeys.store(to, key)
            toOrder.store(to, order.load(i))
        self.side.value = other
