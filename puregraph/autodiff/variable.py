"""Variable: a value with a role and a gradient, whose operations are recorded as they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from puregraph.algebra import accumulate, isArray, shapeOf, zeroLike
from puregraph.autodiff.derivatives import CONSTANT, VJPS, pullbackOf
from puregraph.autodiff.engine import Add, backward
from puregraph.autodiff.graph import NOWHERE, AccumulateGrad, GradientEdge, Handle, Node, get_gradient_edge
from puregraph.autodiff.mode import MODE
from puregraph.errors import AutoDiffException
from puregraph.function import copied
from puregraph.standin import StandIn
from puregraph.watch import WATCH

AGAIN = (
    "the graph of this pass was freed by an earlier backward: trying to backward through it a second time "
    "needs retain_graph=True the first time"
)


class Variable(StandIn):
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
        "_data",
        "_grad",
        "_leaf",
        "_retains",
        "_version",
        "grad_fn",
        "output_nr",
        "requires_grad",
        "role",
    )

    def __init__(self, data: Any, role: str = "", requires_grad: bool = False):
        if isinstance(data, Variable):
            data = data.data
        if type(data) is float:
            data = np.float64(data)
        self._data = data
        self.role = role
        self.grad_fn: Node | None = None
        self.output_nr = 0
        self.requires_grad = False
        self._grad: Any = None
        self._leaf: AccumulateGrad | None = None
        self._retains = False
        self._version = 0
        if requires_grad:
            self.requires_grad_()

    # The value --------------------------------------------------------------------------------------------------------

    @property
    def data(self) -> Any:
        """The value itself. Setting it is noticed by operations that still need the old one."""
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        self._data = value
        self._version += 1

    @property
    def shape(self) -> Any:  # type: ignore[override]
        return shapeOf(self._data)

    @property
    def dtype(self) -> Any:  # type: ignore[override]
        return (
            getattr(self._data, "dtype", None)
            if not isinstance(self._data, (bool, int))
            else np.dtype(type(self._data))
        )

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operation made it."""
        return self.grad_fn is None

    def requires_grad_(self, requires_grad: bool = True) -> Variable:
        """Want gradients from now on, or none.

        Raises    TypeError for whole numbers, which have none; AutoDiffException for a Variable that is no leaf
        """
        if self.grad_fn is not None:
            raise AutoDiffException("requires_grad can be set on a leaf only; use detach() to make one")
        if requires_grad and not differentiable(self._data):
            kind = getattr(self._data, "dtype", type(self._data).__name__)
            raise TypeError(
                f"only floating point values and text can require gradients, got {kind}; use .astype(float)"
            )
        self.requires_grad = bool(requires_grad)
        return self

    def detach(self) -> Variable:
        """A leaf with the same data, cut off from what made it."""
        return Variable(self._data, self.role)

    def item(self) -> Any:
        """The value as a plain Python number."""
        return self._data.item() if isArray(self._data) else self._data

    # The gradient -----------------------------------------------------------------------------------------------------

    @property
    def grad(self) -> Any:
        """What the last passes gave: the sum for arrays, a list of contributions for anything else."""
        if self.grad_fn is not None and not self._retains:
            raise AutoDiffException(
                f"the gradient of what {self.grad_fn.name()} made is not kept: call retain_grad() before backward"
            )
        return self._grad if self._grad is not None or adds(self._data) else []

    @grad.setter
    def grad(self, value: Any) -> None:
        if self.grad_fn is not None and not self._retains:
            raise AutoDiffException(
                "the gradient of a Variable that is no leaf cannot be set: call retain_grad() first"
            )
        if not adds(self._data) and not isinstance(value, (list, type(None))):
            raise TypeError(
                f"the gradient of a {type(self._data).__name__} is a list of contributions, got {value!r:.80}"
            )
        self._grad = value

    def zero_grad(self) -> None:
        """Forget the gradient."""
        self._grad = None

    def receive(self, contributions: list[Any]) -> None:
        """Take the contributions of one pass: arrays add up, anything else is appended in order."""
        if adds(self._data):
            for g in contributions:
                own = g.detach() if type(g) is Variable and not g.requires_grad else g
                self._grad = own if self._grad is None else self._grad + own
        else:
            self._grad = [*(self._grad or []), *contributions]

    def retain_grad(self) -> None:
        """Keep the gradient of a Variable that is no leaf, too.

        Raises    AutoDiffException for a leaf, which keeps it anyway
        """
        if self.grad_fn is None:
            raise AutoDiffException("retain_grad() is for Variables that an operation made; a leaf keeps its gradient")
        if not self._retains:
            self._retains = True
            self.grad_fn.hook(self.output_nr, lambda g: self.receive([g]))

    def register_hook(self, hook: Callable[[Any], Any]) -> Handle:
        """Call `hook(gradient)` when this Variable's gradient is known; what it returns, unless None, replaces it."""
        node, number = get_gradient_edge(self)
        return node.hook(number, hook)  # type: ignore[union-attr]

    def edge(self) -> GradientEdge:
        """Where its gradient goes; nowhere if it needs none."""
        if self.grad_fn is not None:
            return GradientEdge(self.grad_fn, self.output_nr)
        if not self.requires_grad:
            return NOWHERE
        if self._leaf is None:
            self._leaf = AccumulateGrad(self)
        return GradientEdge(self._leaf, 0)

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

    # Recording --------------------------------------------------------------------------------------------------------

    def handle(self, function: Any, arguments: tuple, options: dict[str, Any]) -> Any:
        """Run a function on the values of Variables, and record it."""
        for kind, recorder in RECORDERS.items():
            if isinstance(function, kind):
                return recorder(function, arguments, options)
        return record(function, arguments, options)

    def __add__(self, other: Any) -> Any:
        return operate("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return operate("add", other, self)

    def __mul__(self, other: Any) -> Any:
        return operate("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return operate("mul", other, self)

    def __sub__(self, other: Any) -> Any:
        return operate("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return operate("sub", other, self)

    def __bool__(self) -> bool:
        return bool(self._data)

    def __float__(self) -> float:
        return float(self._data)

    def __repr__(self) -> str:
        made = f", grad_fn={self.grad_fn.name()}" if self.grad_fn is not None else ""
        wants = ", requires_grad=True" if self.requires_grad and not made else ""
        role = f", role={self.role!r}" if self.role else ""
        return f"Variable({self._data!r}{role}{wants}{made})"

    def __deepcopy__(self, memo: Any) -> Variable:
        copied = Variable(self._data.copy() if isArray(self._data) else self._data, self.role)
        copied.requires_grad = self.requires_grad
        return copied

    def __reduce__(self) -> Any:
        return restored, (self._data, self.role, self.requires_grad)


@accumulate.register(Variable)
def accumulate_variables(total: Variable, new: Any) -> Any:
    """Two contributions that are Variables: arrays add, of anything else the values are accumulated."""
    if adds(total._data):
        return total + new
    return Variable(accumulate(total._data, getattr(new, "_data", new)), total.role)


@zeroLike.register(Variable)
def zero_variable(value: Variable) -> Variable:
    """The gradient that says nothing, as a Variable."""
    return Variable(zeroLike(value._data))


def restored(data: Any, role: str, requires_grad: bool) -> Variable:
    """A Variable out of a pickle: a leaf with the value of the one that went in."""
    found = Variable(data, role)
    found.requires_grad = requires_grad
    return found


class Operation(Node):
    """One recorded call: what it was called with, what it gave, and the rule for its gradient."""

    __slots__ = ("arguments", "function", "leaves", "needs", "options", "result", "rule", "versions")

    def __init__(self, function: Any, rule: Any, arguments: tuple, options: dict, leaves: list[Variable], result: Any):
        edges = tuple([v.edge() for v in leaves])
        super().__init__((), len(result) if type(result) is tuple else 1)
        self.edges = edges
        self.function, self.rule, self.arguments, self.options = function, rule, arguments, options
        self.leaves, self.result = leaves, result
        self.versions = [v._version for v in leaves]
        self.needs = tuple([isinstance(a, Variable) and a.requires_grad for a in arguments])

    def name(self) -> str:
        return f"{camel(self.function)}Backward0"

    def apply(self, *grads: Any) -> Any:
        if self.result is None:
            raise AutoDiffException(f"{self.name()}: {AGAIN}")
        for v, version in zip(self.leaves, self.versions):
            if v._version != version:
                raise AutoDiffException(
                    f"{self.name()}: a Variable that it needs was modified in place since; make a new one instead"
                )
        result, arguments = self.result, self.arguments
        if MODE.enabled:
            result = made(result, self)
            grads = tuple([g if g is None or isinstance(g, Variable) else Variable(g) for g in grads])
        else:
            arguments = bare(arguments)
            grads = tuple([g._data if type(g) is Variable else g for g in grads])
        grad = grads if type(result) is tuple else grads[0]
        return aligned(self.rule(grad, result, arguments, self.options, self.needs), self.arguments)

    def release(self) -> None:
        self.arguments = self.leaves = self.result = None  # type: ignore[assignment]


def record(function: Any, arguments: tuple, options: dict[str, Any], rule: Any = None) -> Any:
    """Call a function on the values of Variables; where one needs a gradient, as an Operation.

    Raises    AutoDiffException where a gradient is needed and none is known for the function
    """
    if "out" in options and variables((options["out"],)):  # a Variable is not written to: what is returned counts
        options = {name: option for name, option in options.items() if name != "out"}
    leaves = variables(arguments)
    result = function(*bare(arguments), **options)
    if WATCH.look is not None:
        WATCH.look(camel(function), function, bare(arguments), result if type(result) in (tuple, list) else (result,))
    if function in CONSTANT or options.get("out") is not None:
        return result
    isRecorded = MODE.enabled and any(v.requires_grad for v in leaves)
    if not isRecorded:
        return made(result, None)
    rule = rule or VJPS.get(function) or pullbackOf(function)
    if rule is None:
        if not hasFloats(result):
            return made(result, None)
        raise AutoDiffException(
            f"no gradient is known for {getattr(function, '__name__', function)}: use detach() for values without one, "
            "or write a Function"
        )
    if type(result) is list:
        result = tuple(result)
    if list in map(type, arguments):  # which may be another one by the time of backward
        arguments = copied(arguments)
    return made(result, Operation(function, rule, arguments, options, leaves, result))


def operate(name: str, a: Any, b: Any) -> Any:
    """An operator on two values: on text what `puregraph.text` made of it, else numpy's."""
    function = OPERATORS[name]
    for v in (a, b):
        if isinstance(v, Variable) and isinstance(v._data, (str, list)):
            if name not in TEXT_OPERATORS:
                raise AutoDiffException(f"text knows no operator {name!r}; `import puregraph.text` brings addition")
            return TEXT_OPERATORS[name](a, b)
    return record(function, (a, b), {})


OPERATORS = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
TEXT_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {}
RECORDERS: dict[type, Callable[[Any, tuple, dict], Any]] = {}


def made(result: Any, node: Node | None) -> Any:
    """The results of a node as Variables that point to it; those that cannot have a gradient need none."""
    if type(result) in (tuple, list):
        return type(result)([variable(y, node, i) for i, y in enumerate(result)])
    return variable(result, node, 0)


def variable(data: Any, node: Node | None, number: int) -> Variable:
    """One result of a node as a Variable."""
    new = Variable(data)
    if node is not None and differentiable(data):
        new.grad_fn, new.output_nr, new.requires_grad = node, number, True
    return new


def variables(value: Any) -> list[Variable]:
    """All Variables inside arguments, in order."""
    found = []
    for v in value:
        if isinstance(v, Variable):
            found.append(v)
        elif type(v) in (list, tuple):
            found += variables(v)
        elif type(v) is dict:
            found += variables(v.values())
    return found


def bare(value: Any) -> Any:
    """Arguments with every Variable's value in its place."""
    if isinstance(value, Variable):
        return value._data
    if type(value) in (list, tuple):
        return type(value)([bare(v) for v in value])
    if type(value) is dict:
        return {key: bare(v) for key, v in value.items()}
    return value


def aligned(grads: Any, arguments: Any) -> tuple:
    """From one gradient per argument (a list for a list), those of the Variables among them."""
    found: list[Any] = []
    for g, a in zip(grads, arguments):
        if isinstance(a, Variable):
            found.append(g)
        elif type(a) in (list, tuple):
            found += aligned(g if g is not None else [None] * len(a), a)
    return tuple(found)


def differentiable(data: Any) -> bool:
    """Whether a value can have a gradient: floating point, or no number at all."""
    kind = getattr(data, "dtype", None)
    return kind.kind in "fc" if kind is not None else not isinstance(data, (bool, int, type(None)))


def hasFloats(result: Any) -> bool:
    """Whether any of a call's results can have a gradient."""
    return any(map(hasFloats, result)) if type(result) in (tuple, list) else differentiable(result)


def adds(data: Any) -> bool:
    """Whether gradients of a value add up into one; those of text and of types of your own are collected."""
    return isArray(data) or isinstance(data, (int, float, complex))


def camel(function: Any) -> str:
    """`true_divide` as `TrueDivide`."""
    name = getattr(function, "__name__", type(function).__name__)
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
