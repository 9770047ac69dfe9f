"""Schedule: forward, cost, backward and update of a graph as one list of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from puregraph.base.dtype import isByte, isFloating
from puregraph.compile.decompose import decompositionOf
from puregraph.compile.ir.external import GradientOf
from puregraph.compile.ir.printer import listing
from puregraph.compile.ir.strides import contiguous, dense
from puregraph.compile.ir.value import Call, CallOrigin, Value, copy, store
from puregraph.compile.lower.bounds import Bounds, canBeChecked, fractionBounds
from puregraph.compile.passes.startbuckets import withStarts
from puregraph.compile.trace.abstract import readUfunc
from puregraph.compile.trace.graphtracer import GraphTracer
from puregraph.compile.trace.numpyrules import readCast
from puregraph.compile.trace.opaque import NotArraysError, OpenSizesError, RuleProfile
from puregraph.compile.trace.updaterule import addUpdate, isPlain
from puregraph.compile.trace.withcost import readAs
from puregraph.compile.weightgather import beforeReaders
from puregraph.core.param import State
from puregraph.core.shape import symbols
from puregraph.core.tracer import astype
from puregraph.device import toHost
from puregraph.errors import GraphError, show
from puregraph.graph import Graph
from puregraph.graph.backward import Accumulate, Gradient
from puregraph.graph.steps import Steps


class Schedule:
    """One step as a list of calls.

    `calls`       in the order in which they run
    `inputs`      the Values of the graph's inputs, then those of the gradients of outputs that are given from outside
    `outputs`     those of its outputs; `inputGrads` of the gradients of its inputs, None where there is none
    `paramGrads`  (Param, Value) of every gradient of a parameter, summed over its uses
    `stores`      (target, Value): the content of a Param, a State, or one of `targets`, after the step
    `written`     every Param and State that the step writes to
    `held`        (target, Value): the content of each of those, and of every Param and State that is read, before it
    `checks`      the Bounds of inputs that rules refuse otherwise
    `scalars`     the Values of numbers that are set before, or in the middle of, every run
    `precisions`  by the number of a Value the dtype that a GPU may store it in: results of modules that allow it, and
                  their gradients
    `scales`      whether gradients are stored in float16, so that the loss has to be scaled
    `seed`        the gradient of a cost, if it is the loss scale; `gradients` are then those of parameters, before they
                  are read; `scale` is that number, if the step changes it
    `buckets`     the GradientBuckets that are started while backward runs
    `unread`      the ids of modules with opaque rules
    `owner`       the optimizer that is notified of a cost that is not finite, and then makes no update
    `count`       the highest number of a Value
    """

    def __init__(self, graph: Graph, steps: Steps):
        self.graph, self.steps = graph, steps
        self.calls: list[Call] = []
        self.inputs: list[Value] = []
        self.outputs: list[Any] = []
        self.inputGrads: list[Any] = []
        self.paramGrads: list[tuple[Any, Value]] = []
        self.stores: list[tuple[Any, Value]] = []
        self.written: list[Any] = []
        self.held: list[tuple[Any, Value]] = []
        self.checks: list[Bounds] = []
        self.scalars: list[Value] = []
        self.precisions: dict[int, str] = {}
        self.scales = False
        self.seed: Value | None = None
        self.scale: Value | None = None
        self.gradients: list[Value] = []
        self.packedWeights: Any = None  # weights in the layout of native code
        self.owner: Any = None
        self.buckets: Any = None
        self.unread: set[int] = set()
        self.reads: list[Any] = []
        self.count = 0

    def kept(self) -> list[Value]:
        """The Values that are read after the last call."""
        found = [*self.outputs, *self.inputGrads, *(v for _, v in self.stores)]
        return [v for v in found if v is not None]

    def __str__(self) -> str:
        return listing(self)

    def __repr__(self) -> str:
        return f"<Schedule of {self.graph.title()}: {len(self.calls)} calls>"


def traceStep(
    graph: Graph,
    shapes: Sequence[Any],
    dtypes: Sequence[Any] | None = None,
    grads: Sequence[bool] | str | None = None,
    updGrad: bool = True,
    optimizer: Any = None,
    keepGrads: bool = True,
    scaled: bool = False,
    added: bool = False,
    guarded: bool = False,
    owner: Any = None,
    wanted: Sequence[bool] | None = None,
    buckets: Any = None,
    weights: Any = None,
    trial: RuleProfile | None = None,
    orders: Sequence[Any] | None = None,
    layout: Any = None,
    keepsComposite: Any = None,
    scales: bool = False,
    converts: bool = False,
) -> Schedule:
    """Trace a graph's passes for inputs of these shapes, in the modes of its modules.

    `grads`      None: forward only; "one": backward from the first output, a scalar; or for each output whether its
                 gradient is given as a further input
    `updGrad`    whether the inputs get gradients; `keepGrads`: whether those of parameters are left in `Param.grad`
    `optimizer`  updates the parameters at the end; `weights`: those that are in pieces, see `WeightGather`
    `scaled`     whether they are multiplied by the scalar "scale"; `added`: whether `Param.grad` is added to them
    `guarded`    whether the step ends if the first output, a cost, is not finite; `owner`: the optimizer that skips
                 its update too, in a step of its own
    `wanted`     for each output whether it is read after the step; left out: all are; `buckets`: as of the Schedule
    `orders`     for each input its axes from the slowest to the fastest, as it is stored; None: row-major
    `layout`     decides the layout of kernels' results, see `channelslast.layoutFor`; None: numpy's; `keepsComposite`:
                 whether a kernel composed of numpy's functions is one call; left out: all are
    `scales`     whether the gradient of the first output is open, see `Schedule.seed`; `converts`: bytes to floats
    `trial`      the results of opaque rules, when the graph itself ran

    Raises    ShapeError if the shapes do not fit; UntriedError if there is such a rule and no trial; NotArraysError if
              a value of the graph is no array
    """
    shapes = [tuple(s) for s in shapes]
    checkShapes(graph, shapes, dtypes)
    found = Schedule(graph, graph.steps(len(shapes)))
    found.owner, found.scales, found.buckets = owner, scales, buckets
    tracer = tracerFor(trial, layout, keepsComposite, weights)
    addInputs(found, tracer, shapes, dtypes or [graph.dtype or np.float32] * len(shapes), orders)
    values = forward(found, tracer, converts)
    if grads is not None:
        if guarded:
            guard(found, tracer)
        backward(found, tracer, values, grads, updGrad)
        accumulate(found, tracer, scaled, added)
    copyBeforeUpdate(found, tracer, optimizer)
    storeStates(found, tracer)
    if optimizer is not None:
        addUpdate(found, tracer, optimizer)
    if keepGrads and (optimizer is None or isPlain(optimizer)):
        found.stores += [(GradientOf(p, v.dtype), v) for p, v in found.paramGrads]
    finish(found, tracer, wanted)
    return found


def copyBeforeUpdate(found: Schedule, tracer: GraphTracer, optimizer: Any) -> None:
    """Copy the results that are parameters or states themselves: the end of the step writes to these."""
    written = ("state",) if optimizer is None else ("state", "param")

    def kept(y: Any) -> Any:
        if y is None or y.root.role not in written:
            return y
        layout = contiguous(y.shape, y.dtype.itemsize)
        return tracer.recorder.made(copy, (y,), {}, "copy", y.shape, y.dtype, layout)

    found.outputs, found.inputGrads = list(map(kept, found.outputs)), list(map(kept, found.inputGrads))


def finish(found: Schedule, tracer: GraphTracer, wanted: Sequence[bool] | None) -> None:
    """Take over what was traced, but for outputs that nobody wants."""
    if wanted is not None:
        found.outputs = [y if w else None for y, w in zip(found.outputs, wanted, strict=True)]
    found.held, found.unread, found.reads = tracer.targets(), tracer.unread, tracer.reads
    ownMemory(found, tracer)
    found.calls, found.count = beforeReaders(tracer.recorder.calls), tracer.recorder.count


def checkShapes(graph: Graph, shapes: list[Any], dtypes: Sequence[Any] | None = None) -> None:
    """Raise    ShapeError if the shapes do not fit; OpenSizesError naming the first node whose sizes depend on data."""
    found = graph.infer(shapes)
    if dtypes is not None and any(row.fault for row in found.rows):  # rules may take what comes in, not the graph's own
        found = graph.infer(shapes, dtypes=list(dtypes))
    if any(row.fault for row in found.rows):
        graph.dataShapeFrom(shapes)  # its error lists them all
    if found.isOpen:
        row = next(r for r in found.rows if any(symbols(s) for s in r.shapes or ()))
        raise OpenSizesError(f"at '{row.step.path}' ({row.step.label}): sizes depend on the data: {show(row.shapes)}")


def tracerFor(trial: RuleProfile | None, layout: Any, keepsComposite: Any, weights: Any) -> GraphTracer:
    """A tracer; with a layout of native code, functions are decomposed as well."""
    tracer = GraphTracer(trial, weights)
    if layout is not None:
        tracer.recorder.layout, tracer.recorder.keepsComposite = layout, keepsComposite
        tracer.recorder.decompositionOf = decompositionOf
    return tracer


def traceUpdate(graph: Graph, optimizer: Any, scales: bool = False) -> Schedule:
    """The calls of an optimizer's update alone, with the gradients of `Param.grad`."""
    found = Schedule(graph, graph.steps())
    found.scales = scales
    found.owner = optimizer
    tracer = GraphTracer()
    for slot in optimizer.ready():
        target = GradientOf(slot.param, slot.param.grad.dtype)
        found.paramGrads.append((slot.param, tracer.held(target, f"d:{slot.path}")))
    addUpdate(found, tracer, optimizer)
    found.held = tracer.targets()
    found.calls, found.count = tracer.recorder.calls, tracer.recorder.count
    return found


