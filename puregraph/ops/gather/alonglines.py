"""Reading and writing along an axis in native code: the implementations of `gather.alongaxis`.

Elements of the inner axis are neighbours in memory, in all arrays but the index. Where they share an index, as rows of
a table do, they are moved as vectors. An index out of range sets the flag `fault`; nothing is read or written for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.opensize import sized
from puregraph.ops.gather.native import overVectors
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import SIZES, IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.native.math.emit import larger, smaller

if TYPE_CHECKING:
    from puregraph.core.protocols import Strided

READ_TASK_ELEMENTS = 1 << 12  # elements that a task reads
MIN_TASKS = 8  # tasks of a write of rows that share an index, at least, if there are as many elements
TASK_COLUMNS = 64  # elements of the inner axis that such a task writes, if it is split
SCATTERED_TASK_ELEMENTS = (
    16  # elements of the inner axis that a task moves if each has an index: a cache line of each row of x
)
ROLES = ("source", "index", "other")


class AxisSteps(NamedTuple):
    """Steps of three arrays (x, the index, and the updates or the result) along the axis and the others, in elements.

    `indices` is their number along the axis; `outer` has (size, steps) of the other axes. If there is an inner axis of
    `inner` elements, its steps are the last of those, with the size 1; `isShared`: its elements share an index.
    """

    indices: int
    along: tuple[int, ...]
    outer: tuple[tuple[int, tuple[int, ...]], ...]
    inner: int
    isShared: bool

    @property
    def lines(self) -> int:
        """The number of lines along the axis: the product of the sizes of the outer axes."""
        amount = 1
        for size, _ in self.outer:
            amount *= size
        return amount


def stepsOf(shape: Sequence[int], steps: Sequence[Sequence[int]], axis: int) -> AxisSteps:
    """The steps of three arrays that differ along one axis alone; other axes are merged where all three allow it."""
    axes = [(n, tuple([s[a] for s in steps])) for a, n in enumerate(shape) if a != axis and n > 1]
    merged: list[tuple[int, tuple[int, ...]]] = []
    for n, inner in sorted(axes, key=lambda one: [-abs(s) for s in one[1]]):
        if merged and merged[-1][1] == tuple([n * s for s in inner]):
            merged[-1] = (merged[-1][0] * n, inner)
        else:
            merged.append((n, inner))
    wide = next((one for one in merged if one[1][0] == one[1][2] == 1), None)
    outer, along = [one for one in merged if one is not wide], tuple([s[axis] for s in steps])
    if wide is None:
        return AxisSteps(shape[axis], along, tuple(outer), 1, False)
    size, inner = wide
    return AxisSteps(shape[axis], along, (*outer, (1, inner)), size, inner[1] == 0)


class AlongForm(NamedTuple):
    """The parameters of the kernels' code; `isUnit`: elements of a line and their indices are neighbours in memory."""

    kind: str
    element: str
    axes: int
    isWide: bool
    isShared: bool
    isUnit: bool


def slotsOf(steps: AxisSteps, arrays: Sequence[Any], n: int, fault: Any) -> dict[str, Any]:
    """The slots that both kernels have."""
    slots: dict[str, Any] = dict(zip(ROLES, arrays)) | {"n": n, "fault": fault, "count": steps.indices}
    slots |= {f"{role}Step": s for role, s in zip(ROLES, steps.along)} | {"inner": steps.inner}
    for a, (size, axisSteps) in enumerate(steps.outer):
        slots |= {f"size{a}": size} | {f"{role}{a}": s for role, s in zip(ROLES, axisSteps)}
    return slots


