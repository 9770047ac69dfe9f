"""Value and Call: the intermediate form of a compiled step, in single assignment form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from puregraph.ops.ir.kind import KINDS, Kind
from puregraph.ops.operation import OPERATIONS, ArrayOp

ARRAYS = ("attribute", "constant")  # roles of Values whose source is their array
LEAVES = ("input", "param", "state", "scalar", *ARRAYS, "object")  # roles of Values without a call


class Value:
    """One array of a step. It is computed once and never changes; writing in place makes another Value.

    `number`   its index in the order in which values were made
    `role`     "input", "param", "state", "scalar" (a number that each run reads), "attribute" (an array of a user's
               module, whose elements may change), "constant", "made" (by a call), or "object": not an array, passed
               between opaque rules unchanged
    `strides`  in bytes, as numpy would lay it out
    `base`     the Value whose memory a view shares, or None; `offset`: bytes from the base's start
    `source`   the Param or State, the array of an attribute or constant, or the name of a scalar
    """

    __slots__ = ("base", "call", "dtype", "name", "number", "offset", "role", "shape", "size", "source", "strides")

    def __init__(
        self,
        number: int,
        shape: tuple[int, ...],
        dtype: np.dtype,
        strides: tuple[int, ...],
        role: str = "made",
        name: str = "",
        source: Any = None,
    ):
        self.number, self.role, self.name, self.source = number, role, name, source
        self.shape, self.dtype, self.strides = shape, dtype, strides
        self.size = math.prod(shape)
        self.base: Value | None = None
        self.offset = 0
        self.call: Call | None = None

    @property
    def root(self) -> Value:
        """The Value that owns the memory: the base of a view, or the Value itself."""
        return self.base or self

    @property
    def isView(self) -> bool:
        return self.base is not None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        if self.role == "object":
            return f"<%{self.number} object{name}>"
        of = f" in %{self.base.number}" if self.base else ""
        return f"<%{self.number} {self.role}{name} {self.dtype}{list(self.shape)}{of}>"


class Offset(NamedTuple):
    """An offset in bytes from the start of a Value."""

    value: Value
    bytes: int


class CallOrigin(NamedTuple):
    """The origin of a call: the node's path and module, its input shapes, the step's phase, the module's precision."""

    path: str
    label: str = ""
    shapes: tuple = ()
    phase: str = "forward"
    precision: str = "float32"

    @property
    def isTf32(self) -> bool:
        """True if float32 may be multiplied in tf32, which has a fraction of ten bits."""
        return self.precision == "tf32"


class Call:
    """One call: `outs = function(*arguments, **options)`. Arguments may contain Values, also in tuples and lists.

    `kind` has its traits:

    "pointwise"  element by element with broadcasting: a ufunc, `astype`, `np.where`, or an Interpreter (a Formula)
    "reduce"     `np.sum`, `np.mean`, `np.max` and the like
    "product"    `np.matmul`, `np.dot` and the like
    "view"       the result is stored in the memory of the first argument; no code runs
    "copy"       the elements of the first argument in a new order (`copy`, `reshape`), or `np.concatenate`, `np.stack`
    "fill"       a constant everywhere: `fill(number)`
    "put"        `put(x, key, y)`: x with x[key] = y; x may be a scalar, which fills the result
    "kernel"     a Kernel
    "update"     a Kernel that writes to the state that is its first argument; the result is a view of all of it
    "other"      any other function of numpy
    "native"     native code that replaces one call or several
    "rule"       a whole rule that could not be traced; it may have effects, and always runs
    "store"      `store(x)`: x is copied to the memory of the option `target`
    "host"       a Python call between two parts of a step; the step ends if it returns False

    A call returns one value, or with `several` a tuple or list; a result that is None is None in `outs`.
    """

    __slots__ = ("arguments", "function", "kind", "options", "origin", "outs", "several")

    def __init__(
        self,
        function: Any,
        arguments: tuple,
        options: dict[str, Any],
        outs: list[Any],
        kind: Kind | str,
        origin: CallOrigin,
        several: bool = False,
    ):
        self.function, self.arguments, self.options = function, arguments, options
        self.outs, self.origin, self.several = outs, origin, several
        self.kind = KINDS[kind] if isinstance(kind, str) else kind

    @property
    def name(self) -> str:
        """The short name of a function."""
        return nameOf(self.function)

    def values(self) -> list[Value]:
        """The Values among the arguments, in order, with repetitions."""
        operands: list[Value] = []
        for a in self.arguments:
            if type(a) is Value:
                operands.append(a)
            elif type(a) in (tuple, list):
                operands.extend(valuesIn(a))
        for a in self.options.values():
            if type(a) is Value or type(a) in (tuple, list):
                operands.extend(valuesIn((a,)))
        return operands

    def __repr__(self) -> str:
        return written(self)


