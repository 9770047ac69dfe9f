"""Tapecheck: `gradcheck` of a function of Variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.autodiff.tape.activationrecompute import CheckpointBackward, copied, noting, restored
from puregraph.autodiff.tape.engine import grad, topological
from puregraph.autodiff.tape.functionapply import FunctionBackward
from puregraph.autodiff.tape.gradmode import enable_grad, no_grad
from puregraph.autodiff.tape.modulebackward import ModuleBackward
from puregraph.autodiff.tape.recordednodes import Operation
from puregraph.autodiff.tape.tapenode import TapeNode
from puregraph.autodiff.tape.variable import Variable, bare
from puregraph.core.accumulate import isArray
from puregraph.core.param import State
from puregraph.graph.function import Context, isKeyword
from puregraph.graph.module import isFloat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.core.protocols import AnyArray

Near = Callable[[float, float, float, float], bool]  # analytic, numeric, norm of the gradient, size of the loss
Fault = tuple[str, str, float, float]  # text, argument, expected, actual
Run = Callable[[list[Any]], list[Any]]


def faultOnTape(
    function: Callable[..., Any], xs: list[AnyArray], near: Near, eps: float, rng: np.random.Generator
) -> Fault | None:
    """Check the gradients of a function of Variables: the first wrong node, or None."""
    before: dict = {}
    vs = [Variable(x, requires_grad=isFloat(x)) for x in xs]
    with enable_grad():
        with noting(before, {}):
            outputs = listed(function(*vs))
        with restored(before):
            again = listed(function(*vs))
    with restored(before):
        for i, (y, z) in enumerate(zip(map(bare, outputs), map(bare, again))):
            if isArray(z) and not np.array_equal(y, z, equal_nan=True):
                return f"two runs on the same values give different outputs {i}", "", 0.0, 0.0
        return faultBehind(function, vs, outputs, before, near, eps, rng)


def faultBehind(
    function: Callable[..., Any],
    vs: list[Variable],
    outputs: list[Any],
    before: dict,
    near: Near,
    eps: float,
    rng: np.random.Generator,
) -> Fault | None:
    """Compare the complete gradient with differences; if it is wrong, check each node in execution order."""
    wanted = [v for v in vs if v.requires_grad]
    seeds = {i: rng.standard_normal(y.shape) for i, y in enumerate(outputs) if getattr(y, "requires_grad", False)}
    if not seeds or not wanted:
        return None
    grads = grad([outputs[i] for i in seeds], wanted, list(seeds.values()), retain_graph=True, allow_unused=True)

    def run(values: list[AnyArray]) -> list[Variable]:
        left = iter(values)
        with no_grad(), restored(before):
            results = listed(function(*[Variable(next(left)) if v.requires_grad else v for v in vs]))
        return [results[i] for i in seeds]

    values = [v.data for v in wanted]
    wrong = compare(run, values, grads, list(seeds.values()), near, eps, rng)
    if wrong is None and all(g is None or formOf(g) == formOf(x) for g, x in zip(grads, values)):
        return None
    for node in reversed(topological([outputs[i].edge().node for i in seeds])):
        fault = faultAt(node, near, eps, rng)
        if fault is not None:
            return fault
    i, expected, got = wrong or (0, 0.0, 0.0)
    return f"the gradient of input {i} is wrong, though the gradient of each operation is right", str(i), expected, got


def listed(result: Any) -> list[Variable]:
    """A function's result as a list."""
    return list(result) if isinstance(result, (tuple, list)) else [result]


def compare(
    run: Run,
    values: list[AnyArray],
    grads: Sequence[AnyArray],
    seeds: list[Any],
    near: Near,
    eps: float,
    rng: np.random.Generator,
) -> tuple[int, float, float] | None:
    """Return the first argument with a wrong directional derivative, the numeric and the analytic one; None if none."""

    def loss(i: int, at: AnyArray) -> float:
        outputs = map(bare, run([*values[:i], at, *values[i + 1 :]]))
        return sum(float(np.sum(u * y)) for u, y in zip(seeds, outputs) if u is not None)

    scale = sum(float(np.sum(abs(u * bare(y)))) for u, y in zip(seeds, run(values)) if u is not None)
    for i, (x, g) in enumerate(zip(values, map(bare, grads))):
        if not isArray(x) or not isFloat(x):
            continue
        v = rng.standard_normal(x.shape)
        numeric = (loss(i, x + eps * v) - loss(i, x - eps * v)) / (2 * eps)
        analytic, size = (0.0, 0.0) if g is None else (float(np.sum(g * v)), float(np.sqrt(np.sum(g * g))))
        if not near(analytic, numeric, size, scale):
            return i, numeric, analytic
    return None


