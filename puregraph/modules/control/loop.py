"""Loop: a graph that runs as often as a count says, or as long as a condition holds."""

import threading

import numpy as np

from puregraph.core.arguments import GraphLike, Items, Size
from puregraph.core.base.dtype import needType
from puregraph.core.device import toHost
from puregraph.core.errors import DataError, need
from puregraph.core.shape import product, sizesOf, valueOf
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.module import Inputs
from puregraph.modules.activation import Tanh
from puregraph.modules.comparison import And, Less
from puregraph.modules.constant import Constant
from puregraph.modules.control.repeatedgraph import _RepeatedGraph
from puregraph.modules.identity import Identity
from puregraph.modules.linear import Linear

MAX_RUNS = 1 << 16  # the default limit of runs, including those of inner loops


class _RunCount(threading.local):
    """The number of runs of all loops in this thread since the outermost one began."""

    depth = runs = 0


RUNS = _RunCount()


class Loop(_RepeatedGraph):
    """for t in 0, 1, ..., count - 1 while condition: condition, c, s[t] = body(t, condition, c, x)

    The carried values c are those of the last run; s is stacked along a new first axis. More than `most` runs,
    including inner loops, are an error. Gradients go back through every run, but not to the count and the condition.
    Sizes of carried values that change between runs are unknown ahead of data; so is the number of runs, unless the
    count is known and no condition can end the loop earlier.

    Shapes    count and condition of one element, c, x any -> c as the body gives it, s (runs, *as the body gives it)
    Source    ONNX operator Loop
    Raises    ShapeError, DtypeError if the body does not accept its own carried outputs; DataError for an endless loop
    """

    indices = ("count",)
    masks = ("condition",)
    leading, answers = 2, 1

    def __init__(self, body: GraphLike, carried: Size, ranks: Items = (0, 0), most: Size = MAX_RUNS, name=None):
        super().__init__(body, carried, name)
        need(len(ranks) == 2, "ranks of count and condition", ranks)
        self.most = most
        self.ranks = tuple(ranks)

    @property
    def inputSpec(self):
        return Inputs(("count", "condition", *(f"x{i}" for i in range(len(self.body.inputs) - 2))))

    @property
    def isCounted(self):
        """True if the condition never ends the loop: the body returns its own condition, or True."""
        node, _ = self.body.outputs[0]
        while isinstance(node.module, Identity):
            node = node.bwds[0].node
        if node is self.body.inputs[1]:
            return True
        return isinstance(node.module, Constant) and bool(toHost(node.module.valueFrom()).all())

    # Ahead of data ----------------------------------------------------------------------------------------------------

    def times(self, count, condition):
        """The number of runs, a number or a symbol; None if it depends on the data."""
        value, isOn = valueOf(count), valueOf(condition)
        if isOn is not None and isOn.dtype.kind == "b" and not isOn.all():
            return 0
        if value is None or isOn is None or not self.isCounted:
            return None
        (size,) = sizesOf(value)
        return size if not isinstance(size, int) else max(size, 0)

    def dataShapeFrom(self, count, condition, *shapes):
        need(product(count) == 1, "a count of one element", count)
        need(product(condition) == 1, "a condition of one element", condition)
        carried, stacked = self.shapesFrom(shapes)
        times = self.times(count, condition)
        if times == 0:
            carried = [tuple(shape) for shape in shapes[: self.carried]]
        outs = [*carried, *((times, *shape) for shape in stacked)]
        return outs if len(outs) > 1 else outs[0]

    def shapesFrom(self, shapes):
        """The shapes of carried values, and of each row of a stacked output."""
        before = [(1,) * rank for rank in self.ranks]
        return self.closedShapes(before, shapes[: self.carried], shapes[self.carried :], shapes)

    def dataTypeFrom(self, count, condition, *dtypes):
        needType(count is None or count.kind in "iu", "integers for count", count)
        needType(condition is None or condition.kind == "b", "booleans for condition", condition)
        leadingTypes = [np.dtype(np.int64), np.dtype(bool)]
        outs = self.carriedTypes(leadingTypes, dtypes[: self.carried], dtypes[self.carried :])
        return outs if len(outs) > 1 else outs[0]

    def flopsFrom(self, count, condition, *shapes):
        times = self.times(count, condition)
        return self.body.flopsFrom([*((1,) * rank for rank in self.ranks), *shapes]) * (1 if times is None else times)

    # Rules ------------------------------------------------------------------------------------------------------------

    def goesOn(self, t, inputs, outs):
        count, condition = inputs[0], inputs[1] if outs is None else outs[0]
        isOn = t < int(toHost(count).reshape(())) and bool(toHost(condition).reshape(()))
        RUNS.runs += isOn
        if RUNS.runs > self.most:
            text = f"wanted at most {self.most:,} runs of a loop and those inside it, got more"
            raise DataError(f"{text}; fromOnnx(model, mostRuns=...) allows more")
        return isOn

    def forward(self, inputs, carried, stored, times=None):
        RUNS.runs = RUNS.runs if RUNS.depth else 0
        RUNS.depth += 1
        try:
            return super().forward(inputs, carried, stored, times)
        finally:
            RUNS.depth -= 1

    def inputsOfRun(self, t, inputs, outs, carried):
        count, condition = inputs[0], inputs[1] if outs is None else outs[0]
        leading = np.full_like(count, t, dtype=np.int64), condition
        return [
            *(x.reshape((1,) * rank) for x, rank in zip(leading, self.ranks)),
            *carried,
            *inputs[2 + self.carried :],
        ]

    def atTime(self, grad, index, t, times):
        return grad[t]

    def stacked(self, index, rows, shape, like):
        if not rows:
            return np.zeros((0, *(0 if not isinstance(n, int) else n for n in shape)), like)
        need(len({row.shape for row in rows}) == 1, "a stacked output of one shape in every run", rows[-1].shape)
        return np.stack(rows)

    def fixedTimes(self, inputs):
        count, condition = inputs[:2]
        areKnown = isinstance(count, np.ndarray) and isinstance(condition, np.ndarray)
        if not (areKnown and self.isCounted and condition.all() and int(count.reshape(())) <= self.most):
            return 0
        return int(count.reshape(()))

    def slicesOf(self, inputs):
        return [np.arange(self.fixedTimes(inputs)).reshape(-1, *(1,) * self.ranks[0])]

    def runInputs(self, carried, slices, shared):
        return [*slices, np.ones((1,) * self.ranks[1], bool), *carried, *shared]

    def updateData(self, count, condition, *arguments):
        number = len(self.body.inputs) - 2
        inputs, stored = (count, condition, *arguments[:number]), dict(zip(self.ruleNames, arguments[number:]))
        if self.isLoop(inputs, arguments):
            return self.asLoop(inputs, arguments[number:])
        starts, carried, rows = self.forward(inputs, list(arguments[: self.carried]), stored)
        shapes, dtypes = [()] * (len(self.outputNames) - self.carried), [None] * len(self.outputNames)
        if not starts:
            _, shapes = self.shapesFrom([x.shape for x in arguments[:number]])
            inferred = self.dataTypeFrom(count.dtype, condition.dtype, *[x.dtype for x in arguments[:number]])
            dtypes = inferred if isinstance(inferred, list) else [inferred]
        return self.outputsFrom(starts, carried, rows, shapes, dtypes[self.carried :])

    def updateGrad(self, grad, *arguments, needs):
        if self.isLoop(arguments[: len(self.body.inputs)], arguments):
            return self.loopGradients(grad, arguments, needs)
        carried, _, shared, params = self.gradients(grad, 2, arguments, needs)
        return self.completed([None, None, *carried, *shared], params, needs, arguments)

    # Testing ----------------------------------------------------------------------------------------------------------

    def brief(self):
        return f"Loop({len(self.body)} nodes)"

    def sample(self, rng, count, condition, *shapes):
        return [np.full(count, 3), np.ones(condition, bool), *(rng.standard_normal(s) for s in shapes)]

    @classmethod
    def examples(cls):
        t, on, c, x = (Input(name=name).node() for name in ("t", "on", "c", "x"))
        new = Tanh(name="tanh").node(Linear(3, 3, name="fc").node(c) + x)
        yield cls(Graph([t, on, c, x], [on, new, new, t]), 1), [(), (), (2, 3), (2, 3)]
        t, on, c = (Input(name=name).node() for name in ("t", "on", "c"))
        less = And(name="and").node(on, Less(name="less").node(t, Constant(np.array(1)).node()))
        yield cls(Graph([t, on, c], [less, Linear(2, 2, name="fc").node(c)]), 1), [(), (), (1, 2)]