def takeAlong(
    x: Strided, index: Strided, y: Strided, element: str, n: int, steps: AxisSteps, fault: Any
) -> list[KernelCall]:
    """y[i] = x[index[i]] along each line of an axis of n elements."""
    columns = steps.inner if steps.isShared else min(SCATTERED_TASK_ELEMENTS, steps.inner)
    wide = -(-steps.inner // columns)
    block = max(1, min(steps.indices, READ_TASK_ELEMENTS // columns)) if steps.isShared or wide == 1 else steps.indices
    blocks = -(-steps.indices // block)
    share = max(1, READ_TASK_ELEMENTS // (block * columns))
    units = steps.lines * blocks * wide
    slots = slotsOf(steps, (x, index, y), n, fault) | {"block": block, "units": units, "share": share}
    slots |= {"columns": columns, "wide": wide}
    isUnit = steps.inner == 1 and steps.along[1:] == (1, 1) and element in ("f32", "f64")
    form = AlongForm("take", element, len(steps.outer), steps.inner > 1, steps.isShared, isUnit)
    return [
        KernelCall(
            sized("takeAlong {}x{}", units, block), keyOf(form), partial(writeTake, form), slots, -(-units // share)
        )
    ]


def putAlong(
    y: Strided, index: Strided, updates: Strided, kind: str, element: str, n: int, steps: AxisSteps, fault: Any
) -> list[KernelCall]:
    """y[index[i]] becomes updates[i], or joined with it, in order, along each line of an axis of n elements.

    Tasks divide the lines, then the inner axis, then the elements of the axis: each one joins its updates in order.
    """
    lines, wide = steps.lines, 1
    if not steps.isShared:
        wide = -(-steps.inner // SCATTERED_TASK_ELEMENTS)
    elif lines < MIN_TASKS and steps.inner >= 2 * TASK_COLUMNS:
        wide = min(-(-MIN_TASKS // lines), -(-steps.inner // TASK_COLUMNS))
    columns = -(-steps.inner // wide)
    parts = 1 if not steps.isShared or lines * wide >= MIN_TASKS // 2 else min(MIN_TASKS // (lines * wide), n)
    share = max(1, READ_TASK_ELEMENTS // (steps.indices * columns)) if parts == wide == 1 else 1
    units = lines * wide * parts
    slots = slotsOf(steps, (y, index, updates), n, fault) | {"columns": columns, "wide": wide}
    slots |= {"part": -(-n // parts), "parts": parts, "units": units, "share": share}
    form = AlongForm(kind, element, len(steps.outer), steps.inner > 1, steps.isShared, False)
    return [
        KernelCall(
            f"putAlong {kind} {lines}x{steps.indices}", keyOf(form), partial(writePut, form), slots, -(-units // share)
        )
    ]


def keyOf(form: AlongForm) -> str:
    """The parameters of the code."""
    return f"{form} {jit.lanes(SIZES[form.element])}"


class AlongCode:
    """Reads the slots that both kernels have, and writes the loops over the lines of a task."""

    def __init__(self, code: IRBuilder, form: AlongForm):
        self.code, self.form = code, form
        kinds = (form.element, "i64", form.element)
        self.pointers = [code.pointer(role, kind) for role, kind in zip(ROLES, kinds)]
        self.fault = code.pointer("fault", "i64")
        self.n, self.count, self.inner = code.integer("n"), code.integer("count"), code.integer("inner")
        self.steps = [code.integer(f"{role}Step") for role in ROLES]
        self.outer = [
            (code.integer(f"size{a}"), [code.integer(f"{role}{a}") for role in ROLES]) for a in range(form.axes)
        ]
        self.units, self.share = code.integer("units"), code.integer("share")
        self.wrong = code.variable(code.i64(0))
        self.lanes = jit.lanes(SIZES[form.element])

    def overUnits(self, body: Callable[[IRValue], None]) -> None:
        """The units of this task; then the flag, if an index was out of range."""
        code, start = self.code, self.code.task * self.share
        with code.loop(start, code.min(start + self.share, self.units), unroll=1) as unit:
            body(unit)
        with code.when(self.wrong.value != 0):
            self.fault.store(0, code.i64(1))

    def lineAt(self, line: IRValue) -> list[IRPointer]:
        """Where a line begins in each array; the inner axis, if there is one, is the last of the outer ones."""
        starts = self.pointers
        axes = self.outer[:-1] if self.form.isWide else self.outer
        for i, (size, steps) in enumerate(reversed(axes)):
            position = line if i == len(axes) - 1 else line % size
            starts = [start.at(position * step) for start, step in zip(starts, steps)]
            line = line // size if i < len(axes) - 1 else line
        return starts

    def wrapped(self, index: IRPointer, i: IRValue) -> tuple[IRValue, IRValue]:
        """The element of the axis that an index names, and whether it is one; if not, the element is 0."""
        code = self.code
        at = index.load(i)
        at = code.select(at < 0, at + self.n, at)
        isThere = (at >= 0) & (at < self.n)
        self.wrong.value = code.select(isThere, self.wrong.value, code.i64(1))
        return code.select(isThere, at, code.i64(0)), isThere

    def together(self, x: IRPointer, index: IRPointer, y: IRPointer, count: IRValue) -> None:
        """Read elements of a line whose indices, and results, are neighbours in memory: several at a time."""
        code, lanes = self.code, jit.lanes(SIZES["i64"])
        zero, n = code.constant(0, IRType("i64", lanes)), code.splat(self.n, lanes)
        wrong = code.variable(zero)

        def body(i: IRValue, mask: IRValue | None) -> None:
            at = index.load(i, lanes, mask)
            at = code.select(at < zero, at + n, at)
            isThere = (at >= zero) & (at < n)
            wrong.value = code.select(isThere, wrong.value, code.constant(1, IRType("i64", lanes)))
            source = code.select(isThere, at, zero) * code.splat(self.steps[0], lanes)
            y.store(i, x.gather(source, mask), mask)

        overVectors(code, count, lanes, body)
        self.wrong.value = self.wrong.value + code.sumLanes(wrong.value)

    def columns(self, first: Any, count: Any, body: Callable[[IRValue], None]) -> None:
        """The elements of the inner axis, each with an index of its own."""
        with self.code.loop(first, first + count, unroll=1) as c:
            body(c)


def writeTake(form: AlongForm, code: IRBuilder) -> None:
    """Each task has `share` blocks of indices."""
    along = AlongCode(code, form)
    block, columns, wide = (code.integer(name) for name in ("block", "columns", "wide"))
    blocks = (along.count + block - 1) // block
    (xStep, indexStep, yStep), inner = along.steps, along.inner

    def unit(number: IRValue) -> None:
        x, index, y = along.lineAt(number // wide // blocks)
        first, column = number // wide % blocks * block, number % wide * columns
        stop = code.min(first + block, along.count)
        if form.isUnit:
            along.together(x, index.at(first), y.at(first), stop - first)
            return
        with code.loop(first, stop, unroll=1) as i:
            if form.isShared:
                at, _ = along.wrapped(index, i * indexStep)
                source, target = x.at(at * xStep), y.at(i * yStep)
                overVectors(
                    code, inner, along.lanes, lambda c, mask: target.store(c, source.load(c, along.lanes, mask), mask)
                )
            elif form.isWide:
                step, rows, to = along.outer[-1][1][1], index.at(i * indexStep), y.at(i * yStep)

                def one(c: IRValue) -> None:
                    at, _ = along.wrapped(rows, c * step)
                    to.store(c, x.load(at * xStep + c))

                along.columns(column, code.min(columns, inner - column), one)
            else:
                at, _ = along.wrapped(index, i * indexStep)
                y.store(i * yStep, x.load(at * xStep))

    along.overUnits(unit)


JOINS: dict[str, Callable[[IRBuilder, IRValue, IRValue], IRValue]] = {
    "set": lambda code, old, new: new,
    "add": lambda code, old, new: old + new,
    "multiply": lambda code, old, new: old * new,
    "minimum": lambda code, old, new: (
        smaller(code, old, new) if new.type.isFloat else code.select(old <= new, old, new)
    ),
    "maximum": lambda code, old, new: larger(code, old, new) if new.type.isFloat else code.select(old >= new, old, new),
}


def writePut(form: AlongForm, code: IRBuilder) -> None:
    """Each task owns lines, columns of the inner axis, and elements of the axis, and loops over all indices."""
    along = AlongCode(code, form)
    columns, wide, part, parts = (code.integer(name) for name in ("columns", "wide", "part", "parts"))
    yStep, indexStep, updateStep = along.steps

    def joined(to: IRPointer, updates: IRPointer, c: Any, lanes: int = 1, mask: IRValue | None = None) -> None:
        new = updates.load(c, lanes, mask)
        old = new if form.kind == "set" else to.load(c, lanes, mask)
        to.store(c, JOINS[form.kind](code, old, new), mask)

    def unit(number: IRValue) -> None:
        low = number % parts * part
        high = code.min(low + part, along.n)
        rest = number // parts
        first = rest % wide * columns
        live = code.min(columns, along.inner - first)
        y, index, updates = along.lineAt(rest // wide)

        def put(at: IRValue, isThere: IRValue, body: Callable[[], None]) -> None:
            with code.when(isThere & (at >= low) & (at < high)):
                body()

        with code.loop(0, along.count, unroll=1) as i:
            source = updates.at(i * updateStep)
            if form.isShared:
                at, isThere = along.wrapped(index, i * indexStep)
                to, new = y.at(at * yStep + first), source.at(first)
                body = partial(joined, to, new)
                put(at, isThere, lambda: overVectors(code, live, along.lanes, lambda c, m: body(c, along.lanes, m)))
            elif form.isWide:
                step, rows = along.outer[-1][1][1], index.at(i * indexStep)

                def one(c: IRValue) -> None:
                    at, isThere = along.wrapped(rows, c * step)
                    put(at, isThere, lambda: joined(y.at(at * yStep), source, c))

                along.columns(first, live, one)
            else:
                at, isThere = along.wrapped(index, i * indexStep)
                put(at, isThere, lambda: joined(y.at(at * yStep), source, 0))

    along.overUnits(unit)


def wrapIndex(index: Strided, step: int, y: Strided, count: int, n: int, fault: Any) -> list[KernelCall]:
    """y[i] = index[i], with negative ones counted from the end of an axis of n elements."""
    slots = {"index": index, "step": step, "y": y, "count": count, "n": n, "fault": fault, "share": READ_TASK_ELEMENTS}
    return [KernelCall(sized("wrapIndex {}", count), "", writeWrap, slots, -(-count // READ_TASK_ELEMENTS))]


def writeWrap(code: IRBuilder) -> None:
    """Each task has `share` indices."""
    index, y, fault = (code.pointer(name, "i64") for name in ("index", "y", "fault"))
    step, count, n, share = (code.integer(name) for name in ("step", "count", "n", "share"))
    start = code.task * share
    with code.loop(start, code.min(start + share, count), unroll=1) as i:
        at = index.load(i * step)
        with code.when((at < -n) | (at >= n)):
            fault.store(0, code.i64(1))
        y.store(i, code.select(at < 0, at + n, at))