def formOf(x: AnyArray) -> tuple:
    """The shape and dtype of an array."""
    return x.shape, x.dtype


def faultAt(node: TapeNode, near: Near, eps: float, rng: np.random.Generator) -> Fault | None:
    """Check a node's gradient at its values: the fault, or None."""
    parts = opened(node)
    if parts is None:
        return None
    run, values = parts
    where = f"at {node.name()}" + (f" ('{node.path}')" if isinstance(node, ModuleBackward) else "")
    with no_grad():
        made = [bare(y) for y in run(values)][: node.num_outputs]
        seeds = [rng.standard_normal(np.shape(y)) if isArray(y) and isFloat(y) else None for y in made]
        gradients = node.apply(*seeds)
        grads = [bare(g) for g in (gradients if type(gradients) is tuple else (gradients,))]
        for i, (g, x) in enumerate(zip(grads, values)):
            if isArray(g) and isArray(x) and formOf(g) != formOf(x):
                what = f"a gradient of shape {g.shape} in {g.dtype} for argument {i} of shape {x.shape} in {x.dtype}"
                return f"{where}: {what}", str(i), 0.0, 0.0
        wrong = compare(run, values, grads, seeds, near, eps, rng)
    if wrong is None:
        return None
    argument, expected, got = wrong
    return f"{where}: the gradient of argument {argument} is wrong", str(argument), expected, got


def opened(node: TapeNode) -> tuple[Run, list[Any]] | None:
    """Return a node as a function of its edges' values, and those values; None if it cannot be run again."""
    if isinstance(node, Operation):
        return lambda values: listed(node.function(*filled(node.arguments, iter(values)), **node.options)), [
            v.data for v in node.leaves
        ]
    if isinstance(node, ModuleBackward):
        return lambda values: useOf(node, values), [x for x, need in zip(node.values, node.needs) if need]
    if isinstance(node, FunctionBackward):
        return lambda values: callOf(node, values), [v.data for v in variablesOf(node.form)]
    if isinstance(node, CheckpointBackward) and not node.elsewhere:
        return lambda values: againOf(node, values), [node.inputs[i].data for i in node.wanted]
    return None


def useOf(node: ModuleBackward, values: list[AnyArray]) -> list[AnyArray]:
    """Run a module again on other values; its states are not changed."""
    left = iter(values)
    stored = [None] * len(node.inputs) + node.module.ruleParams()
    arguments = [next(left) if need else x for need, x in zip(node.needs, node.values)]
    result = node.module.updateData(*[p.data.copy() if isinstance(p, State) else x for p, x in zip(stored, arguments)])
    return list(result) if type(result) is tuple else [result]


def callOf(node: FunctionBackward, values: list[Any]) -> list[Variable]:
    """Run a Function again on other values."""
    form = filled(node.form, map(Variable, values))
    keywords = {part.name: part.value for part in form if isKeyword(part)}
    context = Context((False,) * len(form))
    return listed(node.function.call(context, tuple(part for part in form if not isKeyword(part)), keywords))


def againOf(node: CheckpointBackward, values: list[AnyArray]) -> list[Any]:
    """Run a checkpointed function again on other values."""
    fresh = [copied(v) for v in node.inputs]
    for i, x in zip(node.wanted, values):
        fresh[i] = Variable(x)
    with restored(node.before):
        return listed(node.function(*fresh))


def variablesOf(value: Any) -> list[Variable]:
    """All Variables inside arguments, in order."""
    if isinstance(value, Variable):
        return [value]
    if isKeyword(value):
        return variablesOf(value.value)
    parts = value.values() if type(value) is dict else value if type(value) in (list, tuple) else ()
    return [v for part in parts for v in variablesOf(part)]


def filled(value: Any, values: Iterator[Any]) -> Any:
    """Arguments with other values in place of Variables."""
    if isinstance(value, Variable):
        return next(values)
    if isKeyword(value):
        return value._replace(value=filled(value.value, values))
    if type(value) is dict:
        return {key: filled(v, values) for key, v in value.items()}
    return type(value)([filled(v, values) for v in value]) if type(value) in (list, tuple) else value
