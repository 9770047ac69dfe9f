"""_RepeatedGraph: a graph that runs again and again, with values carried from each run to the next."""

from typing import Any

import numpy as np

from puregraph.core.base.dtype import isFloating, needType
from puregraph.core.errors import Fault, ShapeError, need, show
from puregraph.core.shape import FreshSymbols
from puregraph.core.tracer import tracerOf
from puregraph.graph.graphholder import GraphHolder
from puregraph.modules.control.innerpass import (
    _InnerPass,
    backThrough,
    checkInside,
    dtypesInside,
    filledIn,
    isTraced,
    outside,
    shapesInside,
    writtenStates,
)
from puregraph.modules.control.innerprograms import _InnerPrograms
from puregraph.ops.recurrent.repeatbody import repeatBody


class _RepeatedGraph(GraphHolder):
    """Base class of Loop and Scan: c, s = body(c, ...), repeated; returns the last c, and every s.

    The body takes `leading` inputs that the loop makes, `carried` ones, slices, and inputs that all runs share; it
    returns `answers` outputs that the loop reads, the carried ones, and those that are stacked. Only the inputs of each
    run are kept; the run is recomputed for its gradient, so a long loop needs memory only for carried values.

    Shapes    as each subclass says
    Source    Bengio, Frasconi, Simard 1993, on gradients through time
    """

    hidden = ("run",)
    leading = answers = sliced = 0

    def __init__(self, body, carried, name=None):
        super().__init__({"body": body}, name)
        self.body, self.carried = body, carried
        self.programs = _InnerPrograms()
        wanted = f"a body of at least {self.answers + carried} outputs, with one that is given"
        need(len(body.outputs) >= max(self.answers + carried, self.answers + 1), wanted, len(body.outputs))

    @property
    def outputNames(self):
        count = len(self.body.outputs) - self.answers
        return ("y",) if count == 1 else tuple(f"y{i}" for i in range(count))

    # What a subclass implements ---------------------------------------------------------------------------------------

    def goesOn(self, t, inputs, outs):
        """True if there is a run `t`, after one that returned `outs`."""
        raise NotImplementedError

    def inputsOfRun(self, t, inputs, outs, carried):
        """The inputs of the body in run `t`."""
        raise NotImplementedError

    def atTime(self, grad, index, t, times):
        """The part of a stacked output's gradient that belongs to run `t`."""
        raise NotImplementedError

    def stacked(self, index, rows, shape, like):
        """Return an output of all runs as one array; without runs, an empty one by `shape` and the dtype `like`."""
        raise NotImplementedError

    # Ahead of data ----------------------------------------------------------------------------------------------------

    def settled(self, before, carried, others, inputShapes):
        """(shapes of carried values that hold in every run, output shapes of the body), with symbols for sizes that
        change between runs; output sizes are None if they cannot be inferred."""
        fresh = FreshSymbols(inputShapes)
        opened: set[Any] = set()
        shapes = [tuple(shape) for shape in carried]
        first = outs = shapesInside(self.body, [*before, *shapes, *others])
        while True:
            known = len(opened)
            for i, new in enumerate(outs[self.answers : self.answers + self.carried]):
                if len(shapes[i]) != len(new):
                    raise ShapeError(Fault(f"a carried value of {show(shapes[i])} in every run", show(tuple(new))))
                for axis, (n, m) in enumerate(zip(shapes[i], new)):
                    if n != m and (i, axis) not in opened:
                        opened.add((i, axis))
                        shapes[i] = (*shapes[i][:axis], fresh.new("carried"), *shapes[i][axis + 1 :])
            if len(opened) == known:
                return shapes, outs
            try:
                outs = shapesInside(self.body, [*before, *shapes, *others])
            except ShapeError:  # it may still fit when it runs
                return shapes, [(None,) * len(shape) for shape in first]

    def closedShapes(self, before, carried, others, inputShapes):
        """The shapes of carried values, and of one row of each stacked output; None is any size."""
        shapes, outs = self.settled(before, carried, others, inputShapes)
        closed = [outside(shape, inputShapes) for shape in (*shapes, *outs[self.answers + self.carried :])]
        return closed[: self.carried], closed[self.carried :]

    def carriedTypes(self, before, carried, others):
        """The dtypes of the outputs.

        Raises    DtypeError for a carried value whose dtype changes
        """
        outTypes = dtypesInside(self.body, [*before, *carried, *others])[self.answers :]
        for dtype, new in zip(carried, outTypes):
            needType(dtype is None or new is None or dtype == new, f"{dtype} carried on", new)
        return [dtype or new for dtype, new in zip(carried, outTypes)] + outTypes[self.carried :]

    def hiddenShapeFrom(self, *shapes):
        return [()]

    def hiddenTypeFrom(self, *dtypes):
        return [np.dtype(object)]

    # Rules ------------------------------------------------------------------------------------------------------------

    def forward(self, inputs, carried, stored, times=None):
        """(the start of each run, the last carried values, the stacked rows); `times` is the known number of runs when
        a pass is repeated."""
        steps, outs = self.body.steps(), None
        starts: list[Any] = []
        rows: list[Any] = []
        numbers = self.numbered(steps, stored)
        while len(starts) < times if times is not None else self.goesOn(len(starts), inputs, outs):
            runInputs = self.inputsOfRun(len(starts), inputs, outs, carried)
            if not starts and times is None:
                checkInside(self.body, runInputs)
            starts.append((runInputs, writtenStates(self, stored)))
            outs = self.programs.outputs(self, self.body, runInputs, stored.values())
            if outs is None:
                values = steps.run(runInputs, numbers)
                outs = [values[n] for n in steps.outputs]
            carried = outs[self.answers : self.answers + self.carried]
            rows.append(outs[self.answers + self.carried :])
        return starts, carried, rows

    def outputsFrom(self, starts, carried, rows, stackedShapes, like):
        """All outputs of a pass."""
        stacks = [
            self.stacked(i, [row[i] for row in rows], shape, dtype)
            for i, (shape, dtype) in enumerate(zip(stackedShapes, like))
        ]
        return (*carried, *stacks, _InnerPass(self.body, starts, {}))

    def gradients(self, grad, first, arguments, needs):
        """(gradients of carried values, of slices by run, of shared inputs, of parameters by id); `first` is the
        index of the first carried value among the arguments."""
        names = self.ruleNames
        count = len(needs) - len(names)
        inputs, stored = arguments[:count], dict(zip(names, arguments[count:]))
        ran = arguments[-1]
        starts = [] if ran is None else ran.runs
        if isTraced((*inputs, *stored.values())):
            states = starts[0][1] if starts else {}
            again = {**stored, **{name: x.copy() for name, x in states.items()}}
            starts, _, _ = self.forward(inputs, list(inputs[first : first + self.carried]), again, len(starts))
        wanted = frozenset(id(param) for param, need in zip(self.ruleArrays, needs[count:]) if need)
        grads = list(grad) if len(self.outputNames) > 1 else [grad]
        carried, stacks = grads[: self.carried], grads[self.carried :]
        steps, shared = self.body.steps(), None
        params: dict[Any, Any] = {}
        slices: list[Any] = []
        for t in reversed(range(len(starts))):
            runInputs, states = starts[t]
            values: Any = self.programs.passed(self, self.body, runInputs, stored.values(), wanted)
            if values is None:
                numbers = self.numbered(steps, {**stored, **{name: x.copy() for name, x in states.items()}})
                values = steps.run(runInputs, numbers)
            rows = [None if g is None else self.atTime(g, i, t, len(starts)) for i, g in enumerate(stacks)]
            seeds = [*[None] * self.answers, *carried, *rows]
            new, runParams = backThrough(self.body, seeds, values, True, wanted)
            carried = new[self.leading : self.leading + self.carried]
            others = new[self.leading + self.carried :]
            slices.insert(0, others[: self.sliced])
            shared = summed(shared, others[self.sliced :])
            params = {key: plus(params.get(key), runParams.get(key)) for key in {**params, **runParams}}
        count -= self.leading + self.carried + self.sliced
        return carried, slices, shared or [None] * count, params

    # As one call of a compiled step -----------------------------------------------------------------------------------

    def fixedTimes(self, inputs):
        """The number of runs if it follows from shapes and constants alone; otherwise 0."""
        raise NotImplementedError

    def slicesOf(self, inputs):
        """The arrays of which each run gets one slice, along a first axis."""
        raise NotImplementedError

    def runInputs(self, carried, slices, shared):
        """The inputs of the body in one run."""
        return [*carried, *slices, *shared]

    def rowsOf(self, index, grad):
        """The gradient of a stacked output, with those of its rows along the first axis."""
        return grad

    def outputOf(self, index, rows):
        """A stacked output from its rows along a first axis."""
        return rows

    def inputGradOf(self, index, rows):
        """The gradient of an input that was taken in slices, from those of the slices along a first axis."""
        return rows

    def isLoop(self, inputs, arguments):
        """True if a compiled step records the runs as one call: their number is fixed, and none changes a state."""
        tracer = tracerOf(arguments)
        if tracer is None or not tracer.keepsComposite(repeatBody):
            return False
        return self.fixedTimes(inputs) > 0 and not writtenStates(self, self.states)

    def partsOf(self, inputs):
        """(carried values, shared ones) among the inputs."""
        first = self.leading
        return inputs[first : first + self.carried], inputs[first + self.carried + self.sliced :]

    def statesAndRows(self, inputs, stored):
        """The carried values before each run and after the last, and the rows, all along a first axis."""
        carried, shared = self.partsOf(inputs)
        outs = repeatBody(self.runOnce, list(carried), self.slicesOf(inputs), [*shared, *stored])
        return outs[: self.carried], outs[self.carried :]

    def asLoop(self, inputs, stored):
        """The outputs, and None in place of the runs."""
        states, rows = self.statesAndRows(inputs, stored)
        return (*(s[-1] for s in states), *(self.outputOf(i, y) for i, y in enumerate(rows)), None)

    def runOnce(self, carried, slices, shared):
        """One run: the next carried values, no sums, and the rows."""
        outs, _ = self.valuesOf(carried, slices, shared)
        return outs[: self.carried], [], outs[self.carried :]

    def valuesOf(self, carried, slices, shared):
        """The outputs of one run that are carried or stacked, and all of its values."""
        steps, count = self.body.steps(), len(self.ruleNames)
        alike, stored = shared[: len(shared) - count], shared[len(shared) - count :]
        numbers = self.numbered(steps, dict(zip(self.ruleNames, stored)))
        values = steps.run(self.runInputs(carried, slices, alike), numbers)
        return [values[n] for n in steps.outputs[self.answers :]], values

    def loopGradients(self, grad, arguments, needs):
        """A gradient for every argument: one loop back through the runs, each from the carried values it began with."""
        names, count = self.ruleNames, len(self.body.inputs)
        inputs, stored = arguments[:count], arguments[count : count + len(names)]
        carried, shared = self.partsOf(inputs)
        states, _ = self.statesAndRows(inputs, stored)
        grads = list(grad) if len(self.outputNames) > 1 else [grad]
        stacks = [None if g is None else self.rowsOf(i, g) for i, g in enumerate(grads[self.carried :])]
        isFloat = [isFloating(c.dtype) for c in carried]
        ends = [np.zeros_like(c) if g is None else g for g, c, f in zip(grads, carried, isFloat) if f]
        slices = self.slicesOf(inputs)
        taken = [*(s[:-1] for s in states), *slices]
        wanted = frozenset(id(param) for param, need in zip(self.ruleArrays, needs[count:]) if need)
        start = self.leading + self.carried
        moving, summing = needs[start : start + self.sliced], needs[start + self.sliced :]

        def backOnce(ends, slices, shared):
            starts, rest, rows = slices[: self.carried], slices[self.carried : len(taken)], iter(slices[len(taken) :])
            _, values = self.valuesOf(starts, rest, shared)
            came = iter(ends)
            seeds = [next(came) if f else None for f in isFloat] + [None if g is None else next(rows) for g in stacks]
            new, params = backThrough(self.body, [*[None] * self.answers, *seeds], values, True, wanted)
            allGrads = [*new[self.leading :], *self.inOrder(params)]
            arrays = [*starts, *rest[: self.sliced], *shared]
            full = [np.zeros_like(x) if g is None else g for g, x in zip(allGrads, arrays)]
            before, moved, added = full[: self.carried], full[self.carried :], full[self.carried + self.sliced :]
            return (
                [g for g, f in zip(before, isFloat) if f],
                [g for g, need in zip(added, summing) if need],
                [g for g, need in zip(moved, moving) if need],
            )

        rows = [g for g in stacks if g is not None]
        outs = iter(repeatBody(backOnce, ends, [*taken, *rows], [*shared, *stored], isReversed=True))
        firsts = [next(outs)[-1] if f else None for f in isFloat]
        totals = [next(outs) if need else None for need in summing]
        moved = [self.inputGradOf(i, next(outs)) if need else None for i, need in enumerate(moving)]
        return filledIn([*[None] * self.leading, *firsts, *moved, *totals], needs, [*inputs, *stored])

    def completed(self, grads, params, needs, arguments):
        """A gradient for every argument; those of parameters are looked up by id."""
        return filledIn([*grads, *self.inOrder(params)], needs, arguments)


def plus(a, b):
    """The sum of two gradients, either of which may be None."""
    return b if a is None else a if b is None else a + b


def summed(total, new):
    """The sums of gradients of several values."""
    return list(new) if total is None else [plus(a, b) for a, b in zip(total, new)]
