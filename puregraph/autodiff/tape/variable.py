"""Variable: a value with a role and a gradient, whose operations are recorded as they run."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.autodiff.tape.engine import Add, backward
from puregraph.autodiff.tape.tapenode import (
    NOWHERE,
    GradientEdge,
    Handle,
    LeafAccumulator,
    TapeNode,
    get_gradient_edge,
)
from puregraph.core.accumulate import accumulate, combine, differentiable, isArray, needPlain, shapeOf, zeroLike
from puregraph.core.base.align import readOnly
from puregraph.core.base.fingerprint import fingerprint
from puregraph.core.base.mutex import Mutex
from puregraph.core.errors import AutoDiffException, GraphError
from puregraph.core.late import Late
from puregraph.core.linkednode import LinkedNode
from puregraph.core.tracer import Tracer

if TYPE_CHECKING:
    pass

RECORDING = "puregraph.autodiff.tape.recording"  # which imports this file


class RecordedValue(Tracer):
    """The operations of a Variable; each is recorded."""

    __slots__ = ()
    _value: Any

    handle: Any = Late(RECORDING, "handle")
    __array_ufunc__: Any = Late(RECORDING, "arrayUfunc")
    __setitem__: Any = Late(RECORDING, "setItem")
    __neg__: Any = Late(RECORDING, "negative")
    __pow__: Any = Late(RECORDING, "power")
    __add__: Any = Late(RECORDING, "add")
    __radd__: Any = Late(RECORDING, "addReflected")
    __sub__: Any = Late(RECORDING, "subtract")
    __rsub__: Any = Late(RECORDING, "subtractReflected")
    __mul__: Any = Late(RECORDING, "multiply")
    __rmul__: Any = Late(RECORDING, "multiplyReflected")
    __truediv__: Any = Late(RECORDING, "divide")
    __rtruediv__: Any = Late(RECORDING, "divideReflected")

    @property
    def carrier(self) -> Any:
        return self._value

    def __eq__(self, other: Any) -> Any:
        return self.handle(np.equal, (self, other), {}) if adds(self._value) else self is other

    def __ne__(self, other: Any) -> Any:
        return self.handle(np.not_equal, (self, other), {}) if adds(self._value) else self is not other

    def __bool__(self) -> bool:
        return bool(self._value)

    def __int__(self) -> int:
        return int(self._value)

    def __iter__(self) -> Any:
        return iter([self[i] for i in range(len(self))])

    __hash__ = object.__hash__


class Variable(RecordedValue):
    """A value that remembers which operations made it.

    `data`           an array, a number, a text, or anything else whose `accumulate` is registered
    `role`           what a text is for, in words
    `requires_grad`  whether gradients are wanted: of arrays in floating point, and of anything that is no number
    `grad`           of an array the sum, None at first; of anything else the list of all contributions
    `grad_fn`        the Node that made it, None for a leaf

    Operators, functions of numpy, Modules, Graphs and Functions that meet a Variable are recorded.
    """

    __slots__ = (
        "__weakref__",
        "_value",
        "_grad",
        "_hooks",
        "_leaf",
        "_lent",
        "_node",
        "_retains",
        "_version",
        "_wants",
        "output_nr",
        "role",
    )

    def __init__(self, data: Any, role: str = "", requires_grad: bool = False):
        if isinstance(data, Variable):
            data = data.data
        if type(data) is float:
            data = np.float64(data)
        needPlain(data, "Variable")
        if isinstance(data, LinkedNode):
            raise GraphError(
                "Variable: wanted a value, got a Node; a graph computes with nodes, its calls with Variables"
            )
        self._value = data
        self.role = role
        self._node: TapeNode | None = None
        self.output_nr = 0
        self._wants = False
        self._grad: Any = None
        self._leaf: weakref.ref[LeafAccumulator] | None = None  # weak, to avoid a reference cycle
        self._retains = False
        self._lent: int | None = None  # fingerprint of an array that the user got while a tape reads it
        self._version = 0
        if requires_grad:
            self.requires_grad_()

    # The value --------------------------------------------------------------------------------------------------------

    @property
    def data(self) -> Any:
        """The value itself. Setting it, or writing to it, is noticed by operations that still need the old one.

        The array of an operation's result is read-only, because gradient rules may read it later. Three writes are not
        noticed: through an array that a leaf handed out before its use, through the array that it was made from, and to
        a Variable that requires no gradient.
        """
        if self._node is not None:
            return readOnly(self._value)
        if self._leaf is not None and self._leaf() is not None:
            lend(self)
        return self._value

    @data.setter
    def data(self, value: Any) -> None:
        needPlain(value, "Variable.data")
        self._value, self._lent = value, None
        self._version += 1

    @property
    def shape(self) -> Any:  # type: ignore[override]
        return shapeOf(self._value)

    @property
    def dtype(self) -> np.dtype:
        if isinstance(self._value, (bool, int)):
            return np.dtype(type(self._value))
        return self._value.dtype

    @property
    def grad_fn(self) -> TapeNode | None:
        """The Node that made it; None for a leaf."""
        return self._node

    @property
    def is_leaf(self) -> bool:
        """True if no recorded operation made this Variable."""
        return self._node is None

    @property
    def requires_grad(self) -> bool:
        """True if this Variable gets gradients; setting it calls `requires_grad_`."""
        return self._wants

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Variable:
        """Set whether this Variable gets gradients.

        Raises    TypeError for whole numbers, which have none; AutoDiffException for a Variable that is no leaf
        """
        if self._node is not None:
            raise AutoDiffException("requires_grad can be set on a leaf only; use detach() to make one")
        if requires_grad and not differentiable(self._value):
            kind = getattr(self._value, "dtype", type(self._value).__name__)
            raise TypeError(
                f"only floating point values and text can require gradients, got {kind}; use .astype(float)"
            )
        self._wants = bool(requires_grad)
        return self

    def detach(self) -> Variable:
        """A leaf with the same data, cut off from what made it."""
        return Variable(self.data, self.role)

    def item(self) -> Any:
        """The value as a plain Python number."""
        return self._value.item() if isArray(self._value) else self._value

    def tolist(self) -> Any:
        """The value as plain Python numbers in lists."""
        return self._value.tolist() if isArray(self._value) else self._value

    # The gradient -----------------------------------------------------------------------------------------------------

    @property
    def grad(self) -> Any:
        """The accumulated gradient: a sum for arrays, a list of contributions for other types."""
        if self._node is not None and not self._retains:
            raise AutoDiffException(
                f"the gradient of {self._node.name()}'s result is not kept: call retain_grad() before backward"
            )
        return self._grad if self._grad is not None or adds(self._value) else []

    @grad.setter
    def grad(self, value: Any) -> None:
        if self._node is not None and not self._retains:
            raise AutoDiffException(
                "the gradient of a Variable that is no leaf cannot be set: call retain_grad() first"
            )
        if not adds(self._value) and not isinstance(value, (list, type(None))):
            if not isinstance(value, Variable):
                raise TypeError(
                    f"the gradient of a {type(self._value).__name__} is a list of contributions, or one Variable, "
                    f"got {value!r:.80}"
                )
            value = [value]
        needPlain(value, "Variable.grad")
        self._grad = value

    def zero_grad(self) -> None:
        """Reset the gradient: None for arrays, an empty list for other types."""
        self._grad = None

    def receive(self, contributions: list[Any]) -> None:
        """Take the contributions of one pass: arrays add up, anything else is appended in order."""
        if not adds(self._value):
            self._grad = [*(self._grad or []), *contributions]
        elif self._grad is None:
            self._grad = owned(combine(contributions))
        else:
            self._grad = self._grad + combine(contributions)

    def retain_grad(self) -> None:
        """Keep the gradient of a Variable that is no leaf, too.

        Raises    AutoDiffException for a leaf, which keeps it anyway
        """
        if self._node is None:
            raise AutoDiffException("retain_grad() is for Variables that an operation made; a leaf keeps its gradient")
        if not self._retains:
            self._retains = True
            self._node.keep(self.output_nr, self)

    def register_hook(self, hook: Callable[[Any], Any]) -> Handle:
        """Call `hook(gradient)` when this Variable's gradient is known; what it returns, unless None, replaces it."""
        node, number = get_gradient_edge(self)
        return node.hook(number, hook)  # type: ignore[union-attr]

    def edge(self) -> GradientEdge:
        """The destination of its gradient; NOWHERE if it needs none."""
        node, number = targetOf(self)
        return NOWHERE if node is None else GradientEdge(node, number)

    def backward(
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
        accumulate: Add | None = None,
    ) -> None:
        """Send a gradient back from here: `backward(self, gradient, ...)`."""
        backward(self, gradient, retain_graph, create_graph, inputs, accumulate)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Convert for code that does not know Variables; refused where a gradient would be lost."""
        if self._wants:
            raise TypeError("a Variable that requires a gradient is no plain array: use its data, detach() or np.stack")
        return np.array(self._value, dtype)

    def __float__(self) -> float:
        """Refuse a Variable that requires a gradient, as `__array__` does: the gradient would be lost silently."""
        if self._wants:
            raise TypeError(
                "a Variable that requires a gradient is no plain number: use v.item() or v.data for a number without a "
                "gradient, numpy functions in place of Python's math, and np.stack in place of array[i] = v"
            )
        return float(self._value)

    def __format__(self, spec: str) -> str:
        return format(self._value, spec) if spec else str(self)

    def __repr__(self) -> str:
        made = f", grad_fn={self._node.name()}" if self._node is not None else ""
        wants = ", requires_grad=True" if self._wants and not made else ""
        role = f", role={self.role!r}" if self.role else ""
        return f"Variable({self._value!r}{role}{wants}{made})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        copied = restored(copy.deepcopy(self._value, memo), self.role, self._wants)
        if self._node is None:
            copied._grad = copy.deepcopy(self._grad, memo)
        return copied

    def __reduce__(self) -> tuple:
        return restored, (self._value, self.role, self._wants)


@accumulate.register(Variable)
def accumulate_variables(total: Variable, new: Any) -> Any:
    """Accumulate two contributions that are Variables: arrays are added, other values by `accumulate`."""
    if adds(total._value):
        return total + new
    return Variable(accumulate(total._value, getattr(new, "_value", new)), total.role)


@zeroLike.register(Variable)
def zero_variable(value: Variable) -> Variable:
    """Return the zero gradient of a value, as a Variable."""
    return Variable(zeroLike(value._value))


def restored(data: Any, role: str, requires_grad: bool) -> Variable:
    """Unpickle a Variable: a leaf with the pickled value."""
    leaf = Variable(data, role)
    leaf._wants = requires_grad
    return leaf


def lend(v: Variable) -> None:
    """Take a fingerprint of a leaf's array; if it differs from the last one, the array counts as modified."""
    before, v._lent = v._lent, fingerprint(v._value)
    if before is not None and before != v._lent:
        v._version += 1


