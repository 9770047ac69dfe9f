"""Loop body: the calls of one run of a loop, recorded once for all runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.compile.report.flops import flopsOf
from puregraph.compile.trace.abstract import reads
from puregraph.compile.trace.recorder import RecordedArray, Recorder, UnreadableError
from puregraph.ops.ir.value import ARRAYS, LEAVES, Call, Value, changed, comparable, copy
from puregraph.ops.operation import ArrayOp
from puregraph.ops.recurrent.repeatbody import repeatBody

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


class LoopBody(ArrayOp):
    """The function of the one call that a loop is: carried values, slices, shared values -> states, sums, rows.

    See `repeatBody`.

    `calls`     the calls of one run, on `formals`: a Value for each operand, and one for each sum before the run
    `results`   the Values that a run computes: the next carried values, the next sums, and the rows
    `carried`, `sliced`  the numbers of carried values and of slices; shared values follow them
    `sums`      the number of sums
    `products`  for each sum asked for, the product of rows that it is after the loop, or None for one within it
    `extra`     the number of rows that only those products read
    """

    def __init__(self, carried: int, sliced: int, count: int, isReversed: bool):
        super().__init__("repeat")
        self.carried, self.sliced, self.count, self.isReversed = carried, sliced, count, isReversed
        self.calls: list[Call] = []
        self.formals: list[Value] = []
        self.results: list[Value] = []
        self.products: list[RowProduct | None] = []
        self.sums = self.extra = 0
        self.declarations = {**repeatBody.declarations, "flops": self.flops}
        self.__name__ = f"repeat {count} times"

    @property
    def oldSums(self) -> list[Value]:
        """The sums before a run."""
        return self.formals[len(self.formals) - self.sums :]

    def flops(self, *call: object) -> int:
        """The operations of all runs."""
        return self.count * sum(map(flopsOf, self.calls))

    def __call__(self, *operands: AnyArray) -> tuple[AnyArray, ...]:
        """All runs in numpy, in the precision of the operands."""
        from puregraph.compile.runtime.bind import bound

        states = [[c] for c in operands[: self.carried]]
        end = self.carried + self.sliced
        sums: list[Any] = [np.zeros(v.shape, v.dtype) for v in self.oldSums]
        rows: list[list[AnyArray]] = []
        for t in reversed(range(self.count)) if self.isReversed else range(self.count):
            sliced = [x[t] for x in operands[self.carried : end]]
            values = [*(state[-1] for state in states), *sliced, *operands[end:], *sums]
            run = dict(zip([v.number for v in self.formals], values))

            def array(v: Value, run: dict[int, AnyArray] = run) -> AnyArray:
                if v.number not in run:
                    run[v.number] = v.source if v.role in ARRAYS else viewOf(v, array)
                return run[v.number]

            for call in self.calls:
                if not call.kind.isView:
                    run.update((y.number, np.empty(y.shape, y.dtype)) for y in call.outs if y is not None)
                    for step in bound(call, array, None):
                        step.function(*step.arguments, **step.options)
            new = list(map(array, self.results))
            for state, c in zip(states, new):
                state.append(c)
            sums = new[self.carried : self.carried + self.sums]
            rows.append(new[self.carried + self.sums :])
        rows = rows[::-1] if self.isReversed else rows
        return (*map(np.stack, states), *sums, *map(np.stack, zip(*rows)))


def viewOf(v: Value, array: Callable[[Value], AnyArray]) -> AnyArray:
    """The array of a view."""
    call: Any = v.call
    arguments = [changed(a, array) for a in call.arguments]
    return call.function(*arguments, **{k: changed(a, array) for k, a in call.options.items()})


@reads(repeatBody, makes=("other",))
def readLoop(recorder: Recorder, function: object, arguments: list, options: dict[str, Any]) -> list[Value]:
    """A loop as one call, and after it the products that it sums. Loops of one body on values of one layout share what
    was recorded, so that equal ones are recognised."""
    body, carried, slices, shared, isReversed = [*arguments, *options.values(), False][:5]
    layouts = [(v.shape, v.dtype, v.strides) for v in (*carried, *slices)]
    key = (body, tuple(layouts), comparable(shared), isReversed)
    loop = recorder.loops.get(key)
    if loop is None:
        loop = recorder.loops[key] = recordLoop(recorder, body, carried, slices, shared, isReversed)
    count, first = loop.count, loop.carried + loop.sums
    states = [recorder.value((count + 1, *c.shape), c.dtype) for c in carried]
    sums = [recorder.value(s.shape, s.dtype) for s in loop.oldSums]
    rows = [recorder.value((count, *y.shape), y.dtype) for y in loop.results[first:]]
    operands = [*carried, *slices, *(v for v in shared if type(v) is Value)]
    recorder.add(loop, tuple(operands), {}, [*states, *sums, *rows], "other", True)
    totals = iter(sums)
    summed = [next(totals) if p is None else p.summed(recorder, slices, rows) for p in loop.products]
    return [*states, *summed, *rows[: len(rows) - loop.extra]]


class RowProduct(NamedTuple):
    """The sum of a.T @ b over all runs, as one product of the rows of all runs; `a` is a row or a slice, `b` a row."""

    a: int
    b: int
    isSlice: bool

    def summed(self, recorder: Recorder, slices: Sequence[Value], rows: Sequence[Value]) -> Value:
        """The product."""
        a, b = recorder.handle((slices if self.isSlice else rows)[self.a]), recorder.handle(rows[self.b])
        return (a.reshape(-1, a.shape[-1]).T @ b.reshape(-1, b.shape[-1])).current


def recordLoop(
    recorder: Recorder, body: Any, carried: Sequence[Value], slices: Sequence[Value], shared: list, isReversed: bool
) -> LoopBody:
    """Record the body of a loop on Values of one run."""
    loop = LoopBody(len(carried), len(slices), slices[0].shape[0], isReversed)
    states = [recorder.value(c.shape, c.dtype, role="input", name=c.name) for c in carried]
    sliced = [recorder.value(x.shape[1:], x.dtype, x.strides[1:], "input", x.name) for x in slices]
    outside = [v for v in shared if type(v) is Value]
    alike = [v if v.role in LEAVES else recorder.value(v.shape, v.dtype, v.strides, "input", v.name) for v in outside]
    formal = {v.number: f for v, f in zip(outside, alike)}
    before, recorder.calls = recorder.calls, loop.calls
    try:
        handles = [recorder.handle(formal[v.number]) if type(v) is Value else v for v in shared]
        new, added, rows = body(list(map(recorder.handle, states)), list(map(recorder.handle, sliced)), handles)
        made = [ownValue(recorder, y) for y in rows]
        loop.products = [productOfRows(recorder, a, sliced, made) for a in added]
        sums = [a for a, p in zip(added, loop.products) if p is None]
        olds = [recorder.value(a.shape, a.dtype, role="input") for a in sums]
        totals = [s + a for s, a in zip(map(recorder.handle, olds), sums)]
        loop.results = [*(ownValue(recorder, y) for y in (*new, *totals)), *made]
    finally:
        recorder.calls = before
    loop.formals, loop.sums, loop.extra = [*states, *sliced, *alike, *olds], len(olds), len(made) - len(rows)
    checkCarried(loop)
    return loop


def productOfRows(recorder: Recorder, added: Any, slices: list[Value], rows: list[Value]) -> RowProduct | None:
    """The RowProduct of a summed product of matrices, whose factors are added to the rows; None for another sum."""
    call = added.current.call if type(added) is RecordedArray else None
    if call is None or call.function is not np.matmul:
        return None
    left, right = call.arguments
    transposed = left.call
    if left.ndim != 2 or right.ndim != 2 or transposed is None or transposed.function is not np.transpose:
        return None
    a = transposed.arguments[0]
    at, isSlice = next((i for i, x in enumerate(slices) if x is a), None), True
    if at is None:
        at, isSlice = rowOf(recorder, a, rows), False
    return RowProduct(at, rowOf(recorder, right, rows), isSlice)


def rowOf(recorder: Recorder, value: Value, rows: list[Value]) -> int:
    """The index of a value among the rows, which it joins."""
    at = next((i for i, y in enumerate(rows) if y is value), None)
    if at is None:
        at = len(rows)
        rows.append(ownValue(recorder, recorder.handle(value)))
    return at


def ownValue(recorder: Recorder, y: Any) -> Value:
    """The Value of a result that a run computes; a copy of one that it only hands on."""
    value = y.current if type(y) is RecordedArray else recorder.constant(y)
    if value.root.role == "made":
        return value
    return recorder.made(copy, (value,), {}, "copy", value.shape, value.dtype)


def checkCarried(loop: LoopBody) -> None:
    """Raise UnreadableError if a carried value changes its shape or dtype, or a run reads a value from outside."""
    for c, new in zip(loop.formals[: loop.carried], loop.results):
        if (c.shape, c.dtype) != (new.shape, new.dtype):
            raise UnreadableError("a carried value changes its shape or dtype")
    known = {v.root.number for v in loop.formals} | {
        y.number for call in loop.calls for y in call.outs if y is not None
    }
    if any(v.root.number not in known and v.root.role not in ARRAYS for call in loop.calls for v in call.values()):
        raise UnreadableError("a run reads a value from outside of it")
    if any(call.kind.hasEffect for call in loop.calls):
        raise UnreadableError("a run has effects")