def isFinite(cost: Any) -> bool:
    """Whether a cost is finite."""
    return bool(np.isfinite(toHost(cost)))


def guard(found: Schedule, tracer: GraphTracer) -> None:
    """End the step there if the cost is not finite."""
    tracer.recorder.origin = CallOrigin("cost", "", (), "forward")
    tracer.recorder.add(isFinite, (found.outputs[0],), {}, [], "host")


def accumulate(found: Schedule, tracer: GraphTracer, scaled: bool, added: bool) -> None:
    """Scale the gradients of parameters, and add existing ones; for buckets each at once, behind its last operand."""
    recorder, scales, first = tracer.recorder, {}, len(tracer.recorder.calls)
    for index, (param, new) in enumerate(found.paramGrads):
        recorder.origin = CallOrigin(f"sum:{new.name}", "", (), "backward")
        if scaled:
            if new.dtype not in scales:
                scales[new.dtype] = recorder.value((), new.dtype, role="scalar", name="scale", source="scale")
            new = readUfunc(recorder, np.multiply, [new, scales[new.dtype]], {})
        if added:
            old = tracer.held(GradientOf(param, new.dtype), new.name)
            new = readUfunc(recorder, np.add, [new, old], {})
        found.paramGrads[index] = param, new
    found.scalars += scales.values()
    if found.buckets is not None:
        recorder.calls[:] = behindOperands(recorder.calls, first)
    if found.buckets is not None and found.buckets.isPassing:
        recorder.calls[:] = withStarts(recorder.calls, found.buckets, {id(p): v for p, v in found.paramGrads})


