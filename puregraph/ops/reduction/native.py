"""Cumulate in native code: elements are combined in the order of the axis, many lines at once.

A line is all elements along the axis. Lines that are neighbours in memory fill vectors; of others,
STRIDED_LINES are taken at a time, each with a chain of its own, which hides how long an addition takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import SIZES, IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.native.math import explog
from puregraph.ops.native.math.emit import larger

if TYPE_CHECKING:
    from puregraph.core.protocols import Strided

MIN_TASK_ELEMENTS = 1 << 14  # elements of a task, at least
STRIDED_LINES = 8  # lines processed at a time if they are not adjacent in memory
GROUPS = {"logSumExp": 4}  # groups of STRIDED_LINES processed at a time, for slow operations
MAX_ADJACENT_VECTORS = 4  # most vectors of adjacent lines processed at a time


class AxisLines(NamedTuple):
    """Lines of x and y: their length, and for each of the other axes its length and its steps in x and y.

    `first` and `step` are those of x and y along a line. The last axis is the one along which lines are taken together.
    """

    n: int
    first: tuple[int, int]
    step: tuple[int, int]
    axes: tuple[tuple[int, int, int], ...]

    @property
    def isWide(self) -> bool:
        """True if lines taken together are neighbours in memory."""
        return self.axes[-1][1:] == (1, 1)


def linesOf(shape: Sequence[int], xSteps: Sequence[int], ySteps: Sequence[int], axis: int, reverse: bool) -> AxisLines:
    """The lines of arrays along an axis; other axes are merged where both arrays allow it."""
    others = [(m, s, t) for i, (m, s, t) in enumerate(zip(shape, xSteps, ySteps)) if i != axis and m > 1]
    merged: list[tuple[int, int, int]] = []
    for m, s, t in sorted(others, key=lambda other: -abs(other[2])):
        if merged and merged[-1][1:] == (m * s, m * t):
            merged[-1] = (merged[-1][0] * m, s, t)
        else:
            merged.append((m, s, t))
    merged.sort(key=lambda other: (other[1:] == (1, 1) and other[0] >= STRIDED_LINES // 2, other[0]))
    n, ends = shape[axis], (xSteps[axis], ySteps[axis])
    sign, start = (-1, n - 1) if reverse else (1, 0)
    first, step = [(ends[0] * k, ends[1] * k) for k in (start, sign)]
    return AxisLines(n, first, step, tuple(merged) or ((1, 0, 0),))


def cumulate(x: Strided, y: Strided, kind: str, element: str, lines: AxisLines, isExclusive: bool) -> list[KernelCall]:
    """y[i] of x[0] ... x[i] along each line, or of x[0] ... x[i - 1]; `element` is the type of elements."""
    *outer, (count, _, _) = lines.axes
    across = jit.lanes(SIZES[element])
    vectors = 1
    while lines.isWide and vectors < MAX_ADJACENT_VECTORS and count > vectors * across:
        vectors *= 2
    width = vectors * across if lines.isWide else STRIDED_LINES * GROUPS.get(kind, 1)
    units = -(-count // width)
    for m, _, _ in outer:
        units *= m
    share = max(1, MIN_TASK_ELEMENTS // (width * lines.n))
    slots: dict[str, Any] = {"x": x, "y": y, "n": lines.n, "count": count, "units": units, "share": share}
    slots |= {"xFirst": lines.first[0], "yFirst": lines.first[1], "xStep": lines.step[0], "yStep": lines.step[1]}
    for i, (m, s, t) in enumerate(lines.axes):
        slots |= {f"size{i}": m, f"xAxis{i}": s, f"yAxis{i}": t}
    form = Form(kind, element, isExclusive, len(lines.axes), vectors * across if lines.isWide else 0)
    name = f"cumulate {kind} {units}x{lines.n}"
    return [KernelCall(name, f"{form} {across}", partial(writeCumulate, form), slots, -(-units // share))]


class Form(NamedTuple):
    """The parameters of the kernel's code; `width` lines that are adjacent in memory are processed at a time, or 0."""

    kind: str
    element: str
    isExclusive: bool
    axes: int
    width: int


