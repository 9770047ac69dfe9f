"""If: one of two graphs, selected by a condition in the data."""

from typing import Any

import numpy as np

from puregraph.core.arguments import GraphLike, Text
from puregraph.core.base.dtype import needType
from puregraph.core.device import toHost
from puregraph.core.dim import Dim
from puregraph.core.errors import Fault, ShapeError, need
from puregraph.core.shape import product, valueOf
from puregraph.graph import Graph
from puregraph.graph.graphholder import GraphHolder
from puregraph.graph.input import Input
from puregraph.graph.module import Inputs
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.arithmetic import Add
from puregraph.modules.control.innerpass import (
    _InnerPass,
    agreed,
    backThrough,
    checkInside,
    dtypesInside,
    filledIn,
    isTraced,
    outside,
    shapesInside,
    writtenStates,
)
from puregraph.modules.control.innerprograms import _CompiledPass, _InnerPrograms
from puregraph.modules.linear import Linear


class If(GraphHolder):
    """y = then(x) where the condition is true, and otherwise(x) where it is not

    Both graphs take the same values. Output sizes in which they differ depend on the data. If one graph does not
    accept the input shapes, or is None for the reason `misfit`, output shapes are those of the other one, and a
    condition that selects it is an error. The gradient goes back through the graph that ran; parameters and values
    that only the other one reads get zeros.

    Shapes    condition of one boolean, values any -> the outputs of both graphs
    Source    ONNX operator If
    Raises    ShapeError, DtypeError if neither graph fits, or their outputs differ in rank or dtype
    """

    hidden = ("run",)
    masks = ("condition",)

    def __init__(self, then: GraphLike | None, otherwise: GraphLike | None, misfit: Text = "", name=None):
        graphs = {"then": then, "else": otherwise}
        super().__init__({key: graph for key, graph in graphs.items() if graph is not None}, name)
        self.then, self.otherwise, self.misfit = then, otherwise, misfit
        self.first: Any = then or otherwise
        self.programs = _InnerPrograms()
        counts = [(len(g.inputs), len(g.outputs)) for g in self.held.values()]
        need(counts and counts[0] == counts[-1], "two graphs of as many inputs and outputs", counts)

    @property
    def inputSpec(self):
        return Inputs(("condition", *(f"x{i}" for i in range(len(self.first.inputs)))))

    @property
    def outputNames(self):
        count = len(self.first.outputs)
        return ("y",) if count == 1 else tuple(f"y{i}" for i in range(count))

    def branch(self, condition):
        """Return the graph that the condition selects."""
        graph = self.then if bool(toHost(condition).reshape(())) else self.otherwise
        if graph is None:
            raise ShapeError(Fault("a condition for the branch that fits", "the other one", self.misfit))
        return graph

    # Ahead of data ----------------------------------------------------------------------------------------------------

    def candidates(self, condition):
        """Return the graphs that may run: only one if the condition is known."""
        need(product(condition) == 1, "a condition of one boolean", condition)
        value = valueOf(condition)
        isKnown = value is not None and value.dtype.kind != "O"
        return [self.branch(value)] if isKnown else list(self.held.values())

    def ofFitting(self, condition, shapes, rule):
        """Return the result of `rule` for each graph that may run and accepts the shapes."""
        results, faults = [], []
        for graph in self.candidates(condition):
            try:
                results.append(rule(graph, shapes))
            except ShapeError as error:
                faults.append(error)
        isOpen = any(isinstance(size, Dim) for shape in shapes for size in shape)
        if faults and (isOpen or not results):
            raise faults[0]
        return results

    def dataShapeFrom(self, condition, *shapes):
        branchShapes = self.ofFitting(condition, shapes, shapesInside)
        outs = [agreed(a, b, "each output") for a, b in zip(branchShapes[0], branchShapes[-1])]
        outs = [outside(shape, shapes) for shape in outs]
        return outs if len(outs) > 1 else outs[0]

    def dataTypeFrom(self, condition, *dtypes):
        needType(condition is None or condition.kind == "b", "booleans for condition", condition)
        branchTypes = [dtypesInside(graph, dtypes) for graph in self.held.values()]
        for a, b in zip(branchTypes[0], branchTypes[-1]):
            needType(a is None or b is None or a == b, "the same dtypes of both branches", f"{a} and {b}")
        outs = [a or b for a, b in zip(branchTypes[0], branchTypes[-1])]
        return outs if len(outs) > 1 else outs[0]

    def valueFrom(self, condition, *shapes):
        """Return the elements of each output on which both branches agree; None if they differ or are unknown."""
        branchValues = [
            list(map(valueOf, branchShapes)) for branchShapes in self.ofFitting(condition, shapes, shapesInside)
        ]
        areSame = [
            a is not None and b is not None and np.array_equal(a, b) for a, b in zip(branchValues[0], branchValues[-1])
        ]
        outs = [value if isSame else None for value, isSame in zip(branchValues[0], areSame)]
        return outs if len(outs) > 1 else outs[0]

    def hiddenShapeFrom(self, *shapes):
        return [()]

    def hiddenTypeFrom(self, *dtypes):
        return [np.dtype(object)]

    def flopsFrom(self, condition, *shapes):
        return max(self.ofFitting(condition, shapes, lambda graph, shapes: graph.flopsFrom(list(shapes))))

    # Rules ------------------------------------------------------------------------------------------------------------

    def updateData(self, condition, *arguments):
        graph, count = self.branch(condition), len(self.first.inputs)
        inputs, arrays = arguments[:count], arguments[count:]
        if self.isTraining:
            compiled = self.programs.passed(self, graph, inputs, arrays)
            if compiled is not None:
                return (*compiled.outputs, _InnerPass(graph, [compiled], {}))
        else:
            outs = self.programs.outputs(self, graph, inputs, arrays)
            if outs is not None:
                return (*outs, _InnerPass(graph, None, {}))
        stored = dict(zip(self.ruleNames, arrays))
        before = writtenStates(self, stored)
        values = self.run(graph, inputs, stored)
        return (*(values[n] for n in graph.steps().outputs), _InnerPass(graph, [values], before))

    def run(self, graph, inputs, stored):
        """Run a graph, and return all values of the pass, by number."""
        steps = graph.steps()
        checkInside(graph, inputs)
        return steps.run(list(inputs), self.numbered(steps, stored))

    def updateGrad(self, grad, condition, *arguments, needs):
        names, count, ran = self.ruleNames, len(self.first.inputs), arguments[-1]
        inputs, stored = arguments[:count], dict(zip(names, arguments[count:]))
        wanted = frozenset(id(param) for param, need in zip(self.ruleArrays, needs[1 + count :]) if need)
        known = ran.runs or [self.programs.passed(self, ran.graph, inputs, stored.values(), wanted)]
        values = known[0]
        isShort = isinstance(values, _CompiledPass) and not wanted <= values.wanted
        if values is None or isShort or isTraced((*inputs, *stored.values())):
            values = self.run(ran.graph, inputs, {**stored, **{k: x.copy() for k, x in ran.before.items()}})
        grads = grad if len(self.outputNames) > 1 else [grad]
        new, params = backThrough(ran.graph, grads, values, any(needs[1 : 1 + count]), wanted)
        allGrads = [None, *new, *self.inOrder(params)]
        return filledIn(allGrads, needs, (condition, *arguments))

    def brief(self):
        counts = [str(len(graph)) for graph in self.held.values()]
        return f"If({' or '.join(counts)} nodes)"

    # Testing ----------------------------------------------------------------------------------------------------------

    def sample(self, rng, condition, *shapes):
        return [rng.random(condition) < 0.5, *(rng.standard_normal(s) for s in shapes)]

    @classmethod
    def examples(cls):
        for outputs in (1, 2):
            x, y = Input(name="x").node(), Input(name="y").node()
            z = Add(name="sum").node(Linear(3, 3, name="fc").node(x), y)
            then = Graph([x, y], [z, x][:outputs])
            x, y = Input(name="x").node(), Input(name="y").node()
            z = Pointwise(formula="x * y", name="product").node(x, y)
            yield cls(then, Graph([x, y], [z, y][:outputs])), [(1,) * (outputs - 1), (2, 3), (2, 3)]
