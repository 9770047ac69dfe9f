"""Scan: a graph that runs once for each slice of its inputs."""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from puregraph.core.arguments import Argument, Flag, GraphLike, Size, Whole, meets
from puregraph.core.errors import ShapeError, need
from puregraph.core.shape import normalAxis
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.module import Inputs
from puregraph.modules.activation import Tanh
from puregraph.modules.control.repeatedgraph import _RepeatedGraph
from puregraph.modules.linear import Linear

Slices = Annotated[
    Sequence[Any],
    Argument(
        "a list of (axis, whether from its end)",
        lambda value: (
            isinstance(value, (tuple, list))
            and all(isinstance(row, (tuple, list)) and len(row) == 2 for row in value)
            and all(meets(Whole, axis) and (meets(Flag, flag) or flag in (0, 1)) for axis, flag in value)
        ),
        ShapeError,
    ),
]


class Scan(_RepeatedGraph):
    """for t in 0, 1, ..., n - 1: c, s[t] = body(c, x[t], z)

    x[t] is slice t of each scanned input, and each s is stacked, along an axis and perhaps in reverse: `inputs` and
    `outputs` are pairs (axis, isReversed) for each. The carried values c that are returned are those of the last run;
    all runs read the same z. Gradients go back through every run.

    Shapes    c any, x (..., n, ...), z any -> c as given, s (..., n, ...)
    Source    ONNX operator Scan
    Raises    ShapeError, DtypeError if the body does not accept its own carried outputs, or lengths of x differ
    """

    def __init__(self, body: GraphLike, carried: Size, inputs: Slices, outputs: Slices, name=None):
        super().__init__(body, carried, name)
        self.ins = tuple((int(axis), bool(isReversed)) for axis, isReversed in inputs)
        self.outs = tuple((int(axis), bool(isReversed)) for axis, isReversed in outputs)
        self.sliced = len(self.ins)
        need(self.sliced > 0, "at least one input to take slices of", "none")

    @property
    def inputSpec(self):
        return Inputs(tuple(f"x{i}" for i in range(len(self.body.inputs))))

    # Ahead of data ----------------------------------------------------------------------------------------------------

    def parted(self, values):
        """(carried, scanned, shared) parts of a list with one value for each input."""
        first = self.carried + self.sliced
        return values[: self.carried], values[self.carried : first], values[first : len(self.body.inputs)]

    def shapesFrom(self, shapes):
        """(number of runs, shapes of carried values, and of each row of a stacked output)."""
        carried, scanned, alike = self.parted(shapes)
        axes = [normalAxis(axis, len(shape)) for (axis, _), shape in zip(self.ins, scanned)]
        lengths = [shape[axis] for axis, shape in zip(axes, scanned)]
        need(len(set(lengths)) == 1, "scanned inputs of one length", lengths)
        slices = [shape[:axis] + shape[axis + 1 :] for axis, shape in zip(axes, map(tuple, scanned))]
        return lengths[0], *self.closedShapes([], carried, [*slices, *alike], shapes)

    def dataShapeFrom(self, *shapes):
        count, carried, rows = self.shapesFrom(shapes)
        stacked = []
        for (axis, _), row in zip(self.outs, rows):
            at = normalAxis(axis, len(row) + 1)
            stacked.append((*row[:at], count, *row[at:]))
        outs = [*carried, *stacked]
        return outs if len(outs) > 1 else outs[0]

    def dataTypeFrom(self, *dtypes):
        outs = self.carriedTypes([], dtypes[: self.carried], dtypes[self.carried :])
        return outs if len(outs) > 1 else outs[0]

    def flopsFrom(self, *shapes):
        carried, scanned, alike = self.parted(shapes)
        axes = [normalAxis(axis, len(shape)) for (axis, _), shape in zip(self.ins, scanned)]
        slices = [tuple(s[:axis]) + tuple(s[axis + 1 :]) for axis, s in zip(axes, scanned)]
        return self.body.flopsFrom([*carried, *slices, *alike]) * scanned[0][axes[0]]

    # Rules ------------------------------------------------------------------------------------------------------------

    def goesOn(self, t, inputs, outs):
        return t < inputs[self.carried].shape[self.ins[0][0]]

    def inputsOfRun(self, t, inputs, outs, carried):
        _, scanned, alike = self.parted(inputs)
        return [
            *carried,
            *(sliceAt(x, axis, isReversed, t) for x, (axis, isReversed) in zip(scanned, self.ins)),
            *alike,
        ]

    def atTime(self, grad, index, t, times):
        axis, isReversed = self.outs[index]
        return sliceAt(grad, axis, isReversed, t)

    def stacked(self, index, rows, shape, like):
        axis, isReversed = self.outs[index]
        if not rows:
            axis = normalAxis(axis, len(shape) + 1)
            sizes = [0 if not isinstance(n, int) else n for n in shape]
            return np.zeros((*sizes[:axis], 0, *sizes[axis:]), like)
        need(len({row.shape for row in rows}) == 1, "a stacked output of one shape in every run", rows[-1].shape)
        return np.stack(rows[::-1] if isReversed else rows, axis)

    def fixedTimes(self, inputs):
        return self.parted(inputs)[1][0].shape[self.ins[0][0]]

    def slicesOf(self, inputs):
        return [alongFirst(x, *how) for x, how in zip(self.parted(inputs)[1], self.ins)]

    def rowsOf(self, index, grad):
        return alongFirst(grad, *self.outs[index])

    def outputOf(self, index, rows):
        return unsliced(rows, *self.outs[index])

    def inputGradOf(self, index, rows):
        return unsliced(rows, *self.ins[index])

    def updateData(self, *arguments):
        count = len(self.body.inputs)
        inputs, stored = arguments[:count], dict(zip(self.ruleNames, arguments[count:]))
        if self.isLoop(inputs, arguments):
            return self.asLoop(inputs, arguments[count:])
        starts, carried, rows = self.forward(inputs, list(inputs[: self.carried]), stored)
        shapes, dtypes = [()] * len(self.outs), [None] * len(self.outputNames)
        if not starts:
            _, _, shapes = self.shapesFrom([x.shape for x in inputs])
            inferred = self.dataTypeFrom(*[x.dtype for x in inputs])
            dtypes = inferred if isinstance(inferred, list) else [inferred]
        return self.outputsFrom(starts, carried, rows, shapes, dtypes[self.carried :])

    def updateGrad(self, grad, *arguments, needs):
        if self.isLoop(arguments[: len(self.body.inputs)], arguments):
            return self.loopGradients(grad, arguments, needs)
        carried, slices, alike, params = self.gradients(grad, 0, arguments, needs)
        _, scanned, _ = self.parted(arguments)
        scannedGrads: list[Any] = []
        for i, ((axis, isReversed), x) in enumerate(zip(self.ins, scanned)):
            rows = [row[i] for row in slices]
            if not needs[self.carried + i] or all(row is None for row in rows):
                scannedGrads.append(None)
                continue
            rows = [np.zeros_like(sliceAt(x, axis, False, 0)) if row is None else row for row in rows]
            scannedGrads.append(np.stack(rows[::-1] if isReversed else rows, axis))
        return self.completed([*carried, *scannedGrads, *alike], params, needs, arguments)

    # Testing ----------------------------------------------------------------------------------------------------------

    def brief(self):
        return f"Scan({len(self.body)} nodes)"

    @classmethod
    def examples(cls):
        c, x, z = (Input(name=name).node() for name in ("c", "x", "z"))
        new = Tanh(name="tanh").node(Linear(3, 3, name="fc").node(c) + x * z)
        yield cls(Graph([c, x, z], [new, new]), 1, [(1, True)], [(-1, False)]), [(2, 3), (2, 4, 3), (2, 3)]
        a, b = (Input(name=name).node() for name in ("a", "b"))
        yield (
            cls(Graph([a, b], Linear(3, 2, name="fc").node(a + b)), 0, [(0, False), (-1, True)], [(0, True)]),
            [(4, 3), (3, 4)],
        )


def sliceAt(x, axis, isReversed, t):
    """Return slice `t` along an axis, counted from its end if `isReversed`."""
    return x[(slice(None),) * (axis % x.ndim) + (-1 - t if isReversed else t,)]


def alongFirst(x, axis, isReversed):
    """Return x with its slices, in their order, along the first axis."""
    x = np.moveaxis(x, axis, 0)
    return x[::-1] if isReversed else x


def unsliced(rows, axis, isReversed):
    """Return rows in order along a first axis, as slices along an axis."""
    return np.moveaxis(rows[::-1] if isReversed else rows, 0, axis)