def versionOf(v: object) -> int:
    """The version of a Variable's value now, whether it was set or written to; 0 for anything else."""
    if not isinstance(v, Variable):
        return 0
    if v._lent is not None:
        lend(v)
    return v._version


LOCK = Mutex()


def targetOf(v: Variable) -> tuple[Any, int]:
    """The destination of a Variable's gradient: a node and its output number; NOWHERE if it needs none."""
    if v._node is not None:
        return v._node, v.output_nr
    if not v._wants:
        return NOWHERE
    if v._lent is not None:
        lend(v)
    leaf = v._leaf and v._leaf()
    if leaf is None:
        with LOCK.lock:
            leaf = v._leaf and v._leaf()
            if leaf is None:
                leaf = LeafAccumulator(v)
                v._leaf = weakref.ref(leaf)
    return leaf, 0


def owned(g: Any) -> Any:
    """A gradient in memory of its own: the argument may be a seed, a view, or another leaf's gradient."""
    if isinstance(g, Variable):
        return g if g._wants else Variable(owned(g._value), g.role)
    return g.copy() if isArray(g) else g


def made(result: Any, node: TapeNode | None = None) -> Any:
    """The results of a node as Variables that point to it; those that cannot have a gradient need none."""
    if isinstance(result, (tuple, list)):
        return type(result)([variable(y, node if differentiable(y) else None, i) for i, y in enumerate(result)])
    return variable(result, node if differentiable(result) else None)


