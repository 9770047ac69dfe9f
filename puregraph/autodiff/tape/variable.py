"""Variable: a value with a role and a gradient, whose operations are recorded as they run."""

from __future__ import annotations

import copy
import operator
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.autodiff.derivatives.declarations import FRESH, WRITING, positioned, refused, simplerCall, vjpOf
from puregraph.autodiff.derivatives.ufuncs import powerSlope, pullbackOf, slopesOf
from puregraph.autodiff.tape.engine import Add, backward
from puregraph.autodiff.tape.gradmode import MODE
from puregraph.autodiff.tape.tapenode import (
    NOWHERE,
    NUMBERS,
    GradientEdge,
    Handle,
    LeafAccumulator,
    TapeNode,
    get_gradient_edge,
)
from puregraph.core.accumulate import accumulate, combine, differentiable, isArray, needPlain, shapeOf, zeroLike
from puregraph.core.base.align import readOnly
from puregraph.core.base.dtype import isFloating
from puregraph.core.base.fingerprint import fingerprint
from puregraph.core.base.mutex import Mutex
from puregraph.core.errors import AutoDiffException, GraphError
from puregraph.core.hooks import HOOKS
from puregraph.core.linkednode import LinkedNode
from puregraph.core.tracer import Tracer
from puregraph.graph.function import copied
from puregraph.ops.formula.optable import OPERATORS
from puregraph.ops.fourier.complexpair import ComplexPair
from puregraph.ops.gather.writes import isBasic, setAt
from puregraph.ops.operation import declared
from puregraph.ops.reduction.reference import fit

if TYPE_CHECKING:
    from puregraph.core.rules import ArrayFunction, Rule

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


ADD, SUB, MUL, DIV = (
    Operator(name, f, OPERATORS[symbol], *slopesOf(symbol))
    for name, f, symbol in (
        ("add", np.add, "+"),
        ("sub", np.subtract, "-"),
        ("mul", np.multiply, "*"),
        ("div", np.true_divide, "/"),
    )
)
BINARY = {op.function: op for op in (ADD, SUB, MUL, DIV)}


def sides(op: Operator) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """Return the methods of an operator: the normal and the reflected one."""
    return lambda a, b: operate(op, a, b), lambda b, a: operate(op, a, b)


class RecordedValue(Tracer):
    """The operations of a Variable; each is recorded."""

    __slots__ = ()
    _value: Any

    @property
    def carrier(self) -> Any:
        return self._value

    def handle(self, function: ArrayFunction, arguments: tuple, options: dict[str, Any]) -> Any:
        """Run a function on the values of Variables, and record it."""
        for kind, recorder in RECORDERS.items():
            if isinstance(function, kind):
                return recorder(function, arguments, options)
        return record(function, arguments, options)

    def __array_ufunc__(self, ufunc: np.ufunc, how: str, *inputs: Any, **options: Any) -> Any:
        if how == "__call__" and not options:
            if ufunc in SLOPES:
                return slide(ufunc, SLOPES[ufunc], self)
            if ufunc in BINARY:
                return operate(BINARY[ufunc], *inputs)
        return super().__array_ufunc__(ufunc, how, *inputs, **options)

    def __neg__(self) -> Any:
        return slide(np.negative, SLOPES[np.negative], self)

    def __pow__(self, other: Any) -> Any:
        if type(other) in (int, float):
            return slide(np.power, powerSlope(other), self, other)
        return self.handle(np.power, (self, other), {})

    __add__, __radd__ = sides(ADD)
    __sub__, __rsub__ = sides(SUB)
    __mul__, __rmul__ = sides(MUL)
    __truediv__, __rtruediv__ = sides(DIV)

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

    def __setitem__(self, key: Any, new: Any) -> None:
        """Write values to some positions, as a new result of this Variable; arrays that it shared are not changed.

        Raises    AutoDiffException for a leaf that requires a gradient, or for an index of whole numbers in arrays
        """
        if self._wants and self._node is None:
            raise AutoDiffException(
                "a leaf that requires a gradient is not written into: write into a copy of it, np.copy(v)"
            )
        if not isBasic(key):
            raise AutoDiffException(
                "a Variable is written into by slices, whole numbers and masks: an array of indices may name an "
                "element twice; np.where chooses between values"
            )
        overwrite(self, record(setAt, (variable(self._value, self._node, self.output_nr), key, new), {}))

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


