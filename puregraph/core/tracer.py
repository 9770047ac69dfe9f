"""Tracer: a stand-in for an array in a rule, to record or replay the calls that the rule makes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core import device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.core.protocols import AnyArray


def astype(x: Any, dtype: Any, copy: bool = True) -> Any:
    """x.astype(dtype), as a function that a Tracer can be handed."""
    return x.astype(dtype, copy=copy)


HANDED: set[Any] = {astype, operator.getitem}  # functions that call `handle` themselves, besides numpy's and Kernels


def dataOf(value: AnyArray) -> AnyArray:
    """Return the array of a Variable; other values are returned unchanged."""
    return getattr(value, "data", value) if tracerOf((value,)) is not None else value


def arrayLike(x: Any, array: np.ndarray) -> AnyArray:
    """An array of the host, such as positions 0 ... n - 1, on the device of x; a constant of a compiled step."""
    while isinstance(x, Tracer):
        x = x.carrier
    isHost = type(x) is np.ndarray or not hasattr(x, "__array_function__")
    return array if isHost else np.asarray(array, like=x)


def changingAs(y: Any, x: Any = None) -> Any:
    """Return y; its tangent in forward mode becomes that of x, or zero without x."""
    return y.changingAs(x) if hasattr(y, "changingAs") else y


def method(function: Callable[..., Any]) -> Callable[..., Any]:
    """An array's method that hands its function of numpy to `handle`."""

    def call(self: Tracer, *arguments: object, **options: object) -> AnyArray:
        return self.handle(function, (self, *arguments), options)

    return call


def reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reflected operator, whose left operand is not a Tracer."""

    def call(self: Tracer, other: object) -> AnyArray:
        return self.handle(function, (other, self), {})

    return call


def power(self: Any, other: object) -> AnyArray:
    """`**` as for arrays: a boolean array ** 2 is np.square, which gives another dtype than np.power."""
    isSquare = type(other) is int and other == 2 and self.dtype == bool
    return self.handle(np.square, (self,), {}) if isSquare else self.handle(np.power, (self, other), {})


class Tracer:
    """A value that a rule treats as an array: has `shape` and `dtype`, and intercepts every call on it.

    numpy's functions, methods and operators, Formulas and Kernels with a Tracer among their arguments pass the call to
    `handle(function, arguments, options)`, where `function` is the function that was called: a ufunc, a
    function of numpy, `operator.getitem`, `astype`, an Interpreter, a Kernel or a Module. A rule that only uses those
    needs no change. There is no writing to a Tracer: `x += y` makes a new one.
    """

    __slots__ = ()
    __array_priority__ = 1000.0
    takesComposites = False  # True to receive a composite kernel as one call
    shape: tuple[int, ...]
    dtype: Any

    @property
    def carrier(self) -> Any:
        """The array of this stand-in; None if it has none yet."""
        return None

    def keepsComposite(self, function: Any) -> bool:
        """True if a composite kernel with this Tracer among its arguments is received as one call."""
        return self.takesComposites

    def tolist(self) -> list:
        """Return the elements of `carrier` as nested lists."""
        return device.toHost(self.carrier).tolist()

    def handle(self, function: Callable[..., Any], arguments: tuple, options: dict[str, Any]) -> Any:
        """Run a call that has this Tracer among its arguments."""
        raise NotImplementedError

    def __array_ufunc__(self, ufunc: Any, how: str, *inputs: AnyArray | float, **options: object) -> AnyArray | None:
        return self.handle(ufunc if how == "__call__" else getattr(ufunc, how), inputs, options)

    def __array_function__(
        self, function: Any, types: tuple[type, ...], arguments: tuple, options: dict[str, Any]
    ) -> Any:
        return self.handle(function, arguments, options)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def T(self) -> AnyArray:
        return self.handle(np.transpose, (self,), {})

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a value without axes has no length")
        return self.shape[0]

    def reshape(self, *shape: Any, **options: Any) -> Any:
        return self.handle(np.reshape, (self, shape[0] if len(shape) == 1 else shape), options)

    def transpose(self, *axes: int | Sequence[int]) -> AnyArray:
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        return self.handle(np.transpose, (self, order), {})

    astype = method(astype)
    __getitem__ = method(operator.getitem)
    __neg__ = method(np.negative)
    __pos__ = method(np.positive)
    __abs__ = method(np.absolute)
    __add__, __radd__ = method(np.add), reflected(np.add)
    __sub__, __rsub__ = method(np.subtract), reflected(np.subtract)
    __mul__, __rmul__ = method(np.multiply), reflected(np.multiply)
    __truediv__, __rtruediv__ = method(np.true_divide), reflected(np.true_divide)
    __matmul__, __rmatmul__ = method(np.matmul), reflected(np.matmul)
    __pow__, __rpow__ = power, reflected(np.power)
    __floordiv__, __rfloordiv__ = method(np.floor_divide), reflected(np.floor_divide)
    __mod__, __rmod__ = method(np.remainder), reflected(np.remainder)
    __and__, __rand__ = method(np.bitwise_and), reflected(np.bitwise_and)
    __or__, __ror__ = method(np.bitwise_or), reflected(np.bitwise_or)
    __invert__ = method(np.invert)
    __lt__ = method(np.less)
    __le__ = method(np.less_equal)
    __gt__ = method(np.greater)
    __ge__ = method(np.greater_equal)
    sum = method(np.sum)
    mean = method(np.mean)
    max = method(np.max)
    min = method(np.min)
    prod = method(np.prod)
    var = method(np.var)
    std = method(np.std)
    squeeze = method(np.squeeze)
    swapaxes = method(np.swapaxes)
    ravel = method(np.ravel)
    flatten = method(np.ravel)
    dot = method(np.dot)
    diagonal = method(np.diagonal)
    trace = method(np.trace)
    any = method(np.any)
    all = method(np.all)
    argsort = method(np.argsort)
    copy = method(np.copy)
    clip = method(np.clip)
    take = method(np.take)
    cumsum = method(np.cumsum)
    repeat = method(np.repeat)
    argmax = method(np.argmax)
    argmin = method(np.argmin)


def tracerOf(arguments: Iterable[Any], without: type | tuple[()] = ()) -> Tracer | None:
    """The first Tracer among arguments, or inside a list or tuple of them, that is not an instance of `without`."""
    for a in arguments:
        if isinstance(a, Tracer) and not isinstance(a, without):
            return a
        if type(a) in (list, tuple):
            inner = tracerOf(a, without)
            if inner is not None:
                return inner
    return None


def areRecorded(*xs: AnyArray) -> bool:
    """True if all are traced values."""
    return all(isinstance(x, Tracer) for x in xs)