def variable(data: Any, node: TapeNode | None = None, number: int = 0, role: str = "") -> Variable:
    """A Variable as an output of a node, or a leaf where there is none."""
    new = NEW(Variable)
    new._value = np.float64(data) if type(data) is float else data
    new._node, new._wants = node, node is not None
    new.output_nr, new.role = number, role
    new._grad = new._leaf = new._lent = None
    new._retains = False
    new._version = 0
    return new


NEW = object.__new__


def standIn(v: Variable, grad: Any = None) -> Variable:
    """Return a copy of a text's Variable for the `backward` of a Function, which may set its `grad`."""
    new = variable(v._value, v._node, v.output_nr, v.role)
    new._wants, new._leaf, new._version = v._wants, v._leaf, v._version
    new._grad, new._retains = grad, True
    return new


def isVariable(value: object) -> bool:
    """True if a value is a Variable."""
    return isinstance(value, Variable)


def variables(value: Any) -> list[Variable]:
    """All Variables inside arguments, in order."""
    collected = []
    for v in value:
        if isinstance(v, Variable):
            collected.append(v)
        elif type(v) in (list, tuple):
            collected += variables(v)
        elif type(v) is dict:
            collected += variables(v.values())
    return collected


def bare(value: Any) -> Any:
    """Arguments with every Variable replaced by its value."""
    if isinstance(value, Variable):
        return value._value
    if type(value) in (list, tuple):
        return type(value)([bare(v) for v in value])
    if type(value) is dict:
        return {key: bare(v) for key, v in value.items()}
    return value


def adds(data: Any) -> bool:
    """True if gradients of this type are summed (arrays, numbers); others are collected in a list (text, own types)."""
    return isArray(data) or isinstance(data, (int, float, complex))


def typed(g: Any, v: Variable) -> Any:
    """A gradient in the dtype of its value."""
    kind = getattr(v._value, "dtype", None)
    return g if kind is None or getattr(g, "dtype", kind) == kind else g.astype(kind)
