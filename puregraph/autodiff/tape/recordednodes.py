"""The nodes of recorded calls: their arguments, results and gradient rules."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.autodiff.tape.gradmode import MODE
from puregraph.autodiff.tape.tapenode import (
    NUMBERS,
    TapeNode,
)
from puregraph.autodiff.tape.variable import (
    Variable,
    bare,
    made,
    targetOf,
    typed,
    variable,
    versionOf,
)
from puregraph.core.errors import AutoDiffException
from puregraph.ops.reduction.reference import fit

if TYPE_CHECKING:
    from puregraph.core.rules import ArrayFunction

AGAIN = (
    "the graph of this pass was freed by an earlier backward: trying to backward through it a second time "
    "needs retain_graph=True the first time"
)


MODIFIED = "a Variable that it needs was modified in place since; make a new one instead"


class Operator(NamedTuple):
    """A binary operator: its name, numpy's function, Python's operator, and the gradients of its two operands."""

    name: str
    function: np.ufunc
    call: Callable[[Any, Any], Any]
    left: Callable[..., Any]
    right: Callable[..., Any]


class Operation(TapeNode):
    """One recorded call: its arguments, result and gradient rule."""

    __slots__ = ("arguments", "function", "leaves", "needs", "options", "result", "rule", "versions")

    def __init__(
        self, function: ArrayFunction, rule: Any, arguments: tuple, options: dict, leaves: list[Variable], result: Any
    ):
        edges = tuple([targetOf(v) for v in leaves])
        super().__init__((), len(result) if type(result) is tuple else 1)
        self.edges = edges  # computed before super(): leaves get lower numbers than their readers
        self.function, self.rule, self.arguments, self.options = function, rule, arguments, options
        self.leaves, self.result = leaves, result
        self.versions = [v._version for v in leaves]
        self.needs = tuple([isinstance(a, Variable) and a._wants for a in arguments])

    def name(self) -> str:
        return f"{titled(self.function)}Backward0"

    def apply(self, *grads: Any) -> Any:
        if self.arguments is None:
            raise AutoDiffException(f"{self.name()}: {AGAIN}")
        for v, version in zip(self.leaves, self.versions):
            if versionOf(v) != version:
                raise AutoDiffException(f"{self.name()}: {MODIFIED}")
        result, arguments = self.result, self.arguments
        if MODE.enabled:
            result = made(result, self)
            grads = tuple([g if g is None or isinstance(g, Variable) else Variable(g) for g in grads])
        else:
            arguments = bare(arguments)
            grads = tuple([g._value if isinstance(g, Variable) else g for g in grads])
        grad = grads if type(result) is tuple else grads[0]
        gradients = aligned(self.rule(grad, result, arguments, self.options, self.needs), self.arguments)
        return tuple([g if g is None else typed(g, v) for g, v in zip(gradients, self.leaves)])

    def release(self) -> None:
        self.arguments = self.leaves = self.result = None  # type: ignore[assignment]


class BinaryOp(TapeNode):
    """One recorded binary operator. Most nodes of a tape are of this kind, so it stores less than Operation."""

    __slots__ = ("isSame", "left", "operator", "result", "right", "versions")

    def __init__(self, op: Operator, a: Any, b: Any, result: Any, isSame: bool):
        self.hooks = self.kept = None
        self.num_outputs = 1
        self.operator, self.left, self.right, self.result, self.isSame = op, a, b, result, isSame
        if not isinstance(b, Variable):
            self.edges, self.versions = (targetOf(a),), a._version
        elif not isinstance(a, Variable):
            self.edges, self.versions = (targetOf(b),), b._version
        else:
            self.edges, self.versions = (targetOf(a), targetOf(b)), a._version + b._version
        self.sequence_nr = next(NUMBERS)

    def name(self) -> str:
        return f"{self.operator.name.title()}Backward0"

    def apply(self, *grads: Any) -> Any:
        (g,), a, b, y = grads, self.left, self.right, self.result
        if y is None:
            raise AutoDiffException(f"{self.name()}: {AGAIN}")
        hasLeft, hasRight = isinstance(a, Variable), isinstance(b, Variable)
        if versionOf(a) + versionOf(b) != self.versions:
            raise AutoDiffException(f"{self.name()}: {MODIFIED}")
        if MODE.enabled:
            y, g = variable(y, self), g if isinstance(g, Variable) else Variable(g)
        else:
            g = g._value if isinstance(g, Variable) else g
            a, b = a._value if hasLeft else a, b._value if hasRight else b
        edges = self.edges
        left = self.operator.left(g, y, a, b) if hasLeft and edges[0][0] is not None else None
        right = self.operator.right(g, y, a, b) if hasRight and edges[-1][0] is not None else None
        if not self.isSame:
            left, right = fitted(left, self.left), fitted(right, self.right)
        return (left, right) if hasLeft and hasRight else (left,) if hasLeft else (right,)

    def release(self) -> None:
        self.left = self.right = self.result = None


class UnaryOp(TapeNode):
    """One recorded function of one value, with its derivative stored as a short formula."""

    __slots__ = ("argument", "function", "result", "slope", "version")

    def __init__(self, function: ArrayFunction, slope: Callable[[Any, Any, Any], Any], v: Any, result: Any):
        self.hooks = self.kept = None
        self.num_outputs = 1
        self.function, self.slope, self.argument, self.result = function, slope, v, result
        self.edges, self.version = (targetOf(v),), v._version
        self.sequence_nr = next(NUMBERS)

    def name(self) -> str:
        return f"{titled(self.function)}Backward0"

    def apply(self, *grads: Any) -> Any:
        (g,), v, y = grads, self.argument, self.result
        if y is None:
            raise AutoDiffException(f"{self.name()}: {AGAIN}")
        if versionOf(v) != self.version:
            raise AutoDiffException(f"{self.name()}: {MODIFIED}")
        if MODE.enabled:
            return (self.slope(g if isinstance(g, Variable) else Variable(g), variable(y, self), v),)
        return (self.slope(g._value if isinstance(g, Variable) else g, y, v._value),)

    def release(self) -> None:
        self.argument = self.result = None


def aligned(grads: Any, arguments: Any) -> tuple:
    """Flatten one gradient per argument (a list for a list) to one per Variable."""
    flat: list[Any] = []
    for g, a in zip(grads, arguments):
        if isinstance(a, Variable):
            flat.append(g)
        elif type(a) in (list, tuple):
            flat += aligned(g if g is not None else [None] * len(a), a)
    return tuple(flat)


def fitted(g: Any, operand: Any) -> Any:
    """The gradient of an operand in its shape and dtype."""
    return g if g is None else typed(fit(g, operand), operand)


TITLES = {
    np.add: "Add",
    np.subtract: "Sub",
    np.multiply: "Mul",
    np.true_divide: "Div",
    np.power: "Pow",
    np.negative: "Neg",
    np.absolute: "Abs",
    operator.getitem: "Index",
}


def titled(function: Any) -> str:
    """A function's name as a node has it: `Mul` for numpy's multiply, `TakeAlongAxis` for `take_along_axis`."""
    name = getattr(function, "__name__", type(function).__name__)
    return TITLES.get(function) or "".join([part[:1].upper() + part[1:] for part in name.split("_")])