def slide(function: ArrayFunction, slope: Callable[[Any, Any, Any], Any], v: Any, *more: Any) -> Variable:
    """Call a function of one Variable with the derivative `slope`; float16, which is computed wider, uses `record`."""
    isShort = v._wants and MODE.enabled and HOOKS.look is None and isArray(v._value) and v._value.dtype.itemsize > 2
    if not isShort:
        return record(function, (v, *more), {})
    y = v._value ** more[0] if more else function(v._value)
    return variable(y, UnaryOp(function, slope, v, y))


SLOPES: dict[Any, Callable[..., Any]] = {  # by the functions whose gradient takes one or two operations
    getattr(np, name): slopesOf(row)[0]
    for name, row in (("negative", "neg"), *((f, f) for f in ("exp", "log", "sqrt", "square", "tanh", "sin", "cos")))
}


def operate(op: Operator, a: Any, b: Any) -> Any:
    """Apply an operator to two values: for text the one of `puregraph.compat.text`, otherwise numpy's."""
    x, wants = (a._value, a._wants) if isinstance(a, Variable) else (operand(a, op.name), False)
    z, wants = (b._value, wants or b._wants) if isinstance(b, Variable) else (operand(b, op.name), wants)
    if type(x) in COLLECTED and x is not a or type(z) in COLLECTED and z is not b:
        if op.name not in TEXT_OPERATORS:
            raise AutoDiffException(
                f"text knows no operator {op.name!r}; `import puregraph.compat.text` brings addition"
            )
        return TEXT_OPERATORS[op.name](a, b)
    isRecorded, isForeign = wants and MODE.enabled, isinstance(x, Tracer) or isinstance(z, Tracer)
    if not (isRecorded or isArray(x) or isArray(z)) or isForeign or HOOKS.look is not None:
        return record(op.function, (a, b), {})
    y = op.call(x, z)
    if not isRecorded:
        return variable(y)
    kind = type(y)
    if kind in SCALARS and (type(x) is kind or x is a) and (type(z) is kind or z is b):
        return variable(y, BinaryOp(op, a, b, y, True))
    if not isArray(y) or not isFloating(y.dtype):
        return record(op.function, (a, b), {})
    isSame = all(v.shape == y.shape and v.dtype == y.dtype for v in (a, b) if isinstance(v, Variable))
    return variable(y, BinaryOp(op, a, b, y, isSame))


def operand(value: Any, name: str) -> Any:
    """Return the other operand of a Variable, if rules can compute with it."""
    if type(value) not in PLAIN:
        needPlain(value, name)
    return value


PLAIN = {np.ndarray, np.float64, np.float32, int, float, type(None), tuple}


def record(function: ArrayFunction, arguments: tuple, options: dict[str, Any], rule: Rule | None = None) -> Any:
    """Call a function on the values of Variables; where one needs a gradient, as an Operation.

    Raises    AutoDiffException where a gradient is needed and none is known for the function, or for one of its options
    """
    if options:
        arguments, options = positioned(function, arguments, options, isVariable)
    pair = next((a for a in arguments if isinstance(a, ComplexPair)), None)
    if pair is not None:  # which has Variables as its parts
        return pair.handle(function, arguments, options)
    leaves = variables(arguments)
    isRecorded = MODE.enabled and any(v._wants for v in leaves)
    isAt = getattr(function, "__name__", "") == "at"  # np.add.at and the like
    if options.get("out") is not None or function in WRITING or isAt:
        return written(function, arguments, options, isRecorded)
    simpler = declared(function, "composed") if isRecorded and rule is None else None
    composed = NotImplemented if simpler is None else simplerCall(function, simpler, arguments, options)
    if composed is not NotImplemented:
        return composed
    plain = bare(arguments)
    for x in plain:
        operand(x, titled(function))
    result = function(*plain, **options)
    if HOOKS.look is not None:
        HOOKS.look(titled(function), function, plain, result if type(result) in (tuple, list) else (result,))
    if declared(function, "constant"):
        return made(result) if isRecorded and function in FRESH else result
    if isinstance(result, tuple) and type(result) is not tuple:
        result = tuple(result)
    if not isRecorded or not hasFloats(result):
        return made(result)
    label = getattr(function, "__name__", function)
    rule = rule or vjpOf(function) or pullbackOf(function)
    if rule is None:
        raise AutoDiffException(
            f"no gradient is known for {label}: use detach() for values without one, or write a Function"
        )
    if hasKind(result, "c"):
        raise AutoDiffException(f"{label} gives complex numbers, which have no gradient here: write a Function")
    lost = refused(function, rule, plain, options)
    if lost:
        raise AutoDiffException(f"the gradient of {label} is not known with {lost}: leave it out, or write a Function")
    if list in map(type, arguments):  # the caller may change a list before backward
        arguments = copied(arguments)
    node = Operation(function, rule, arguments, options, leaves, tuple(result) if type(result) is list else result)
    return made(result, node)