def valuesIn(nested: Iterable[Any]) -> Iterator[Value]:
    """The Values inside tuples and lists."""
    for a in nested:
        if type(a) is Value:
            yield a
        elif type(a) in (tuple, list):
            yield from valuesIn(a)
        elif type(a) is slice:
            yield from valuesIn((a.start, a.stop, a.step))


def changed(nested: Any, change: Callable[[Value], Any]) -> Any:
    """The same nesting with each Value replaced by `change(value)`."""
    kind = type(nested)
    if kind is Value:
        return change(nested)
    if kind is tuple or kind is list:
        return kind([change(a) if type(a) is Value else changed(a, change) for a in nested])
    if kind is slice:
        return slice(*[changed(a, change) for a in (nested.start, nested.stop, nested.step)])
    return nested


def comparable(a: Any, numbers: dict[int, int] | None = None) -> Any:
    """A comparable form of an argument or a function; forms are equal only if the effects are equal."""
    kind = type(a)
    if kind is Value:
        return a.number if numbers is None else numbers.get(a.number, a.number)
    if kind is tuple or kind is list:
        return kind is list, tuple([comparable(item, numbers) for item in a])
    if kind is dict:
        return tuple([(k, comparable(a[k], numbers)) for k in sorted(a)]) if a else ()
    if kind is int or kind is str or kind is bool or a is None:
        return kind, a
    if kind is float:
        return kind, a.hex()
    if kind is slice:
        return kind, comparable(a.start, numbers), comparable(a.stop, numbers), comparable(a.step, numbers)
    if isinstance(a, np.generic):
        return a.dtype.str, a.tobytes()
    owner = getattr(a, "__self__", None)
    if isinstance(owner, np.ufunc):
        return owner, a.__name__
    return a if isinstance(a, (np.dtype, type, np.ufunc)) else ("id", id(a))


# Functions of calls that have no name in numpy -----------------------------------------------------------------------


def fill(number: Any) -> NoReturn:
    """A constant in every element of the result."""
    raise NotImplementedError("fill is computed in the memory of its result")


def copy(x: ArrayLike) -> np.ndarray:
    """A copy of the elements, broadcast if needed, in the layout of the result."""
    return np.array(x)


def put(x: Any, key: Any, y: ArrayLike) -> np.ndarray:
    """A copy of x with x[key] = y."""
    x = np.array(x)
    x[key] = y
    return x


def store(x: ArrayLike) -> NoReturn:
    """The values of x, copied to a parameter, a state or a gradient."""
    raise NotImplementedError("store is computed in the memory of its result")


# Printing -------------------------------------------------------------------------------------------------------------


def nameOf(function: Any) -> str:
    """The short name of a function."""
    terms = getattr(function, "terms", None)
    if terms is not None:
        return "formula"
    owner = getattr(function, "__self__", None)
    if isinstance(owner, np.ufunc):
        return f"{owner.__name__}.{function.__name__}"
    if owner is not None and hasattr(owner, "brief"):
        return f"{function.__name__} of {owner.brief()}"
    return getattr(function, "__name__", None) or type(function).__name__


OWN = (copy, fill, put, store)  # functions of the intermediate form itself, which no rule calls
OPERATIONS.update({function: ArrayOp(function.__name__) for function in OWN})


def written(call: Call) -> str:
    """A call as one line: `%7 = add(%3, %5)`."""
    left = ", ".join("None" if y is None else f"%{y.number}" for y in call.outs)
    arguments = [text(a) for a in call.arguments] + [f"{k}={text(v)}" for k, v in call.options.items()]
    return f"{left or '-'} = {call.name}({', '.join(arguments)})"


def text(a: Any) -> str:
    """An argument as shown in a listing."""
    if type(a) is Value:
        return f"%{a.number}"
    if type(a) in (tuple, list):
        inner = ", ".join(map(text, a))
        return f"[{inner}]" if type(a) is list else f"({inner})"
    if type(a) is slice:
        ends = ["" if e is None else text(e) for e in (a.start, a.stop)]
        return ":".join(ends if a.step is None else [*ends, text(a.step)])
    if a is Ellipsis:
        return "..."
    if isinstance(a, type):
        return a.__name__
    return str(a) if isinstance(a, (np.dtype, str)) else repr(a)
