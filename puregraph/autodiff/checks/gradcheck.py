"""Gradcheck: is the backward pass the derivative of the forward pass, and if not, which node is at fault?"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from puregraph.autodiff.checks.tapecheck import faultOnTape
from puregraph.autodiff.functionalcall import Pure
from puregraph.autodiff.tape.variable import bare
from puregraph.core.accumulate import isArray
from puregraph.core.applied import asGrads
from puregraph.core.base.dtype import isFloating
from puregraph.core.device import toHost
from puregraph.core.errors import AutoDiffException, addLocation, show
from puregraph.core.param import State
from puregraph.core.rules import RuleContext, candidates, gradientRule
from puregraph.graph.backward import inputNames
from puregraph.graph.function import Function, FunctionCall
from puregraph.graph.module import Module, isFloat
from puregraph.graph.steps import GraphStep

RANDOM_DIRECTIONS = 2  # random directions per argument; a wrong gradient passes only by chance
MAX_CHECKED_ELEMENTS = 200  # elements that are checked one by one, to report where a gradient is wrong


class GradcheckError(AutoDiffException, AssertionError):
    """A gradient is not the derivative: the node's `path` and `module`, the `argument`, `expected` and `got`.

    >>> class Wrong(Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * x
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         return grad
    >>> try:
    ...     gradcheck(Wrong.apply, np.ones(2))
    ... except GradcheckError as error:
    ...     print(error)
    at WrongBackward0: the gradient of argument 0 is wrong: expected ... along a random direction, got ...
    """

    def __init__(
        self,
        message: str,
        path: str = "",
        module: Any = None,
        argument: str = "",
        expected: Any = None,
        got: Any = None,
    ):
        super().__init__(message)
        self.path, self.module, self.argument = path, module, argument
        self.expected, self.got = expected, got


def gradcheck(
    function: Any,
    inputs: Any,
    eps: float = 1e-6,
    atol: float = 1e-6,
    rtol: float = 1e-5,
    skip: Iterable[str] = (),
    seed: int = 0,
) -> bool:
    """Compare a function's backward pass with central differences in float64, at these inputs; True if they agree.

        dy/dx along v = (y(x + eps v) - y(x - eps v)) / (2 eps),    error about eps^2 y''' + 1e-16 y / eps

    `function` is a Graph, a Module or a `Function`: a float64 copy is checked on the CPU, in its current modes. No
    state changes. A function of Variables is run directly, on float64 inputs.

    Each node's rule is checked with its actual values, in execution order, so that the first wrong node is named; then
    the complete gradient is checked. The check also reports rules that write to their arguments, gradients of the wrong
    shape or dtype, and results that differ between runs. Keep inputs away from kinks, such as 0 for a rectifier; inner
    values at a kink that do not move are accepted, such as the equal zeros that a rectifier passes to max pooling.
    `skip` has paths of nodes whose gradient deliberately differs; the complete gradient is not checked then.

    Source    torch.autograd.gradcheck
    Raises    GradcheckError with the node, the argument, the expected and the actual derivative
    """
    xs = [doubled(bare(x)) for x in (inputs if isinstance(inputs, (list, tuple)) else [inputs])]
    limits = _Limits(eps, atol, rtol)
    rng = np.random.default_rng(seed)
    if isinstance(function, type) and issubclass(function, Function):
        function = FunctionCall(function)
    if not isinstance(function, Module):
        if not callable(function):
            raise AutoDiffException(f"gradcheck: wanted a Graph, a Module or a function, got {type(function).__name__}")
        fault = faultOnTape(function, xs, limits.near, eps, rng)
        if fault is None:
            return True
        text, argument, expected, got = fault
        numbers = f": expected {expected:.9g} along a random direction, got {got:.9g}" if expected != got else ""
        raise GradcheckError(f"{text}{numbers}", argument=argument, expected=expected, got=got)
    module = copy.deepcopy(function)
    module.calcMode(np.float64)
    for held in (*module.params.values(), *module.states.values()):
        held.data = toHost(held.data)
    pure = Pure(module, xs)
    checkSteps(pure, xs, limits, rng, frozenset(skip))
    if not skip:
        checkWhole(pure, xs, limits, rng)
    return True


class _Limits:
    """The step of differences, and what counts as equal."""

    def __init__(self, eps: float, atol: float, rtol: float):
        self.eps, self.atol, self.rtol = eps, atol, rtol

    def near(self, analytic: float, numeric: float, size: float, loss: float) -> bool:
        """True if two derivatives agree up to rounding; `size` is the size of the gradient."""
        rounding = 4e-16 * max(1.0, loss) / self.eps
        return abs(analytic - numeric) <= self.atol + self.rtol * max(size, abs(numeric)) + rounding


def doubled(x: Any) -> Any:
    """Floats in float64; anything else as it is."""
    x = toHost(x) if isArray(x) else np.asarray(x)
    return x.astype(np.float64) if isFloating(x.dtype) else x


# ---- one node after the other -------------------------------------------------------------------------------


def checkSteps(pure: Pure, xs: list[Any], limits: _Limits, rng: np.random.Generator, skip: frozenset) -> None:
    """Run the graph once, and check each rule with its actual values."""
    steps, stored = pure.steps, pure.stored()
    values: list[Any] = [None] * steps.count
    for number, x in (*zip(steps.inputs, xs), *stored.items()):
        values[number] = x
    states = {n for n, module, name in steps.params if isinstance(getattr(module, name), State)}
    unknown = skip - {step.path for step in steps.items}
    if unknown:
        raise AutoDiffException(f"gradcheck: {pure.title} has no node {', '.join(map(repr, sorted(unknown)))} to skip")
    lines = moved(pure, xs, limits.eps, rng)
    for step in steps.items:
        args = step.args
        local = _Local(step, [values[n] for n in args], {i for i, n in enumerate(args) if n in states})
        local.lines = [lines[n] for n in args]
        try:
            outputs = local.forward()
            if step.path not in skip:
                local.backward(outputs, limits, rng)
        except GradcheckError:
            raise
        except Exception as error:
            addLocation(error, f"at '{step.path}' ({step.label})")
            raise
        for number, y in zip(step.outs, outputs, strict=True):
            values[number] = y


def moved(pure: Pure, xs: list[Any], eps: float, rng: np.random.Generator) -> list[Any]:
    """Return the derivative of each value along random directions of inputs and parameters; None if not float."""
    vs = [rng.standard_normal(x.shape) if isFloat(x) else 0 for x in xs]
    by = {id(p): rng.standard_normal(p.shape) for p in pure.params.values()}
    ends = []
    for step in (eps, -eps):
        stored = pure.stored(lambda s, a, step=step: a + step * by[id(s)] if id(s) in by else a)  # type: ignore[misc]
        ends.append(pure.run([x + step * v if isFloat(x) else x for x, v in zip(xs, vs)], stored))
    return [
        (a - b) / (2 * eps) if isArray(a) and isFloat(a) and np.shape(a) == np.shape(b) else None for a, b in zip(*ends)
    ]


class _Local:
    """One rule with its argument values, and the `lines` along which they move together."""

    lines: list[Any]

    def __init__(self, step: GraphStep, arguments: list[Any], states: set[int]):
        self.step, self.module, self.arguments, self.states = step, step.module, arguments, states
        names = [*inputNames(self.module, step.inputs), *self.module.ruleNames]
        if self.module.inputSpec.variadic:
            names = [f"{n}{i}" if names.count(n) > 1 else n for i, n in enumerate(names)]
        self.names = names
        self.visible = len(step.visible)

    def error(self, text: str, argument: str = "", expected: Any = None, got: Any = None) -> GradcheckError:
        """The error with this rule's location."""
        where = f"at '{self.step.path}' ({self.module.brief()})"
        return GradcheckError(f"{where}: {text}", self.step.path, self.module, argument, expected, got)

    def run(self, arguments: list[Any]) -> tuple:
        """Run the rule and return its outputs; states are not changed."""
        copies = [a.copy() if i in self.states else a for i, a in enumerate(arguments)]
        result = self.step.call(*copies)
        return result if type(result) is tuple else (result,)

    def forward(self) -> tuple:
        """Run the rule, check that it writes to no argument and repeats its results, and return the outputs.

        States are updated once, as in a pass.
        """
        before = kept(self.arguments)
        first = self.run(self.arguments)
        self.unwritten("updateData", self.names, before, self.arguments)
        again = self.run(self.arguments)
        for name, a, b in zip((*self.module.outputNames, *self.module.hidden), first, again):
            if isArray(a) and not same(a, b):
                raise self.error(
                    f"two runs on the same values give different '{name}': draw random numbers with "
                    "puregraph.kernels.uniform from States, as Dropout does"
                )
        if not self.states:
            return first
        before = [a.copy() if i in self.states else a for i, a in enumerate(self.arguments)]
        moving = self.step.call(*self.arguments)
        self.arguments = before
        return moving if type(moving) is tuple else (moving,)

    def unwritten(self, rule: str, names: Iterable[str], before: list[Any], after: Iterable[Any]) -> None:
        """Check that a rule has not changed its arguments."""
        for i, (name, a, b) in enumerate(zip(names, before, after)):
            if a is not None and not same(a, b) and i not in self.states:
                raise self.error(
                    f"{rule} writes to '{name}', which other nodes may read: write to a copy, or to what it made itself"
                )

    def backward(self, outputs: tuple, limits: _Limits, rng: np.random.Generator) -> None:
        """Check the gradient rule against differences, with random output gradients."""
        visible = outputs[: self.visible]
        seeds = [rng.standard_normal(y.shape) if isArray(y) and isFloat(y) else None for y in visible]
        needs = tuple(map(self.differentiable, range(len(self.arguments))))
        if not any(needs) or all(s is None for s in seeds):
            return
        rule = gradientRule(self.module, needs, self.step.node.rule, RuleContext(self.step.node))
        operands = [*seeds, *self.arguments, *outputs]
        before = kept(operands)
        made = rule(seeds[0] if self.visible == 1 else list(seeds), *self.arguments, *outputs)
        grads = asGrads(made, len(needs), self.step.label)
        names = [*("the gradient" for _ in seeds), *self.names, *self.module.outputNames, *self.module.hidden]
        self.unwritten(self.rule, names, before, operands)
        for i, name in enumerate(self.names):
            if needs[i]:
                self.checkForm(name, grads[i], self.arguments[i])
                self.checkValues(i, grads[i], seeds, limits, rng)

    def differentiable(self, i: int) -> bool:
        """True if an argument has a gradient."""
        x = self.arguments[i]
        if not isArray(x) or not isFloat(x) or i in self.states:
            return False
        return i >= self.step.inputs or inputNames(self.module, self.step.inputs)[i] not in self.module.indices

    @property
    def rule(self) -> str:
        """The gradient rule, as a message names it."""
        asked = self.step.node.rule
        fitting = [n for n, r in candidates(self.module) if (n == asked if asked else not r.asked)]
        if fitting:
            return f"its registered rule {fitting[0]!r}"
        if isinstance(self.module, FunctionCall):
            return f"{self.module.function.__name__}.backward"
        return "updateGrad" if self.module.updateGrad is not None else "the derivative of its formula"

    def checkForm(self, name: str, grad: Any, x: Any) -> None:
        """Check that a gradient has the shape and dtype of its value."""
        if grad is None:
            return
        form = (np.shape(grad), getattr(grad, "dtype", type(grad).__name__))
        wanted = (x.shape, x.dtype)
        if form != wanted:
            raise self.error(
                f"{self.rule} gives for '{name}' a gradient of shape {show(form[0])} in {form[1]}, "
                f"expected {show(wanted[0])} in {wanted[1]}: sum over axes that were broadcast, and keep the dtype",
                name,
                wanted,
                form,
            )

    def checkValues(self, i: int, grad: Any, seeds: list[Any], limits: _Limits, rng: np.random.Generator) -> None:
        """Check a gradient along random directions; if one fails, along the argument's derivative in this pass.

        So a kink is accepted at values that do not change in the pass.
        """
        x = self.arguments[i]
        loss = self.along(i, seeds)
        scale = self.size(seeds)

        def isRight(v: Any) -> bool:
            analytic, size = (0.0, 0.0) if grad is None else (inner(grad, v), float(np.sqrt(inner(grad, grad))))
            return limits.near(analytic, slope(loss, x, v, limits.eps), size, scale)

        if not all(isRight(rng.standard_normal(x.shape)) for _ in range(RANDOM_DIRECTIONS)):
            line = self.lines[i] if self.lines[i] is not None else rng.standard_normal(x.shape)
            if not isRight(line):
                raise self.wrong(i, grad, loss, self.narrowed(line, isRight), limits.eps)

    def narrowed(self, line: Any, isRight: Callable[[Any], bool]) -> Any:
        """Return a few positions where a gradient is wrong along a line, by bisection."""
        positions = np.flatnonzero(line)
        while len(positions) > MAX_CHECKED_ELEMENTS:
            half, other = np.array_split(positions, 2)
            positions = other if isRight(only(line, half)) else half
        return positions

    def along(self, i: int, seeds: list[Any]) -> Callable[[Any], float]:
        """Return <u, y> as a function of one argument."""

        def loss(at: Any) -> float:
            outputs = self.run([*self.arguments[:i], at, *self.arguments[i + 1 :]])
            return sum(inner(u, y) for u, y in zip(seeds, outputs) if u is not None)

        return loss

    def size(self, seeds: list[Any]) -> float:
        """The size of the terms that a loss sums; its rounding error is relative to this."""
        return sum(inner(abs(u), abs(y)) for u, y in zip(seeds, self.run(self.arguments)) if u is not None)

    def wrong(
        self, i: int, grad: Any, loss: Callable, positions: Sequence[int] | np.ndarray, eps: float
    ) -> GradcheckError:
        """Describe the largest error of a gradient, with a hint."""
        x, name = self.arguments[i], self.names[i]
        rows = []
        for position in positions:
            v = only(np.ones(x.shape), [position])
            analytic = 0.0 if grad is None else float(grad.reshape(-1)[position])
            numeric = slope(loss, x, v, eps)
            error, smooth = abs(analytic - numeric), not isKink(loss, x, v, eps)
            rows.append((smooth and error > 1e-4 * (abs(numeric) + 1e-3), error, int(position), numeric, analytic))
        smooth, _, position, expected, got = max(rows)
        index = tuple(map(int, np.unravel_index(position, x.shape)))
        hint = f"compare {self.rule} with the formula" if grad is not None else "return its gradient instead of None"
        if not smooth:
            hint = "the function has a kink there: move the inputs away from it"
        return self.error(
            f"the gradient of '{name}' is wrong: {f'at {show(index)} ' if index else ''}expected {expected:.9g} from "
            f"central differences, got {got:.9g} from {self.rule}; {hint}",
            name,
            expected,
            got,
        )


def only(line: Any, positions: Sequence[int] | np.ndarray) -> Any:
    """Return a direction that is 0 except at these positions."""
    v = np.zeros(line.size)
    v[positions] = line.reshape(-1)[positions]
    return v.reshape(line.shape)


def inner(a: np.ndarray, b: np.ndarray) -> float:
    """The inner product."""
    return float((a * b).sum())


def slope(loss: Callable[[np.ndarray], float], x: np.ndarray, v: np.ndarray, eps: float) -> float:
    """The central difference along v."""
    return (loss(x + eps * v) - loss(x - eps * v)) / (2 * eps)


def isKink(loss: Callable[[np.ndarray], float], x: np.ndarray, v: np.ndarray, eps: float) -> bool:
    """True if the left and right differences disagree, as at a kink or a jump."""
    left, at, right = loss(x - eps * v), loss(x), loss(x + eps * v)
    return abs(right - 2 * at + left) > 1e-2 * abs(right - left) + 1e-12 * max(1.0, abs(at))


def kept(values: Iterable[Any]) -> list[Any]:
    """Copies of the arrays among values; None for others."""
    return [a.copy() if isArray(a) else None for a in values]


def same(a: Any, b: Any) -> bool:
    """True if two arrays are equal to the last bit; NaN equals NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    equal = (a == b) | ((a != a) & (b != b))
    return bool(equal.all())


# ---- the whole ----------------------------------------------------------------------------------------------


def checkWhole(pure: Pure, xs: list[Any], limits: _Limits, rng: np.random.Generator) -> None:
    """Check all gradients of the graph at once, along random directions."""
    values = pure.run(xs)
    outputs = pure.outputs(values)
    seeds = [rng.standard_normal(y.shape) if isArray(y) and isFloat(y) else None for y in outputs]
    inputs, paramGrads = pure.pull(seeds, values, True, pure.params.values())
    names = [pure.steps.names[n] for n in pure.steps.inputs]
    params = {id(p): (path, p) for path, p in pure.params.items()}
    rows: list[tuple] = [(f"input '{n}'", x, g, None) for n, x, g in zip(names, xs, inputs) if isFloat(x)]
    rows += [(f"parameter '{path}'", p.data, paramGrads.get(key), key) for key, (path, p) in params.items()]

    def loss(moves: list[Any]) -> float:
        at = [x + moves[i] if moves[i] is not None else x for i, x in enumerate(xs)]
        by = dict(zip(params, moves[len(xs) :]))
        stored = pure.stored(lambda s, a: a + by[id(s)] if by.get(id(s)) is not None else a)
        return sum(inner(u, y) for u, y in zip(seeds, pure.outputs(pure.run(at, stored))) if u is not None)

    scale = sum(inner(abs(u), abs(y)) for u, y in zip(seeds, outputs) if u is not None)
    positions = [i for i, x in enumerate(xs) if isFloat(x)] + list(range(len(xs), len(xs) + len(params)))
    vs = [rng.standard_normal(x.shape) for _, x, _, _ in rows]
    for chosen in ([*range(len(rows))], *([k] for k in range(len(rows)))):
        moves: list[Any] = [None] * (len(xs) + len(params))
        for k in chosen:
            moves[positions[k]] = limits.eps * vs[k]
        back = [None if m is None else -m for m in moves]
        numeric = (loss(moves) - loss(back)) / (2 * limits.eps)
        parts = [(rows[k][2], vs[k]) for k in chosen if rows[k][2] is not None]
        analytic = sum(inner(g, v) for g, v in parts)
        size = float(np.sqrt(sum(inner(g, g) for g, _ in parts)))
        near = limits.near(analytic, numeric, size, scale)
        if near and len(chosen) > 1:
            return
        if not near and len(chosen) == 1:
            name = rows[chosen[0]][0]
            raise GradcheckError(
                f"{pure.title}: the gradient of {name} along a random direction is {analytic:.9g}, expected "
                f"{numeric:.9g} from central differences, though the rule of each node is right with its own values: "
                "a rule reads something that is not among its arguments, or the function has a kink nearby",
                argument=name,
                expected=numeric,
                got=analytic,
            )