def writeCumulate(form: Form, code: IRBuilder) -> None:
    """Each task has `share` groups of lines."""
    x, y = code.pointer("x", form.element), code.pointer("y", form.element)
    count, units, share = (code.integer(name) for name in ("count", "units", "share"))
    x, y = x.at(code.integer("xFirst")), y.at(code.integer("yFirst"))
    sizes = [code.integer(f"size{i}") for i in range(form.axes)]
    steps = [(code.integer(f"xAxis{i}"), code.integer(f"yAxis{i}")) for i in range(form.axes)]
    scan = CumulateCode(code, form, code.integer("n"), code.integer("xStep"), code.integer("yStep"))
    width = form.width or STRIDED_LINES * GROUPS.get(form.kind, 1)
    groups = (count + (width - 1)) // width
    start = code.task * share
    with code.loop(start, code.min(start + share, units), unroll=1) as unit:
        rest, line = unit // groups, unit % groups * width
        source, target = x, y
        for size, (xAxis, yAxis) in zip(reversed(sizes[:-1]), reversed(steps[:-1])):
            source, target = source.at(rest % size * xAxis), target.at(rest % size * yAxis)
            rest = rest // size
        left = count - line
        xAxis, yAxis = steps[-1]
        source, target = source.at(line * xAxis), target.at(line * yAxis)
        with code.when(left >= width):
            scan.together(source, target, xAxis, yAxis)
        with code.when(left < width):
            scan.fewer(source, target, xAxis, yAxis, left)


class CumulateCode:
    """Writes the loop along some lines."""

    def __init__(self, code: IRBuilder, form: Form, n: IRValue, xStep: IRValue, yStep: IRValue):
        self.code, self.form, self.n, self.xStep, self.yStep = code, form, n, xStep, yStep
        self.across = jit.lanes(SIZES[form.element])

    def together(self, x: IRPointer, y: IRPointer, xAxis: IRValue, yAxis: IRValue) -> None:
        """As many lines as are taken at a time."""
        if self.form.width:
            starts = range(0, self.form.width, self.across)
            self.run([(x.at(i), y.at(i)) for i in starts], self.across)
        elif self.form.kind in GROUPS:
            self.apart(x, y, xAxis, yAxis, GROUPS[self.form.kind])
        else:
            self.run([(x.at(xAxis * i), y.at(yAxis * i)) for i in range(STRIDED_LINES)])

    def fewer(self, x: IRPointer, y: IRPointer, xAxis: IRValue, yAxis: IRValue, left: IRValue) -> None:
        """The lines that are left: vectors with a mask, or line by line."""
        if self.form.width:
            starts = range(0, self.form.width, self.across)
            masks = [self.code.mask(left - i, self.across) for i in starts]
            self.run([(x.at(i), y.at(i)) for i in starts], self.across, masks)
            return
        done = self.code.i64(0)
        if self.form.kind in GROUPS:
            done = left - left % STRIDED_LINES
            with self.code.loop(0, done, STRIDED_LINES, unroll=1) as i:
                self.apart(x.at(xAxis * i), y.at(yAxis * i), xAxis, yAxis, 1)
        with self.code.loop(done, left, unroll=1) as i:
            self.run([(x.at(xAxis * i), y.at(yAxis * i))])

    def apart(self, x: IRPointer, y: IRPointer, xAxis: IRValue, yAxis: IRValue, groups: int) -> None:
        """Groups of lines that are not adjacent, each read and written as one vector."""
        starts = [(x.at(xAxis * i), y.at(yAxis * i)) for i in range(0, groups * STRIDED_LINES, STRIDED_LINES)]
        self.run([(LinesApart(source, xAxis), LinesApart(target, yAxis)) for source, target in starts], STRIDED_LINES)

    def run(self, pairs: Sequence[tuple[Any, Any]], lanes: int = 1, masks: Sequence[Any] = ()) -> None:
        """The loop along lines: their elements are read, combined, and written."""
        code, of = self.code, IRType(self.form.element, lanes)
        masks = masks or [None] * len(pairs)
        totals = [TOTALS[self.form.kind](code, of, self.form.isExclusive) for _ in pairs]
        with code.loop(0, self.n, unroll=1) as i:
            for (x, y), mask, total in zip(pairs, masks, totals):
                element = x.load(i * self.xStep, lanes, mask)
                if self.form.isExclusive:
                    y.store(i * self.yStep, total.value, mask)
                    total.take(element)
                else:
                    total.take(element)
                    y.store(i * self.yStep, total.value, mask)


