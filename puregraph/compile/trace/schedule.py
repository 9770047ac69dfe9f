"""Schedule: forward, cost, backward and update of a graph as one list of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from puregraph.compile.ir.external import GradientOf
from puregraph.compile.ir.printer import listing
from puregraph.compile.passes.startbuckets import withStarts
from puregraph.compile.trace import loopbody  # noqa: F401  it declares how a loop is recorded
from puregraph.compile.trace.abstract import readUfunc
from puregraph.compile.trace.decompositions import decompositionOf
from puregraph.compile.trace.graphtracer import GraphTracer
from puregraph.compile.trace.numpyrules import readCast
from puregraph.compile.trace.opaque import NotArraysError, OpenSizesError
from puregraph.compile.trace.steprequest import FORWARD, StepRequest
from puregraph.compile.trace.updaterule import addUpdate, isPlain
from puregraph.compile.trace.withcost import readAs
from puregraph.compile.weightgather import beforeReaders
from puregraph.core.base.dtype import isByte, isFloating
from puregraph.core.device import toHost
from puregraph.core.errors import GraphError, show
from puregraph.core.opensize import numbered
from puregraph.core.param import State
from puregraph.core.shape import symbols
from puregraph.core.tracer import astype
from puregraph.graph import Graph
from puregraph.graph.backward import Accumulate, Gradient
from puregraph.graph.steps import Steps
from puregraph.ops.ir.bounds import Bounds, canBeChecked, fractionBounds
from puregraph.ops.ir.strides import contiguous, dense
from puregraph.ops.ir.value import Call, CallOrigin, Value, copy, store

if TYPE_CHECKING:
    from puregraph.compile.gpu.passes.predication import HostUpdate
    from puregraph.compile.gradientbuckets import GradientBuckets
    from puregraph.compile.ir.external import StoreTarget
    from puregraph.compile.lower.openstep import OpenStep
    from puregraph.compile.lower.packedweights import PackedWeights
    from puregraph.core.param import Param, Stored
    from puregraph.core.shape import Shape
    from puregraph.optimizers.optimizer import Optimizer


class Schedule:
    """One step as a list of calls.

    `calls`       the calls in execution order
    `inputs`      the Values of the graph's inputs, then of output gradients that the caller passes in
    `outputs`     the Values of the graph's outputs; `inputGrads`: the gradients of its inputs, or None
    `paramGrads`  (Param, Value) for the gradient of every parameter, summed over its uses
    `stores`      (target, Value): the content of a Param, a State or another target after the step
    `written`     every Param and State that the step writes to
    `held`        (target, Value): the content, before the step, of every Param, State or other target that it uses
    `checks`      the Bounds of inputs; a rule refuses values outside of them
    `scalars`     the Values of numbers that are set before or during every run
    `precisions`  by Value number, the dtype that a GPU may store a value in: results of modules that allow it, and
                  their gradients
    `scales`      whether gradients are stored in float16, so that the loss must be scaled
    `seed`        the gradient of the cost, if it is the loss scale; `gradients`: the parameter gradients as backward
                  computes them, still scaled; `scale`: the loss scale, if the step changes it
    `buckets`     the GradientBuckets that start while backward runs
    `unread`      the ids of modules with opaque rules
    `owner`       the optimizer to notify of a cost that is not finite; it then skips its update
    `count`       the highest Value number
    """

    hostUpdate: HostUpdate  # of a step whose update is predicated
    model: OpenStep | None = None  # the step with open sizes that it was made from

    def __init__(self, graph: Graph, steps: Steps):
        self.graph, self.steps = graph, steps
        self.calls: list[Call] = []
        self.inputs: list[Value] = []
        self.outputs: list[Any] = []
        self.inputGrads: list[Value | None] = []
        self.paramGrads: list[tuple[Param, Value]] = []
        self.stores: list[tuple[StoreTarget, Value]] = []
        self.written: list[Stored] = []
        self.held: list[tuple[StoreTarget, Value]] = []
        self.checks: list[Bounds] = []
        self.scalars: list[Value] = []
        self.precisions: dict[int, str] = {}
        self.scales = False
        self.seed: Value | None = None
        self.scale: Value | None = None
        self.gradients: list[Value] = []
        self.packedWeights: PackedWeights | None = None  # weights in the layout of native code
        self.owner: Optimizer | None = None
        self.buckets: GradientBuckets | None = None
        self.unread: set[int] = set()
        self.reads: list[Any] = []
        self.count = 0

    def kept(self) -> list[Value]:
        """The Values that are read after the last call."""
        values = [*self.outputs, *self.inputGrads, *(v for _, v in self.stores)]
        return [v for v in values if v is not None]

    def __str__(self) -> str:
        return listing(self)

    def __repr__(self) -> str:
        return f"<Schedule of {self.graph.title()}: {len(self.calls)} calls>"


def traceStep(
    graph: Graph, shapes: Sequence[Shape], dtypes: Sequence[DTypeLike] | None = None, request: StepRequest = FORWARD
) -> Schedule:
    """Trace a graph's passes for inputs of these shapes, in the modes of its modules.

    Raises    ShapeError if the shapes do not fit; UntriedError if a rule is opaque and there is no trial;
              NotArraysError if a value of the graph is not an array
    """
    shapes = [tuple(s) for s in shapes]
    checkShapes(graph, list(numbered(tuple(shapes))), dtypes)
    schedule, optimizer = Schedule(graph, graph.steps(len(shapes))), request.optimizer
    schedule.owner, schedule.scales, schedule.buckets = request.owner, request.scales, request.buckets
    tracer = tracerFor(request)
    addInputs(schedule, tracer, shapes, dtypes or [graph.dtype or np.float32] * len(shapes), request.orders)
    values = forward(schedule, tracer, request.converts)
    if request.grads is not None:
        if request.guarded:
            guard(schedule, tracer)
        backward(schedule, tracer, values, request.grads, request.updGrad)
        accumulate(schedule, tracer, request.scaled, request.added)
    copyBeforeUpdate(schedule, tracer, optimizer)
    storeStates(schedule, tracer)
    if optimizer is not None:
        addUpdate(schedule, tracer, optimizer)
    if request.keepGrads and (optimizer is None or isPlain(optimizer)):
        schedule.stores += [(GradientOf(p, v.dtype), v) for p, v in schedule.paramGrads]
    finish(schedule, tracer, request.wanted)
    return schedule


def copyBeforeUpdate(schedule: Schedule, tracer: GraphTracer, optimizer: Optimizer | None) -> None:
    """Copy results that share memory with parameters or states: the end of the step overwrites these."""
    written = ("state",) if optimizer is None else ("state", "param")

    def kept(y: Value | None) -> Value | None:
        if y is None or y.root.role not in written:
            return y
        layout = contiguous(y.shape, y.dtype.itemsize)
        return tracer.recorder.made(copy, (y,), {}, "copy", y.shape, y.dtype, layout)

    schedule.outputs, schedule.inputGrads = list(map(kept, schedule.outputs)), list(map(kept, schedule.inputGrads))


def finish(schedule: Schedule, tracer: GraphTracer, wanted: Sequence[bool] | None) -> None:
    """Copy the tracer's results into the schedule, without unwanted outputs."""
    if wanted is not None:
        schedule.outputs = [y if w else None for y, w in zip(schedule.outputs, wanted, strict=True)]
    schedule.held, schedule.unread, schedule.reads = tracer.targets(), tracer.unread, tracer.reads
    ownMemory(schedule, tracer)
    schedule.calls, schedule.count = beforeReaders(tracer.recorder.calls), tracer.recorder.count


