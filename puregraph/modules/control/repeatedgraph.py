"""_RepeatedGraph: a graph that runs again and again, with values carried from each run to the next."""

import numpy as np

from puregraph.core.base.dtype import needType
from puregraph.core.errors import Fault, ShapeError, need, show
from puregraph.core.shape import FreshSymbols
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
        fresh, opened = FreshSymbols(inputShapes), set()
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
        steps, starts, rows, outs = self.body.steps(), [], [], None
        numbers = self.numbered(steps, stored)
        while len(starts) < times if times is not None else self.goesOn(len(starts), inputs, outs):
            runInputs = self.inputsOfRun(len(starts), inputs, outs, carried)
            if not starts and times is None:
                checkInside(self.body, runInputs)
            starts.append((runInputs, writtenStates(self, stored)))
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
        wanted = frozenset(id(getattr(self, name)) for name, need in zip(names, needs[count:]) if need)
        grads = list(grad) if len(self.outputNames) > 1 else [grad]
        carried, stacks = grads[: self.carried], grads[self.carried :]
        steps, params, slices, shared = self.body.steps(), {}, [], None
        for t in reversed(range(len(starts))):
            runInputs, states = starts[t]
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

    def completed(self, grads, params, needs, arguments):
        """A gradient for every argument; those of parameters are looked up by id."""
        return filledIn([*grads, *self.inOrder(params)], needs, arguments)


def plus(a, b):
    """The sum of two gradients, either of which may be None."""
    return b if a is None else a if b is None else a + b


def summed(total, new):
    """The sums of gradients of several values."""
    return list(new) if total is None else [plus(a, b) for a, b in zip(total, new)]
