"""Recording: calls of functions and operators on Variables, as nodes where one needs a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.autodiff.derivatives.declarations import FRESH, WRITING, positioned, refused, simplerCall, vjpOf
from puregraph.autodiff.derivatives.ufuncs import powerSlope, pullbackOf, slopesOf
from puregraph.autodiff.tape.gradmode import MODE
from puregraph.autodiff.tape.recordednodes import BinaryOp, Operation, Operator, UnaryOp, titled
from puregraph.autodiff.tape.variable import (
    Variable,
    bare,
    isVariable,
    made,
    variable,
    variables,
)
from puregraph.core.accumulate import differentiable, isArray, needPlain
from puregraph.core.base.dtype import isFloating
from puregraph.core.errors import AutoDiffException
from puregraph.core.hooks import HOOKS
from puregraph.core.tracer import Tracer
from puregraph.graph.function import copied
from puregraph.ops.formula.optable import OPERATORS
from puregraph.ops.fourier.complexpair import ComplexPair, complexRefusal
from puregraph.ops.gather.writes import isBasic, setAt
from puregraph.ops.operation import declared

if TYPE_CHECKING:
    from puregraph.core.rules import ArrayFunction, Rule

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


COLLECTED = {str, list}
SCALARS = {np.float64, np.float32, np.float16}
PLAIN = {np.ndarray, np.float64, np.float32, int, float, type(None), tuple}
TEXT_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {}
RECORDERS: dict[type, Callable[[Any, tuple, dict], Any]] = {}


SLOPES: dict[Any, Callable[..., Any]] = {  # by the functions whose gradient takes one or two operations
    getattr(np, name): slopesOf(row)[0]
    for name, row in (("negative", "neg"), *((f, f) for f in ("exp", "log", "sqrt", "square", "tanh", "sin", "cos")))
}


def handle(self: Any, function: ArrayFunction, arguments: tuple, options: dict[str, Any]) -> Any:
    """Run a function on the values of Variables, and record it."""
    for kind, recorder in RECORDERS.items():
        if isinstance(function, kind):
            return recorder(function, arguments, options)
    return record(function, arguments, options)


def arrayUfunc(self: Any, ufunc: np.ufunc, how: str, *inputs: Any, **options: Any) -> Any:
    """Record numpy's universal functions; most of a tape are operators and functions of one value."""
    if how == "__call__" and not options:
        if ufunc in SLOPES:
            return slide(ufunc, SLOPES[ufunc], self)
        if ufunc in BINARY:
            return operate(BINARY[ufunc], *inputs)
    return Tracer.__array_ufunc__(self, ufunc, how, *inputs, **options)


def negative(self: Any) -> Any:
    """Record -v."""
    return slide(np.negative, SLOPES[np.negative], self)


def power(self: Any, other: Any) -> Any:
    """Record v to a power."""
    if type(other) in (int, float):
        return slide(np.power, powerSlope(other), self, other)
    return self.handle(np.power, (self, other), {})


def setItem(self: Any, key: Any, new: Any) -> None:
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


def sides(op: Operator) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """Return the methods of an operator: the normal and the reflected one."""
    return lambda a, b: operate(op, a, b), lambda b, a: operate(op, a, b)


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


add, addReflected = sides(ADD)
subtract, subtractReflected = sides(SUB)
multiply, multiplyReflected = sides(MUL)
divide, divideReflected = sides(DIV)


def slide(function: ArrayFunction, slope: Callable[[Any, Any, Any], Any], v: Any, *more: Any) -> Variable:
    """Call a function of one Variable with the derivative `slope`; float16, which is computed wider, uses `record`."""
    isShort = v._wants and MODE.enabled and HOOKS.look is None and isArray(v._value) and v._value.dtype.itemsize > 2
    if not isShort:
        return record(function, (v, *more), {})
    y = v._value ** more[0] if more else function(v._value)
    return variable(y, UnaryOp(function, slope, v, y))


def operand(value: Any, name: str) -> Any:
    """Return the other operand of a Variable, if rules can compute with it."""
    if type(value) not in PLAIN:
        needPlain(value, name)
    return value


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
        raise complexRefusal(str(label))
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
