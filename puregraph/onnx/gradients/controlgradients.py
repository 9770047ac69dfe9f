"""ControlGradients: gradients of modules that run graphs. If has a branch for each gradient; Loop, Scan run backwards.

Branches and runs are recomputed; the forward pass stacks the values that each run began with.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.core.errors import GraphError
from puregraph.core.shape import normalAxis
from puregraph.modules.control.ifelse import If
from puregraph.modules.control.innerpass import outside, shapesInside
from puregraph.modules.control.loop import Loop
from puregraph.modules.control.scan import Scan
from puregraph.onnx.gradients.gradientcall import GradientCall
from puregraph.onnx.gradients.gradientregistry import writesGradient
from puregraph.onnx.gradients.innergradient import InnerGradient, Ways
from puregraph.onnx.onnxwriter import End, OnnxStep


class ControlGradient(GradientCall):
    """The gradients of a module that runs graphs, for the inputs in `wanted` and the parameters in `params`."""

    def __init__(self, step: OnnxStep):
        super().__init__(step)
        names, needs = self.module.ruleNames, step.module.needed
        self.count = len(needs) - len(names)
        isFloat = [dtype is not None and dtype.kind == "f" for dtype in self.dtypes]
        self.wanted = [i for i in range(self.count) if needs[i] and isFloat[i]]
        self.stored = [getattr(self.module, name) for name in names]
        self.params = [param for param, need in zip(self.stored, needs[self.count :]) if need]
        self.order = step.module.wanted
        self.seeded = [i for i, x in enumerate(self.grads) if x is not None and self.kinds[i].kind == "f"]

    def ends(self, first: int, last: int | None = None) -> list[End]:
        """The names, dtypes and shapes of some inputs."""
        rows = zip(self.values[: self.count], self.dtypes, self.shapes)
        return [End(str(x), dtype, shape) for x, dtype, shape in list(rows)[first:last]]

    def none(self, argument: int) -> str:
        """Zeros in the shape and dtype of an argument."""
        return self.full(0, argument, self.dtypes[argument])

    def position(self, param: int) -> int:
        """The argument number of a parameter, by its id."""
        return self.count + next(i for i, stored in enumerate(self.stored) if id(stored) == param)

    def answers(self, inputs: dict[int, str], params: dict[int, str]) -> list[str | None]:
        """The gradient of each argument: zeros if it is wanted but no gradient reaches it, None if it is not wanted."""
        known = [*map(inputs.get, range(self.count)), *self.module.inOrder(params)]
        return [(x or self.none(i)) if i in self.order else None for i, x in enumerate(known)]


@writesGradient(If, forAnySize=True)
def branches(step: OnnxStep) -> list[str | None]:
    """If: each branch returns the gradients of one graph; if the condition is known, only that branch is written."""
    g = ControlGradient(step)
    if g.module.misfit:
        raise GraphError("one of its branches was not read, as it fits no data of these shapes")
    condition, ends = g.values[0], g.ends(1)
    chosen = g.module.candidates(g.shapes[0])
    if len(chosen) == 1:
        inner = branch(g, chosen[0], ends)
        step.writer.nodes += inner.writer.nodes
        return g.answers({i + 1: name for i, name in inner.inputs.items()}, inner.params)
    graphs = {}
    for key, graph in g.module.held.items():
        inner = branch(g, graph, ends)
        inside = g.at(inner.step)
        gradients = inside.answers({i + 1: name for i, name in inner.inputs.items()}, inner.params)
        outputs = [End(str(gradients[i]), g.dtypes[i], g.shapes[i]) for i in g.order]
        graphs[f"{key}_branch"] = inside.step.writer.attribute([], outputs, f"{step.path}:{key}")
    names = [step.fresh("gradient") for _ in g.order]
    g.op("If", condition, out=names, **graphs)
    return inOrder(g, names)


def branch(g: ControlGradient, graph: Any, ends: list[End]) -> InnerGradient:
    """The gradients of one graph of an If."""
    shapes = shapesInside(graph, [end.shape for end in ends])
    seeds = {i: End(str(g.grads[i]), g.kinds[i], shapes[i]) for i in g.seeded}
    return InnerGradient(g.step, graph, ends, seeds, Ways(graph, g.seeded, [i - 1 for i in g.wanted], g.params))


def inOrder(g: ControlGradient, names: list[str]) -> list[str | None]:
    """The gradient of every argument, None where none is required."""
    gradients: list[str | None] = [None] * (g.count + len(g.stored))
    for i, name in zip(g.order, names):
        gradients[i] = name
    return gradients


class RunGradient(ControlGradient):
    """Gradient of one run of a Loop or Scan, in a body that runs backwards, from the last run to the first.

    `carry` holds the names of the body's gradients of carried values, by number; `totals` the names of the gradient
    sums of values that all runs read, by argument; `rows` the names of the gradients of stacked outputs.
    """

    def __init__(self, step: OnnxStep, shapes: Any, outshapes: Any):
        super().__init__(step)
        m = self.module
        self.kept = step.writer.starts[str(self.values[-1])]
        self.first = m.leading if m.leading else 0
        self.behind = self.first + m.carried + m.sliced
        self.carriedShapes, self.outshapes = [outside(shape, self.shapes) for shape in shapes], outshapes
        if any(n is None for shape in self.carriedShapes for n in shape):
            raise GraphError("a value that it carries has another size in each run, so that its runs cannot be stacked")
        self.ways, live = self.reached()
        unique = step.writer.unique
        self.carry = {i: unique(f"{step.path}:carry{i}") for i in sorted(live)}
        self.rows = {i: unique(f"{step.path}:row{i}") for i in self.seeded if i >= m.carried}
        alike = [i for i in self.ways.inputs if i >= self.behind]
        positions = [*alike, *map(self.position, self.ways.params)]
        self.totals = {i: unique(f"{step.path}:total{i}") for i in positions}

    def reached(self) -> tuple[Ways, set[int]]:
        """The inputs and parameters that gradients reach in some run, and the carried values with a gradient after some
        run."""
        m, isFloat = self.module, [dtype.kind == "f" for dtype in self.dtypes[self.first :][: self.module.carried]]
        stacked = [m.answers + i for i in self.seeded if i >= m.carried]
        inputs = [
            *(self.first + i for i, f in enumerate(isFloat) if f),
            *(i for i in self.wanted if i >= self.first + m.carried),
        ]
        live = {i for i in self.seeded if i < m.carried}
        while True:
            ways = Ways(m.body, [*(m.answers + i for i in sorted(live)), *stacked], inputs, self.params)
            more = live | {i - self.first for i in ways.inputs if i < self.first + m.carried}
            if more == live:
                return ways, live
            live = more

    def carriedEnds(self) -> list[End]:
        """The gradients that the body receives from the next run and passes to the previous one."""
        dtypes = self.dtypes[self.first :]
        ends = [End(name, dtypes[i], self.carriedShapes[i]) for i, name in self.carry.items()]
        return ends + [End(name, self.dtypes[i], self.shapes[i]) for i, name in self.totals.items()]

    def beginning(self) -> list[str]:
        """The initial carried gradients, which are those after the last run."""
        starts = [str(self.grads[i]) if i in self.seeded else self.none(self.first + i) for i in self.carry]
        return starts + [self.none(i) for i in self.totals]

    def rowEnds(self) -> list[End]:
        """The gradients of stacked outputs in one run."""
        m = self.module
        return [End(name, self.kinds[i], self.outshapes[m.answers + i]) for i, name in self.rows.items()]

    def run(self, controls: list[End], starts: list[End], slices: list[End]) -> tuple[InnerGradient, list[str]]:
        """Write the gradient of a run; returns it and the names of the gradients passed to the previous run."""
        m = self.module
        ends = [*controls, *starts, *slices, *self.ends(self.behind)]
        carried = {m.answers + i: end for i, end in zip(self.carry, self.carriedEnds())}
        rows = {m.answers + i: end for i, end in zip(self.rows, self.rowEnds())}
        inner = InnerGradient(self.step, m.body, ends, {**carried, **rows}, self.ways)
        inside = self.at(inner.step)
        carriedGrads = [inner.inputs.get(self.first + i) or inside.none(self.first + i) for i in self.carry]
        params = {self.position(key): name for key, name in inner.params.items()}
        new = {**inner.inputs, **params}
        return inner, carriedGrads + [inside.op("Add", total, new[i]) for i, total in self.totals.items()]

    def outcome(self, names: list[str], slices: dict[int, str]) -> list[str | None]:
        """The gradient of every argument, from the gradients of the first run and the stacked gradients of slices."""
        inputs = {self.first + i: name for i, name in zip(self.carry, names)}
        sums = dict(zip(self.totals, names[len(self.carry) :]))
        positions = {self.position(id(param)): id(param) for param in self.params}
        params = {positions[i]: name for i, name in sums.items() if i in positions}
        return self.answers({**inputs, **slices, **sums}, params)


@writesGradient(Loop, forAnySize=True)
def loopBack(step: OnnxStep) -> list[str | None]:
    """Loop: as many runs as the forward pass; each reads the stored values of its run, from the last one on."""
    m, call = step.module.of, GradientCall(step)
    before = [(1,) * rank for rank in m.ranks]
    inputShapes = call.shapes[: len(step.module.needed) - len(m.ruleNames)]
    shapes, outshapes = m.settled(before, inputShapes[2 : 2 + m.carried], inputShapes[2 + m.carried :], inputShapes)
    g = RunGradient(step, shapes, outshapes)
    last = g.op("Sub", g.op("Gather", g.op("Shape", g.kept[0]), g.number(0, np.int64)), g.number(1, np.int64))
    t, on = (step.writer.unique(f"{step.path}:{name}") for name in ("t", "on"))
    kinds = [np.dtype(np.int64), *g.dtypes[2 : 2 + m.carried]]
    names = [step.writer.unique(f"{step.path}:start{i}") for i in range(1 + m.carried)]
    first, *starts = list(map(End, names, kinds, [before[0], *g.carriedShapes]))
    isOn = End(g.number(np.ones(before[1], bool), bool), np.dtype(bool), before[1])
    inner, new = g.run([first, isOn], starts, [])
    inside = inner.step
    now = inside.op("Sub", last, t)
    stacks = [*zip(g.kept, names), *((g.grads[i], name) for i, name in g.rows.items())]
    for stack, name in stacks:
        inside.op("Gather", stack, now, out=name)
    ends = g.carriedEnds()
    inputs = [End(t, np.dtype(np.int64), ()), End(on, np.dtype(bool), ()), *ends]
    outputs = [End(inside.op("Identity", on), bool, ()), *(e._replace(name=name) for e, name in zip(ends, new))]
    body = inside.writer.attribute(inputs, outputs, f"{step.path}:body")
    gradients = [step.fresh("gradient") for _ in ends]
    count = g.op("Add", last, g.number(1, np.int64))
    g.op("Loop", count, g.number(True, bool), *g.beginning(), out=gradients, body=body)
    return g.outcome(gradients, {})


@writesGradient(Scan, forAnySize=True)
def scanBack(step: OnnxStep) -> list[str | None]:
    """Scan: runs in the opposite direction along each axis."""
    m, call = step.module.of, GradientCall(step)
    inputShapes = call.shapes[: len(step.module.needed) - len(m.ruleNames)]
    carried, scanned, alike = m.parted(inputShapes)
    axes = [normalAxis(axis, len(shape)) for (axis, _), shape in zip(m.ins, scanned)]
    parts = [tuple(shape[:axis]) + tuple(shape[axis + 1 :]) for axis, shape in zip(axes, scanned)]
    shapes, outshapes = m.settled([], carried, [*parts, *alike], inputShapes)
    g = RunGradient(step, shapes, outshapes)
    unique = step.writer.unique
    starts = [End(unique(f"{step.path}:start{i}"), g.dtypes[i], s) for i, s in enumerate(g.carriedShapes)]
    slices = [End(unique(f"{step.path}:slice{i}"), g.dtypes[m.carried + i], shape) for i, shape in enumerate(parts)]
    inner, new = g.run([], starts, slices)
    wanted = [i for i in g.ways.inputs if m.carried <= i < g.behind]
    ends = g.carriedEnds()
    outputs = [e._replace(name=name) for e, name in zip(ends, new)]
    outputs += [slices[i - m.carried]._replace(name=inner.inputs[i]) for i in wanted]
    body = inner.writer.attribute([*ends, *starts, *slices, *g.rowEnds()], outputs, f"{step.path}:body")
    ways = [(0, True)] * m.carried + [(axis, not back) for axis, back in m.ins]
    ways += [(axis, not back) for axis, back in (m.outs[i - m.carried] for i in g.rows)]
    gradients = [step.fresh("gradient") for _ in outputs]
    g.op(
        "Scan",
        *g.beginning(),
        *g.kept,
        *g.values[m.carried : g.behind],
        *(g.grads[i] for i in g.rows),
        out=gradients,
        body=body,
        num_scan_inputs=len(ways),
        scan_input_axes=[axis for axis, _ in ways],
        scan_input_directions=[int(back) for _, back in ways],
        scan_output_axes=[m.ins[i - m.carried][0] for i in wanted] or None,
        scan_output_directions=[int(not m.ins[i - m.carried][1]) for i in wanted] or None,
    )
    return g.outcome(gradients, dict(zip(wanted, gradients[len(ends) :])))