def checkShapes(graph: Graph, shapes: Sequence[Shape], dtypes: Sequence[DTypeLike] | None = None) -> None:
    """Raise ShapeError if the shapes do not fit, OpenSizesError naming the first node whose sizes depend on data."""
    inferred = graph.infer(shapes)
    if dtypes is not None and any(row.fault for row in inferred.rows):
        inferred = graph.infer(shapes, dtypes=list(dtypes))
    if any(row.fault for row in inferred.rows):
        graph.dataShapeFrom(shapes)  # raises an error that lists all faults
    if inferred.isOpen:
        row = next(r for r in inferred.rows if any(symbols(s) for s in r.shapes or ()))
        raise OpenSizesError(f"at '{row.step.path}' ({row.step.label}): sizes depend on the data: {show(row.shapes)}")


def tracerFor(request: StepRequest) -> GraphTracer:
    """A tracer; with a layout for native code it also decomposes functions."""
    tracer = GraphTracer(request.trial, request.weights)
    if request.layout is not None:
        tracer.recorder.layout, tracer.recorder.keepsComposite = request.layout, request.keepsComposite
        tracer.recorder.decompositionOf = decompositionOf
    return tracer


def traceUpdate(graph: Graph, optimizer: Optimizer, scales: bool = False) -> Schedule:
    """The calls of an optimizer's update alone, with the gradients of `Param.grad`."""
    schedule = Schedule(graph, graph.steps())
    schedule.scales = scales
    schedule.owner = optimizer
    tracer = GraphTracer()
    for slot in optimizer.ready():
        target = GradientOf(slot.param, slot.param.grad.dtype)
        schedule.paramGrads.append((slot.param, tracer.held(target, f"d:{slot.path}")))
    addUpdate(schedule, tracer, optimizer)
    schedule.held = tracer.targets()
    schedule.calls, schedule.count = tracer.recorder.calls, tracer.recorder.count
    return schedule


