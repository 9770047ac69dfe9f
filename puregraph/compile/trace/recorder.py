"""Recorder: run a rule once on tracers, which have no data, and record every call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from puregraph.core.base.align import readOnly
from puregraph.core.tracer import Tracer, method, tracerOf
from puregraph.ops.ir.strides import contiguous, isDense
from puregraph.ops.ir.strides import like as likeStrides
from puregraph.ops.ir.value import Call, CallOrigin, Kind, Value, copy, put
from puregraph.ops.kernel import CompositeKernel
from puregraph.ops.operation import declared

if TYPE_CHECKING:
    from typing import NoReturn

    from puregraph.core.protocols import AnyArray
    from puregraph.core.rules import ArrayFunction
    from puregraph.core.shape import Shape


class UnreadableError(TypeError):
    """A rule cannot be traced, for example because it reads an element; it becomes an opaque call."""


class RecordedMemory:
    """The write count that tracers of one memory share."""

    __slots__ = ("writes",)

    def __init__(self) -> None:
        self.writes = 0


class Recorder:
    """Records calls in order, with their Values.

    `readerOf` returns the abstract evaluation of a function: `reader(recorder, function, arguments, options)` returns
    the Values of its results, see `abstract`.
    """

    def __init__(self, readerOf: Callable[[ArrayFunction], Callable[..., Any] | None]):
        self.calls: list[Call] = []
        self.count = 0
        self.origin = CallOrigin("")
        self.readerOf = readerOf
        self.constants: dict[Any, Value] = {}
        self.attributes: dict[int, Value] = {}
        # `layout` chooses the layout of kernel results, see `channelslast.layoutFor`
        self.layout: Callable[..., tuple[int, ...] | None] | None = None
        # `decompositionOf` writes functions as simpler ones, see `decompose`
        self.decompositionOf: Callable[[ArrayFunction], Callable[..., Any] | None] | None = None
        self.keepsComposite: Callable[[Any], bool] | None = None  # whether a composite kernel is one call
        self.loops: dict[Any, Any] = {}  # the bodies of loops, see `loopbody`
        self.held: list[Any] = []  # keeps arrays alive that are identified by id

    # Values -----------------------------------------------------------------------------------------------------------

    def value(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype,
        strides: tuple[int, ...] | None = None,
        role: str = "made",
        name: str = "",
        source: Any = None,
    ) -> Value:
        """A new Value; row-major unless strides are given."""
        self.count += 1
        strides = contiguous(shape, dtype.itemsize) if strides is None else strides
        return Value(self.count, shape, dtype, strides, role, name, source)

    def constant(self, array: ArrayLike) -> Value:
        """The Value of an existing array; equal small arrays share one Value."""
        array = np.asarray(array)
        small = array.nbytes <= 64
        key = (array.shape, array.dtype.str, array.tobytes()) if small else id(array)
        value = self.constants.get(key)
        if value is None:
            self.held.append(array)
            value = self.value(array.shape, array.dtype, array.strides, "constant", source=array)
            self.constants[key] = value
        return value

    def attribute(self, array: Any, name: str) -> Value:
        """The Value of an array that a module holds, one for each array object; every run reads its elements."""
        value = self.attributes.get(id(array))
        if value is None:
            value = self.value(array.shape, array.dtype, array.strides, "attribute", name, array)
            self.attributes[id(array)] = value
        return value

    def thing(self) -> Value:
        """The Value of an object that need not be an array."""
        self.count += 1
        return Value(self.count, (), np.dtype(object), (), "object")

    # Calls ------------------------------------------------------------------------------------------------------------

    def add(
        self,
        function: ArrayFunction,
        arguments: tuple,
        options: dict[str, Any],
        outs: list[Any],
        kind: Kind | str,
        several: bool = False,
    ) -> Call:
        """Add a call that computes new Values."""
        call = Call(function, arguments, options, outs, kind, self.origin, several)
        for y in outs:
            if y is not None:
                y.call = call
        self.calls.append(call)
        return call

    def made(
        self,
        function: ArrayFunction,
        arguments: tuple,
        options: dict,
        kind: str,
        shape: tuple[int, ...],
        dtype: np.dtype,
        strides: tuple[int, ...] | None = None,
    ) -> Value:
        """Add a call with one result in new memory."""
        y = self.value(shape, dtype, strides)
        self.add(function, arguments, options, [y], kind)
        return y

    def view(
        self, function: ArrayFunction, arguments: tuple, options: dict[str, Shape], of: Value, like: Any, offset: int
    ) -> Value:
        """Add a call whose result is a view of a Value; `like` has its shape and strides."""
        y = self.value(like.shape, of.dtype, like.strides)
        y.base, y.offset = of.root, of.offset + offset
        self.add(function, arguments, options, [y], "view")
        return y

    # Tracers ----------------------------------------------------------------------------------------------------------

    def handle(self, value: Value | None) -> Any:
        """The tracer of a Value."""
        if value is None:
            return None
        if value.role == "object":
            raise UnreadableError("a value is not an array")
        if value.role == "constant" and value.dtype.kind in "iub":
            return readOnly(value.source)  # rules may read sizes from it
        return RecordedArray(self, value, RecordedMemory())

    def call(
        self, function: ArrayFunction, arguments: tuple, options: dict[str, Any]
    ) -> RecordedArray | tuple[RecordedArray, ...]:
        """Record a call on tracers; its results are tracers."""
        outer = tracerOf((*arguments, *options.values()) if options else arguments, RecordedArray)
        if outer is not None:  # its values are recorded, but it has more to do, such as noting a call for a gradient
            return outer.handle(function, arguments, options)
        out = options.pop("out", None) if options else None
        rule = self.decompositionOf(function) if out is None and self.decompositionOf is not None else None
        result = NotImplemented if rule is None else rule(*arguments, **options)
        if result is not NotImplemented:
            return result
        if self.keepsComposite is not None and type(function) is CompositeKernel and not self.keepsComposite(function):
            return function.reference(*arguments, **options)
        operands = [plain(self, a) if isinstance(a, TRACED) else a for a in arguments]
        if options:
            options = {name: plain(self, a) if isinstance(a, TRACED) else a for name, a in options.items()}
        if declared(function, "updates"):
            return self.updated(function, operands, options or {}, arguments[0])
        reader = self.readerOf(function)
        if reader is None:
            raise UnreadableError(f"{function} is not known to depend on shapes alone")
        if type(out) is tuple and len(out) == 1:
            (out,) = out
        if out is not None:
            return self.into(reader, function, operands, options, out)
        result = reader(self, function, operands, options)
        if type(result) is Value:
            return self.wrapped(result, arguments)
        if type(result) is list:
            return tuple([self.wrapped(y, arguments) for y in result])
        return RecordedArray(self, result.value, RecordedMemory()) if type(result) is Fresh else result.value

    def updated(self, function: ArrayFunction, operands: list, options: dict[str, Any], target: Any) -> Any:
        """Record a call that writes to a State in place: the result becomes the value of that tracer."""
        old = operands[0]
        if type(old) is not Value or old.root.role != "state" or old.nbytes != old.root.nbytes:
            raise UnreadableError(f"{function} writes to an array that is not a State")
        if old.call is not None and old.call.kind.isUpdate:
            raise UnreadableError("a State is written in place twice")
        y = self.value(old.shape, old.dtype, old.strides)
        y.base, y.offset = old.root, old.offset
        self.add(function, tuple(operands), options, [y], "update")
        target.become(y)
        return target

    def wrapped(self, value: Value, arguments: tuple) -> RecordedArray:
        """A tracer of a result; a view shares the write count of its memory."""
        root = value.root
        for a in arguments:
            if type(a) is RecordedArray and a.value.root is root:
                return RecordedArray(self, value, a.memory)
        return RecordedArray(self, value, RecordedMemory())

    def into(
        self,
        reader: Callable[..., Any],
        function: ArrayFunction,
        arguments: list,
        options: dict[str, Any],
        out: Any,
    ) -> Any:
        """A call with `out=`: its result becomes the value of that tracer."""
        targets = out if type(out) is tuple else (out,)
        if not all(type(t) is RecordedArray for t in targets):
            raise UnreadableError("a result is written to an existing array")
        if len(targets) > 1:
            raise UnreadableError("several results are written in place")
        (target,) = targets
        old = target.current
        result = reader(self, function, arguments, options)
        if type(result) is Fresh:
            result = result.value
        if type(result) is not Value:
            raise UnreadableError(f"the result of {function} is written in place")
        target.become(self.fitted(result, old))
        return target

    def fitted(self, new: Value, old: Value) -> Value:
        """A Value with the shape, dtype and layout of `old`; if possible the last call computes it directly."""
        strides = denseLike(old)
        call = new.call
        if call is not None and self.calls and call is self.calls[-1] and not new.isView:
            if new.shape == old.shape and new.dtype == old.dtype and new.strides == strides:
                return new
            computes = call.kind.isReduction or call.kind.isContraction
            if call.kind.isElementwise or computes and new.shape == old.shape:
                y = self.value(old.shape, old.dtype, strides)
                call.outs, y.call = [y], call
                return y
        return self.made(copy, (new,), {}, "copy", old.shape, old.dtype, strides)


class Plain:
    """A result that is not an array: a shape, a dtype."""

    __slots__ = ("value",)

    def __init__(self, value: Value):
        self.value = value


class Fresh(Plain):
    """A copy that is not recorded: Values never change, so the original is used."""

    __slots__ = ()


def inPlace(ufunc: np.ufunc) -> Callable[[Any, Any], Any]:
    """An operator such as `+=`: its result becomes the value of the left side."""
    return lambda x, y: ufunc(x, y, out=x)


class RecordedArray(Tracer):
    """A tracer: stands for an array while a rule is traced.

    `x += y`, `np.add(x, y, out=x)` and `x[key] = y` record a call whose result becomes this tracer's value. Afterwards,
    tracers of the same memory (a view, or its base) raise when used. Reading elements also raises: `if x > 0`,
    `float(x)`, `np.asarray(x)`.
    """

    __slots__ = ("known", "memory", "recorder", "value")
    takesComposites = True

    def __init__(self, recorder: Recorder, value: Value, memory: RecordedMemory):
        self.recorder, self.value, self.memory, self.known = recorder, value, memory, memory.writes

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.value.shape

    def keepsComposite(self, function: Any) -> bool:
        return self.recorder.keepsComposite is not None and self.recorder.keepsComposite(function)

    @property
    def dtype(self) -> np.dtype:
        return self.value.dtype

    @property
    def current(self) -> Value:
        """The value; raises if its memory was written through another tracer."""
        if self.known != self.memory.writes:
            raise UnreadableError("a view is used after its memory was written to through another one")
        return self.value

    def become(self, value: Value) -> None:
        """Set a new value in the same memory."""
        _ = self.current
        self.memory.writes += 1
        self.value, self.known = value, self.memory.writes

    def handle(self, function: ArrayFunction, arguments: tuple, options: dict[str, Any]) -> Any:
        return self.recorder.call(function, arguments, options)

    def __array_ufunc__(self, ufunc: np.ufunc, how: str, *inputs: Any, **options: object) -> Any:
        return self.recorder.call(ufunc if how == "__call__" else getattr(ufunc, how), inputs, options)

    def __array_function__(
        self, function: ArrayFunction, types: Iterable[type], arguments: tuple, options: dict[str, Any]
    ) -> Any:
        return self.recorder.call(function, arguments, dict(options))

    def __setitem__(self, key: object, value: AnyArray) -> None:
        recorder = self.recorder
        old = self.current
        operands = [plain(recorder, a) for a in (key, value)]
        if isMask(operands[0]):
            raise UnreadableError("items are assigned by a boolean mask")
        made = old.call
        before = old
        if recorder.decompositionOf is not None and made is not None and made.kind.isFill and old.base is None:
            before = made.arguments[0]
        self.become(recorder.made(put, (before, *operands), {}, "put", old.shape, old.dtype, denseLike(old)))

    def __iter__(self) -> Iterator[Any]:
        for i in range(len(self)):
            yield self[i]

    def copy(self, order: str = "C") -> Any:
        return self.recorder.call(np.copy, (self,), {"order": order})

    def flatten(self, order: str = "C") -> RecordedArray | tuple[RecordedArray, ...]:
        return self.recorder.call(np.copy, (self.reshape(-1),), {"order": order})

    __iadd__ = inPlace(np.add)
    __isub__ = inPlace(np.subtract)
    __imul__ = inPlace(np.multiply)
    __itruediv__ = inPlace(np.true_divide)
    __ifloordiv__ = inPlace(np.floor_divide)
    __imod__ = inPlace(np.remainder)
    __ipow__ = inPlace(np.power)
    __iand__ = inPlace(np.bitwise_and)
    __ior__ = inPlace(np.bitwise_or)
    __eq__ = method(np.equal)
    __ne__ = method(np.not_equal)
    __hash__ = object.__hash__
    round = method(np.round)

    def refuse(self, *arguments: object, **options: object) -> NoReturn:
        raise UnreadableError("the rule reads the elements of a value")

    __array__ = __bool__ = __float__ = __int__ = __index__ = __complex__ = __contains__ = item = tolist = refuse

    def __repr__(self) -> str:
        return f"<Recorded {self.value!r}>"


def denseLike(value: Value) -> tuple[int, ...]:
    """The layout of a Value's replacement: the same axis order, without gaps."""
    if isDense(value.shape, value.strides, value.dtype.itemsize):
        return value.strides
    return likeStrides(value.shape, value.strides, value.dtype.itemsize)


def isMask(key: object) -> bool:
    """True if an index has a boolean mask: the number of selected elements then depends on data."""
    parts = key if type(key) is tuple else (key,)
    return any(isinstance(k, bool) or getattr(k, "dtype", None) == np.bool_ for k in parts)


TRACED = (RecordedArray, np.ndarray, tuple, list, slice)


def plain(recorder: Recorder, a: Any) -> Any:
    """An argument with Values in place of tracers and arrays."""
    if type(a) is RecordedArray:
        if a.recorder is not recorder:
            raise UnreadableError("a value is used that belongs to another recording")
        return a.current
    if isinstance(a, np.ndarray):
        return recorder.constant(a)
    kind = type(a)
    if kind is tuple or kind is list:
        return kind([plain(recorder, item) if isinstance(item, TRACED) else item for item in a])
    if kind is slice:
        return slice(*[plain(recorder, item) for item in (a.start, a.stop, a.step)])
    if isinstance(a, Tracer):
        raise UnreadableError(f"a {kind.__name__} meets a value that is being recorded")
    return a
