"""Anomaly: report the first node that returns NaN or infinity, as soon as it does.

    with detect_anomaly():
        cost = net(x, t)
        net.backward()

Outside the block nothing is checked; the only cost is one test per pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ContextDecorator
from itertools import compress, repeat
from typing import Any, NamedTuple

import numpy as np

from puregraph.autodiff.forward.dual import Dual
from puregraph.core.accumulate import isArray
from puregraph.core.base.dtype import isFloating
from puregraph.core.device import toHost
from puregraph.core.errors import AutoDiffException, show
from puregraph.core.hooks import HOOKS
from puregraph.core.tracer import Tracer
from puregraph.graph.backward import Accumulate, Gradient, inputNames
from puregraph.graph.module import Module

PARAMETER = "an earlier update spoiled it: lower the learning rate, clip gradients, or go back to a saved state"
OUTSIDE = "it came in from outside: check the data, or the gradient passed to backward"
HALF = "the largest float16 is 65504: scale the loss, or compute in float32"
FORWARD = "look for a division by 0, a logarithm or root of a number <= 0, an overflow: clip, or add an epsilon"
BACKWARD = "look for a root, a norm or a power at 0, whose derivative is infinite there: add an epsilon before it"


class AnomalyError(AutoDiffException, ArithmeticError):
    """The first node whose results hold NaN or infinity: its `path`, the `name` of the value, and the `stage`.

    >>> x = Variable(np.zeros(2), requires_grad=True)
    >>> try:
    ...     with np.errstate(all="ignore"), detect_anomaly():
    ...         np.log(x).sum().backward()
    ... except AnomalyError as error:
    ...     print(error)
    forward at Log: its result holds 2 infinite of 2 values, shape (2,), the first at (0,); ...
    """

    namesLocation = True

    def __init__(self, message: str, path: str = "", name: str = "", stage: str = ""):
        super().__init__(message)
        self.path, self.name, self.stage = path, name, stage


class detect_anomaly(ContextDecorator):  # noqa: N801 - it is called like a function, as in torch
    """Raise an AnomalyError at the first node that returns NaN or infinity, within this block and thread.

    Checks the forward and backward passes of Graphs, single modules and Variables. The message names the node and its
    output or gradient, counts the bad values, says whether an argument was bad already, and suggests what to try. Every
    value is read once more, so a pass takes up to twice as long, and a GPU synchronizes after each node. It may
    decorate a function.

    `check_inf=False` allows infinities, such as a mask of -inf before a softmax; `check_nan=False` allows NaN.

    Source    torch.autograd.detect_anomaly
    """

    def __init__(self, check_nan: bool = True, check_inf: bool = True):
        self.look = _Look(check_nan, check_inf)
        self.before: list[Any] = []

    def __enter__(self) -> detect_anomaly:
        self.before.append(HOOKS.look)
        HOOKS.look = self.look
        return self

    def __exit__(self, *failure: object) -> None:
        HOOKS.look = self.before.pop()


class set_detect_anomaly:  # noqa: N801 - it is called like a function, as in torch
    """Switch the check for NaN and infinity on or off in this thread; as a `with` block, until its end.

    Source    torch.autograd.set_detect_anomaly

    >>> with set_detect_anomaly(True):
    ...     print(is_anomaly_enabled())
    True
    """

    def __init__(self, mode: bool, check_nan: bool = True, check_inf: bool = True):
        self.before = HOOKS.look
        HOOKS.look = _Look(check_nan, check_inf) if mode else None

    def __enter__(self) -> None:
        """Do nothing: the mode is already set in __init__."""

    def __exit__(self, *failure: object) -> None:
        HOOKS.look = self.before


def is_anomaly_enabled() -> bool:
    """True if this thread checks for NaN or infinity."""
    return isinstance(HOOKS.look, _Look)


class _Bad(NamedTuple):
    """The number of NaN and of infinite values."""

    nan: int
    inf: int

    def __str__(self) -> str:
        counts = (self.nan, "NaN"), (self.inf, "infinite")
        return " and ".join(f"{count} {what}" for count, what in counts if count)


class _Look:
    """The hook called after every rule; it raises if a result is bad."""

    def __init__(self, nan: bool, inf: bool):
        self.nan, self.inf = nan, inf

    def __call__(
        self,
        path: str,
        module: Module,
        arguments: Sequence[Any],
        results: Sequence[Any],
        backward: bool = False,
    ) -> None:
        for index, y in enumerate(map(bare, results)):
            if isArray(y) and isFloating(y.dtype) and not allFinite(y):
                bad = self.count(y)
                if bad:
                    at = _Location.of(path, module, len(arguments), len(results), backward)
                    raise self.error(at, index, y, bad, [bare(a) for a in arguments])

    def count(self, y: Any) -> _Bad | None:
        """Count the bad values; None if there are none."""
        nan = int(toHost(np.isnan(y)).sum()) if self.nan else 0
        inf = int(toHost(np.isinf(y)).sum()) if self.inf else 0
        return _Bad(nan, inf) if nan or inf else None

    def error(self, at: _Location, index: int, y: Any, bad: _Bad, arguments: Sequence[Any]) -> AnomalyError:
        """Make the error for a bad result, with its location, the bad arguments, and a hint."""
        name = at.results[index]
        mask = ~np.isfinite(y) if self.nan and self.inf else np.isnan(y) if self.nan else np.isinf(y)
        first = tuple(int(i[0]) for i in np.nonzero(toHost(mask))) if y.shape else ()
        where = f", the first at {show(first)}" if first else ""
        what = f"{at.title}: {name} holds {bad} of {y.size} values, shape {show(y.shape)}{where}"
        there = [
            (n, a, self.count(a))
            for n, a in zip(at.arguments, arguments)
            if isArray(a) and isFloating(a.dtype) and not allFinite(a)
        ]
        spoiled = [(n, counts) for n, _, counts in there if counts]
        if spoiled:
            n, counts = spoiled[0]
            hint = PARAMETER if n in at.params else OUTSIDE
            return AnomalyError(f"{what}; {n} held {counts} before: {hint}", at.path, name, at.stage)
        floats = [(n, a) for n, a in zip(at.arguments, arguments) if isArray(a) and isFloating(a.dtype) and a.size]
        ranges = ", ".join(f"{n} {show(a.shape)} from {low(a):.3g} to {high(a):.3g}" for n, a in floats)
        hint = HALF if y.dtype == np.float16 else BACKWARD if at.stage == "backward" else FORWARD
        return AnomalyError(f"{what}; it was given {ranges or 'no floats'}: {hint}", at.path, name, at.stage)


def allFinite(x: Any) -> bool:
    """True if no value is NaN or infinite; synchronizes a GPU."""
    return bool(toHost(np.isfinite(x).all()))


def low(x: Any) -> float:
    """The smallest value."""
    return float(toHost(x.min()))


def high(x: Any) -> float:
    """The greatest value."""
    return float(toHost(x.max()))


def bare(x: Any) -> Any:
    """The plain array behind tracers: a Dual's value, a Variable's data."""
    while isinstance(x, Tracer):
        x = x.value if isinstance(x, Dual) else x.data  # type: ignore[attr-defined]
    return x


class _Location(NamedTuple):
    """A rule that ran: where, in which pass, and what its arguments and results are called."""

    path: str
    stage: str
    title: str
    arguments: list[str]
    results: list[str]
    params: set[str]

    @classmethod
    def of(cls, path: str, module: Module, count: int, results: int, backward: bool) -> _Location:
        """The location of a forward rule, of a node of a BackwardGraph, or of a gradient rule (`backward`)."""
        if not isinstance(module, Module):
            stage = "backward" if backward else "forward"
            one = "the gradient of output" if backward else "argument"
            result = "the gradient of input" if backward else "its result"  # of a function, or a node of a tape
            more = f" ('{module.path}')" if getattr(module, "path", "") else ""
            several = [f"{result} {i}" if backward or results > 1 else result for i in range(results)]
            return cls(path, stage, f"{stage} at {path}{more}", [f"{one} {i}" for i in range(count)], several, set())
        if isinstance(module, Accumulate):
            name = path.removeprefix("sum:")
            title = f"backward, where the gradients of '{name}' are added"
            names = [f"gradient {i}" for i in range(count)]
            return cls(path, "backward", title, names, ["their sum"], set())
        if isinstance(module, Gradient):
            of, path = module.of, path.removeprefix("grad:")
            grads, inputs = module.grads, len(module.needed) - len(of.ruleNames)
            present, wanted = module.present, module.wanted
        else:
            of, present, wanted = module, None, None
            grads = int(backward)
            inputs = count - len(of.ruleNames) - grads - (len(of.outputNames) + len(of.hidden) if backward else 0)
        params = [f"parameter '{n}'" for n in of.ruleNames]
        operands = [*(f"input '{n}'" for n in inputNames(of, inputs)), *params]
        made = [f"output '{n}'" for n in (*of.outputNames, *of.hidden)]
        made = ["its output", *made[1:]] if len(of.outputNames) == 1 else made
        stage = "backward" if grads else "forward"
        title = f"{stage} at '{path}' ({type(of).__name__})"
        if not grads:
            return cls(path, stage, title, operands, made, set(params))
        asked = range(len(operands)) if wanted is None else wanted
        operands, called = (
            ["the gradient of its output"] * grads + operands + made,
            [f"the gradient of {n}" for n in operands],
        )
        names = list(compress(operands, present or repeat(True)))
        return cls(path, stage, title, names, [called[i] for i in asked], set(params))