def isFinite(cost: Any) -> bool:
    """True if a cost is finite."""
    return bool(np.isfinite(toHost(cost)))


def guard(schedule: Schedule, tracer: GraphTracer) -> None:
    """Add a call that ends the step if the cost is not finite."""
    tracer.recorder.origin = CallOrigin("cost", "", (), "forward")
    tracer.recorder.add(isFinite, (schedule.outputs[0],), {}, [], "host")


def accumulate(schedule: Schedule, tracer: GraphTracer, scaled: bool, added: bool) -> None:
    """Scale the parameter gradients and add existing ones; with buckets, each right after its last operand is made."""
    recorder, scales, first = tracer.recorder, {}, len(tracer.recorder.calls)
    for index, (param, new) in enumerate(schedule.paramGrads):
        recorder.origin = CallOrigin(f"sum:{new.name}", "", (), "backward")
        if scaled:
            if new.dtype not in scales:
                scales[new.dtype] = recorder.value((), new.dtype, role="scalar", name="scale", source="scale")
            new = readUfunc(recorder, np.multiply, [new, scales[new.dtype]], {})
        if added:
            old = tracer.held(GradientOf(param, new.dtype), new.name)
            new = readUfunc(recorder, np.add, [new, old], {})
        schedule.paramGrads[index] = param, new
    schedule.scalars += scales.values()
    if schedule.buckets is not None:
        recorder.calls[:] = behindOperands(recorder.calls, first)
    if schedule.buckets is not None and schedule.buckets.isPassing:
        recorder.calls[:] = withStarts(recorder.calls, schedule.buckets, {id(p): v for p, v in schedule.paramGrads})


def behindOperands(calls: list[Call], first: int) -> list[Call]:
    """Move each call from `first` on to right after the call that makes its last operand: to the start if none does, as
    of a gradient that is constant."""
    makers: dict[int, Call] = {y.number: call for call in calls for y in call.outs if y is not None}
    order = {id(call): i for i, call in enumerate(calls)}
    followers: dict[int | None, list[Call]] = {}
    for call in calls[first:]:
        of = [makers[v.number] for v in call.values() if v.number in makers]
        last = id(max(of, key=lambda maker: order[id(maker)])) if of else None
        followers.setdefault(last, []).append(call)
    ordered: list[Call] = []
    waiting = [*calls[:first][::-1], *followers.get(None, [])[::-1]]
    while waiting:
        call = waiting.pop()
        ordered.append(call)
        waiting += followers.get(id(call), [])[::-1]
    return ordered


def storeStates(schedule: Schedule, tracer: GraphTracer) -> None:
    """Store the new values of States at the end, when no call can fail any more, but for those written in place."""
    tracer.recorder.origin = CallOrigin("states", "", (), "backward")
    changes = [(stored, v) for stored, v in tracer.changes if isinstance(stored, State)]
    schedule.written += [stored for stored, _ in changes]
    changes = [(stored, v) for stored, v in changes if not (v.call is not None and v.call.kind.isUpdate)]
    kept = [(stored, copied(tracer, v) if v.root.role == "state" else v) for stored, v in changes]
    for stored, value in kept:
        tracer.recorder.add(store, (value,), {"target": stored}, [], "store")


def copied(tracer: GraphTracer, value: Value) -> Value:
    """A copy of a Value."""
    return tracer.recorder.made(copy, (value,), {}, "copy", value.shape, value.dtype)


def ownMemory(schedule: Schedule, tracer: GraphTracer) -> None:
    """Copy stored values that no call makes, such as constants and values read from a target."""
    for index, (target, value) in enumerate(schedule.stores):
        if value.root.role != "made":
            tracer.recorder.origin = CallOrigin("store", "", (), "update")
            schedule.stores[index] = target, copied(tracer, value)


def addInputs(
    schedule: Schedule,
    tracer: GraphTracer,
    shapes: Sequence[Shape],
    dtypes: Sequence[Any],
    orders: Sequence[Sequence[int] | None] | None,
) -> None:
    """Add the Values of the inputs."""
    steps = schedule.steps
    rows = zip(steps.inputs, shapes, map(np.dtype, dtypes), orders or [None] * len(shapes), strict=True)
    for number, shape, dtype, order in rows:
        strides = None if order is None else dense(shape, order, dtype.itemsize)
        schedule.inputs.append(tracer.recorder.value(shape, dtype, strides, "input", steps.names[number]))