class LinesApart:
    """Lines that are no neighbours, read and written as one vector."""

    def __init__(self, start: IRPointer, axis: IRValue):
        self.code, self.starts = start.code, [start.at(axis * i) for i in range(STRIDED_LINES)]

    def load(self, index: IRValue, lanes: int, mask: None) -> IRValue:
        """An element of each line."""
        elements = self.code.constant(0, IRType(self.starts[0].kind, lanes))
        for i, start in enumerate(self.starts):
            elements = self.code.insert(elements, start.load(index), i)
        return elements

    def store(self, index: IRValue, elements: IRValue, mask: None) -> None:
        """An element of each line."""
        for i, start in enumerate(self.starts):
            start.store(index, self.code.extract(elements, i))


class Total:
    """The running result of a line, an accumulator that starts with `first`."""

    def __init__(self, code: IRBuilder, of: IRType, isExclusive: bool, first: float = 0, join: Any = None):
        self.code, self.join = code, join
        self.total = code.variable(code.constant(first, of))

    @property
    def value(self) -> IRValue:
        return self.total.value

    def take(self, element: IRValue) -> None:
        """One more element."""
        self.total.value = self.join(self.total.value, element)


class LogTotal:
    """ln sum exp: the largest element, and the sum of the others' exponentials relative to it."""

    def __init__(self, code: IRBuilder, of: IRType, isExclusive: bool):
        self.code = code
        self.peak = code.variable(code.constant(float("-inf"), of))
        self.sum = code.variable(code.constant(0.0, of))

    @property
    def value(self) -> IRValue:
        return self.peak.value + explog.log(self.code, self.sum.value)

    def take(self, element: IRValue) -> None:
        """One more element; the difference of equal infinities is 0."""
        code, peak = self.code, self.peak.value
        isMore = element > peak
        change = code.select(element == peak, 0.0, code.select(isMore, peak - element, element - peak))
        factor = explog.exp(code, change)
        most = code.select(isMore, element, peak)
        self.sum.value = code.select(isMore, self.sum.value * factor + 1.0, self.sum.value + factor)
        self.peak.value = most


def summed(code: IRBuilder, of: IRType, isExclusive: bool) -> Total:
    """A sum; of floats one begins with -0, which keeps the sign of a first zero."""
    return Total(code, of, isExclusive, -0.0 if of.isFloat and not isExclusive else 0, lambda a, b: a + b)


def multiplied(code: IRBuilder, of: IRType, isExclusive: bool) -> Total:
    """A product."""
    return Total(code, of, isExclusive, 1, lambda a, b: a * b)


def largest(code: IRBuilder, of: IRType, isExclusive: bool) -> Total:
    """The largest element, nan if there is one."""
    if of.isFloat:
        return Total(code, of, isExclusive, float("-inf"), lambda a, b: larger(code, a, b))
    least = -(1 << 8 * SIZES[of.kind] - 1)
    return Total(code, of, isExclusive, least, lambda a, b: code.select(a >= b, a, b))


TOTALS: dict[str, Callable[[IRBuilder, IRType, bool], Any]] = {
    "sum": summed,
    "product": multiplied,
    "maximum": largest,
    "logSumExp": LogTotal,
}