def behindOperands(calls: list[Call], first: int) -> list[Call]:
    """The calls with those from `first` on moved behind the last one that makes an operand of theirs."""
    makers: dict[int, Call] = {y.number: call for call in calls for y in call.outs if y is not None}
    order = {id(call): i for i, call in enumerate(calls)}
    followers: dict[int, list[Call]] = {}
    for call in calls[first:]:
        of = [makers[v.number] for v in call.values() if v.number in makers]
        followers.setdefault(id(max(of, key=lambda each: order[id(each)])), []).append(call)
    found: list[Call] = []
    waiting = calls[:first][::-1]
    while waiting:
        call = waiting.pop()
        found.append(call)
        waiting += followers.get(id(call), [])[::-1]
    return found


def storeStates(found: Schedule, tracer: GraphTracer) -> None:
    """Store the new values of States, once no call can fail any more."""
    tracer.recorder.origin = CallOrigin("states", "", (), "backward")
    changes = [(stored, v) for stored, v in tracer.changes if isinstance(stored, State)]
    kept = [(stored, copied(tracer, v) if v.root.role == "state" else v) for stored, v in changes]
    for stored, value in kept:
        tracer.recorder.add(store, (value,), {"target": stored}, [], "store")
        found.written.append(stored)


def copied(tracer: GraphTracer, value: Value) -> Value:
    """A Value in memory of its own."""
    return tracer.recorder.made(copy, (value,), {}, "copy", value.shape, value.dtype)


def ownMemory(found: Schedule, tracer: GraphTracer) -> None:
    """Have every stored value computed by a call: one that is in a target, or a constant, is copied."""
    for index, (target, value) in enumerate(found.stores):
        if value.root.role != "made":
            tracer.recorder.origin = CallOrigin("store", "", (), "update")
            found.stores[index] = target, copied(tracer, value)


def addInputs(
    found: Schedule, tracer: GraphTracer, shapes: list[Any], dtypes: Sequence[Any], orders: Sequence[Any] | None
) -> None:
    """The Values of the inputs."""
    steps = found.steps
    rows = zip(steps.inputs, shapes, map(np.dtype, dtypes), orders or [None] * len(shapes), strict=True)
    for number, shape, dtype, order in rows:
        strides = None if order is None else dense(shape, order, dtype.itemsize)
        found.inputs.append(tracer.recorder.value(shape, dtype, strides, "input", steps.names[number]))