def forward(schedule: Schedule, tracer: GraphTracer, converts: bool) -> list[Any]:
    """Trace the forward rules; returns the Values of all nodes by number."""
    steps, recorder, dtypes = schedule.steps, tracer.recorder, [x.dtype for x in schedule.inputs]
    asked = schedule.graph.inputTypes(len(dtypes), dtypes) if converts else dtypes
    values: list[Any] = [None] * steps.count
    fractions = readAs(steps, "fractions")
    for number, x, dtype, wanted in zip(steps.inputs, schedule.inputs, dtypes, asked, strict=True):
        values[number] = x
        if number in fractions and canBeChecked(x):
            schedule.checks.append(fractionBounds(x))
        if isByte(dtype) and isFloating(wanted):
            recorder.origin = CallOrigin(x.name)
            values[number] = readCast(recorder, astype, [x, wanted], {})
    stored = {n: p for n, module, name in steps.params if (p := getattr(module, name)) is not None}
    run(schedule, tracer, steps, values, stored, "forward")
    schedule.outputs = [values[n] for n in steps.outputs]
    if any(v.role == "object" for v in schedule.outputs if v is not None):
        raise NotArraysError(f"{schedule.graph.title()}: an output is not an array")
    return values


def run(
    schedule: Schedule, tracer: GraphTracer, steps: Steps, values: list[Any], stored: dict[int, Any], phase: str
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
        notePrecision(schedule.precisions, step, [values[n] for n in step.args], results)


def notePrecision(known: dict[int, str], step: Any, arguments: list[Any], results: list[Any]) -> None:
    """Note the dtype that a GPU may store a rule's results in: the module's `precision`, or for a gradient that of
    its value."""
    module = step.module
    if isinstance(module, Gradient):
        of = module.complete(tuple(arguments))[module.grads :]
        kinds = [None if of[i] is None else known.get(of[i].number) for i in module.wanted]
    elif isinstance(module, Accumulate):
        precisions = {None if g is None else known.get(g.number) for g in arguments}
        kinds = [precisions.pop() if len(precisions) == 1 else None]
    else:
        kinds = [module.precision] * len(step.visible)
    for y, kind in zip(results, kinds):
        if kind is not None and kind != "float32" and y is not None and y.shape:
            known[y.number] = kind


def backward(
    schedule: Schedule, tracer: GraphTracer, values: list[Any], grads: Sequence[bool] | str, updGrad: bool
) -> None:
    """Trace the gradient rules in the order of the backward graph, with its sums."""
    graph, steps, recorder = schedule.graph, schedule.steps, tracer.recorder
    tracer.gathered.clear()  # free the weights that forward gathered
    if schedule.scales and grads == "one":
        schedule.seed = recorder.value((), schedule.outputs[0].dtype, role="scalar", name="scale")
    back = graph.backwardGraph(updGrad, True, steps)
    inner = back.steps()
    seeds = seedsFor(schedule, tracer, grads)
    stored = {n: p for n, module, name in steps.params if (p := getattr(module, name)) is not None}
    for n, p in stored.items():
        values[n] = tracer.held(p, steps.names[n])
    backs: list[Any] = [None] * inner.count
    for number, value in zip(inner.inputs, [*seeds, *[values[n] for n in back.numbers]], strict=True):
        backs[number] = value
    run(schedule, tracer, inner, backs, {}, "backward")
    results = iter([backs[n] for n in inner.outputs])
    inputs = [None if edge is None else next(results) for edge in back.inputGrads]
    schedule.inputGrads = [
        g if isFloating(values[n].dtype) else None for g, n in zip(inputs, steps.inputs, strict=True)
    ]
    totals: dict[int, tuple[Any, Any]] = {}
    for param, edge in back.paramGrads:
        new = None if edge is None else next(results)
        if new is not None:
            old = totals.get(id(param))
            if old is not None:
                recorder.origin = CallOrigin(f"sum:{new.name}", "Accumulate", (), "backward")
                new = readUfunc(recorder, np.add, [old[1], new], {})
            totals[id(param)] = param, new
    schedule.paramGrads = list(totals.values())
    schedule.gradients = [v for _, v in schedule.paramGrads]


def seedsFor(schedule: Schedule, tracer: GraphTracer, grads: Sequence[bool] | str) -> list[Any]:
    """The gradient of each output."""
    if any(v is None for v in schedule.outputs):
        raise NotArraysError(f"{schedule.graph.title()}: an output is None and has no gradient")
    if isinstance(grads, str):
        first = schedule.outputs[0]
        if first.shape != ():
            raise GraphError(
                f"{schedule.graph.title()}: backward wanted an output of one number, got {show(first.shape)}"
            )
        seed = schedule.seed or tracer.recorder.constant(np.ones((), first.dtype))
        return [seed, *[None] * (len(schedule.outputs) - 1)]
    seeds: list[Any] = []
    for index, (hasGradient, y) in enumerate(zip(grads, schedule.outputs, strict=True)):
        name = schedule.steps.names[schedule.steps.outputs[index]]
        seeds.append(tracer.recorder.value(y.shape, y.dtype, role="input", name=f"d:{name}") if hasGradient else None)
    schedule.inputs += [s for s in seeds if s is not None]
    return seeds