def written(function: ArrayFunction, arguments: tuple, options: dict[str, Any], isRecorded: bool) -> Any:
    """Run a call with `out=`: a Variable takes the written value, an array that would lose a gradient is refused.

    Raises    AutoDiffException for a leaf that requires a gradient, or an array that would lose one
    """
    out = options["out"] if "out" in options else arguments[0]
    out = out[0] if type(out) is tuple and len(out) == 1 else out
    owner = getattr(function, "__self__", None)
    label = f"{owner.__name__}.at" if isinstance(owner, np.ufunc) else function.__name__
    if isVariable(out) and "out" in options and not (out._wants and out.is_leaf):
        before = variable(out._value, out._node, out.output_nr)
        left = {name: option for name, option in options.items() if name != "out"}
        y = record(function, tuple([before if a is out else a for a in arguments]), left)
        if (y.shape, y.dtype) != (out.shape, out.dtype):
            raise AutoDiffException(
                f"{label}: wanted out= of shape {y.shape} and {y.dtype}, got {out.shape} and {out.dtype}"
            )
        overwrite(out, y)
        return out
    if any(map(isVariable, out if type(out) is tuple else (out,))):
        raise AutoDiffException(f"{label}: writing into this Variable is not supported; compute a new one instead")
    if isRecorded:
        raise AutoDiffException(
            f"{label}: writing a Variable that requires a gradient into an array (as in array += Variable) "
            "is not recorded: write array = array + Variable, or use detach()"
        )
    return function(*bare(arguments), **options)


def overwrite(v: Variable, y: Variable) -> None:
    """Set a Variable to the result of a write; if it is not recorded, only the value changes, as in torch."""
    v.data = y._value
    if MODE.enabled:
        v._node, v.output_nr, v._wants = y._node, y.output_nr, y._wants


COLLECTED = {str, list}
SCALARS = {np.float64, np.float32, np.float16}
TEXT_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {}
RECORDERS: dict[type, Callable[[Any, tuple, dict], Any]] = {}


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


def aligned(grads: Any, arguments: Any) -> tuple:
    """Flatten one gradient per argument (a list for a list) to one per Variable."""
    flat: list[Any] = []
    for g, a in zip(grads, arguments):
        if isinstance(a, Variable):
            flat.append(g)
        elif type(a) in (list, tuple):
            flat += aligned(g if g is not None else [None] * len(a), a)
    return tuple(flat)


def hasKind(result: Any, kind: str) -> bool:
    """True if a result contains an array of this kind of dtype."""
    if isinstance(result, (tuple, list)):
        return any(hasKind(y, kind) for y in result)
    return isArray(result) and result.dtype.kind == kind


def hasFloats(result: Any) -> bool:
    """True if any part of a result can have a gradient."""
    if isinstance(result, (tuple, list)):
        return any(map(hasFloats, result))
    return differentiable(result) or hasKind(result, "c")


def adds(data: Any) -> bool:
    """True if gradients of this type are summed (arrays, numbers); others are collected in a list (text, own types)."""
    return isArray(data) or isinstance(data, (int, float, complex))


def typed(g: Any, v: Variable) -> Any:
    """A gradient in the dtype of its value."""
    kind = getattr(v._value, "dtype", None)
    return g if kind is None or getattr(g, "dtype", kind) == kind else g.astype(kind)


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