def forward(found: Schedule, tracer: GraphTracer, converts: bool) -> list[Any]:
    """The forward rules; the Value of every node."""
    steps, recorder, dtypes = found.steps, tracer.recorder, [x.dtype for x in found.inputs]
    asked = found.graph.inputTypes(len(dtypes), dtypes) if converts else dtypes
    values: list[Any] = [None] * steps.count
    fractions = readAs(steps, "fractions")
    for number, x, dtype, wanted in zip(steps.inputs, found.inputs, dtypes, asked, strict=True):
        values[number] = x
        if number in fractions and canBeChecked(x):
            found.checks.append(fractionBounds(x))
        if isByte(dtype) and isFloating(wanted):
            recorder.origin = CallOrigin(x.name)
            values[number] = readCast(recorder, astype, [x, wanted], {})
    stored = {n: p for n, module, name in steps.params if (p := getattr(module, name)) is not None}
    run(found, tracer, steps, values, stored, "forward")
    found.outputs = [values[n] for n in steps.outputs]
    if any(v.role == "object" for v in found.outputs if v is not None):
        raise NotArraysError(f"{found.graph.title()}: an output is no array")
    return values


def run(
    found: Schedule, tracer: GraphTracer, steps: Steps, values: list[Any], stored: dict[int, Any], phase: str
) -> None:
    """Trace all rules of a list of steps."""
    for step in steps.items:
        for n in step.args:
            if n in stored:
                values[n] = tracer.held(stored[n], steps.names[n])
        results = tracer.rule(step, [values[n] for n in step.args], phase)
        for number, y in zip(step.outs, results, strict=True):
            values[number] = y
            if y is not None and not y.name and y.role != "constant":
                y.name = steps.names[number]
        notePrecision(found.precisions, step, [values[n] for n in step.args], results)


def notePrecision(known: dict[int, str], step: Any, given: list[Any], results: list[Any]) -> None:
    """Set the dtype that a GPU may store the results of a rule in: those of a module, as it allows, and a gradient
    like its value."""
    module = step.module
    if isinstance(module, Gradient):
        of = module.complete(tuple(given))[module.grads :]
        kinds = [None if of[i] is None else known.get(of[i].number) for i in module.wanted]
    elif isinstance(module, Accumulate):
        each = {None if g is None else known.get(g.number) for g in given}
        kinds = [each.pop() if len(each) == 1 else None]
    else:
        kinds = [module.precision] * len(step.visible)
    for y, kind in zip(results, kinds):
        if kind is not None and kind != "float32" and y is not None and y.shape:
            known[y.number] = kind


def backward(found: Schedule, tracer: GraphTracer, values: list[Any], grads: Any, updGrad: bool) -> None:
    """Trace the gradient rules in the order of the backward graph, with its sums."""
    graph, steps, recorder = found.graph, found.steps, tracer.recorder
    tracer.gathered.clear()  # weights that forward has read are let go
    if found.scales and grads == "one":
        found.seed = recorder.value((), found.outputs[0].dtype, role="scalar", name="scale")
    back = graph.backwardGraph(updGrad, True, steps)
    inner = back.steps()
    seeds = seedsFor(found, tracer, grads)
    stored = {n: p for n, module, name in steps.params if (p := getattr(module, name)) is not None}
    for n, p in stored.items():
        values[n] = tracer.held(p, steps.names[n])
    backs: list[Any] = [None] * inner.count
    for number, value in zip(inner.inputs, [*seeds, *[values[n] for n in back.numbers]], strict=True):
        backs[number] = value
    run(found, tracer, inner, backs, {}, "backward")
    results = iter([backs[n] for n in inner.outputs])
    inputs = [None if edge is None else next(results) for edge in back.inputGrads]
    found.inputGrads = [g if isFloating(values[n].dtype) else None for g, n in zip(inputs, steps.inputs, strict=True)]
    totals: dict[int, tuple[Any, Any]] = {}
    for param, edge in back.paramGrads:
        new = None if edge is None else next(results)
        if new is not None:
            old = totals.get(id(param))
            if old is not None:
                recorder.origin = CallOrigin(f"sum:{new.name}", "Accumulate", (), "backward")
                new = readUfunc(recorder, np.add, [old[1], new], {})
            totals[id(param)] = param, new
    found.paramGrads = list(totals.values())
    found.gradients = [v for _, v in found.paramGrads]


def seedsFor(found: Schedule, tracer: GraphTracer, grads: Any) -> list[Any]:
    """The gradient of each output."""
    if any(v is None for v in found.outputs):
        raise NotArraysError(f"{found.graph.title()}: an output is None, and has no gradient")
    if isinstance(grads, str):
        first = found.outputs[0]
        if first.shape != ():
            raise GraphError(f"{found.graph.title()}: backward wanted an output of one number, got {show(first.shape)}")
        one = found.seed or tracer.recorder.constant(np.ones((), first.dtype))
        return [one, *[None] * (len(found.outputs) - 1)]
    seeds: list[Any] = []
    for index, (given, y) in enumerate(zip(grads, found.outputs, strict=True)):
        name = found.steps.names[found.steps.outputs[index]]
        seeds.append(tracer.recorder.value(y.shape, y.dtype, role="input", name=f"d:{name}") if given else None)
    found.inputs += [s for s in seeds if s is not None]
    return seeds
