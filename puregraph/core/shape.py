"""Shapes whose sizes may be symbols, ("N", 16, "H", "W"), and the small algebra that shape rules use."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from puregraph.core.base.cachedproperty import CachedProperty
from puregraph.core.device import toHost
from puregraph.core.dim import SIZE, DataDependent, Dim, Size, build, dependsOnData, read
from puregraph.core.errors import PuregraphError, need, show
from puregraph.core.tracer import Tracer

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray
    from puregraph.graph.module import Module

Shape: TypeAlias = "tuple[Size, ...]"
MAX_AXES = 64  # most axes of a numpy array
SYMBOL = re.compile(r"[^\W\d]\w*\b(?!\()")  # a name that is not a function call
MAX_KNOWN_ELEMENTS = 1 << 16  # most elements of a static value
MAX_STATIC_ELEMENTS = 1024  # most elements of a static value with symbols
MAX_SHAPE_CHARACTERS = 1 << 15  # most characters of its elements

SHAPE = 'a shape, a tuple of sizes or symbols such as (32, 256) or ("N", 256)'


class ValuedShape(tuple):
    """The shape of an input whose elements are known statically: `value` is an array of them.

    It has the input's own dtype if all are numbers, otherwise it is an object array of ints and Dims.
    """

    value: Any


def valued(shape: Shape, value: AnyArray | None) -> Shape:
    """A shape with the statically known elements of its array, or the plain shape for None."""
    if value is None:
        return shape
    shaped = ValuedShape(shape)
    shaped.value = value
    return shaped


def valueOf(shape: Shape | None) -> Any:
    """The elements that are known ahead of data of an input, from its shape; None if they are not."""
    return getattr(shape, "value", None)


def asValue(elements: Any) -> Any:
    """Known elements as arrays; numpy returns a bare int or Dim for an array without axes."""
    if isinstance(elements, list):
        return list(map(asValue, elements))
    if isinstance(elements, (int, Dim)):
        return np.asarray(elements, object if isinstance(elements, Dim) else None)
    return elements


def sizesOf(value: AnyArray) -> list[Size]:
    """The elements of an array as sizes: ints and Dims. A GPU is waited for."""
    flat = value.ravel()
    elements = flat.tolist() if isinstance(flat, Tracer) else toHost(flat).tolist()
    return [size if isinstance(size, Dim) else int(size) for size in elements]


def givenSizes(shape: Shape, name: str) -> list[Size] | None:
    """Return the elements of a one-dimensional input as the sizes of the output's axes; None if they are not known
    statically.

    Raises    ShapeError if the input has another rank, or if its length is symbolic
    """
    need(shape is not None, f"an input {name}, or the same as an argument", "neither")
    need(len(shape) == 1 and not isinstance(shape[0], Dim), f"{name} of shape (rank,)", shape)
    need(shape[0] <= MAX_AXES, f"{name} of at most {MAX_AXES} axes", shape[0])
    value = valueOf(shape)
    return None if value is None else sizesOf(value)


def givenNumber(shape: Shape, name: str, argument: str) -> Size | None:
    """Return the whole number in the input `name`, which replaces an argument; None if it is not known ahead of data.

    Raises    ShapeError if the input is missing, or holds several numbers
    """
    need(shape in ((), (1,)), f"{argument}, or an input {name} of one number", shape)
    value = valueOf(shape)
    return None if value is None else sizesOf(value)[0]


def withValues(module: Module, inshapes: Sequence, shapes: list[Shape]) -> list[Shape]:
    """A module's output shapes, with constant values where they are known statically.

    A rule may return its input's shape object; the input's known elements do not apply to the output.
    """
    shapes = [tuple(shape) if isinstance(shape, ValuedShape) else shape for shape in shapes]
    if not module.followsValues or any(None in shape for shape in shapes) or not areSmall(inshapes, shapes):
        return shapes
    try:
        known = module.valueFrom(*inshapes)
    except (PuregraphError, ValueError, IndexError, ArithmeticError, TypeError):
        return shapes  # numpy refuses symbols as sizes or indices; the rule itself reports other faults
    if known is None:
        return shapes
    values = known if isinstance(known, list) else [known]
    return [
        shape if v is None or v.shape != shape or isLong(v) else valued(shape, v) for shape, v in zip(shapes, values)
    ]


def areSmall(inshapes: Sequence, shapes: Sequence) -> bool:
    """True if results have few enough elements to be tracked without data."""
    hasSymbols = any(value.dtype.kind == "O" for value in map(valueOf, inshapes) if value is not None)
    limit = MAX_STATIC_ELEMENTS if hasSymbols else MAX_KNOWN_ELEMENTS
    return all(product(shape) <= limit for shape in shapes if not symbols(shape))


def isLong(value: Any) -> bool:
    """True if symbolic elements are too many, or too long, to compute with."""
    return value.dtype.kind == "O" and (
        value.size > MAX_STATIC_ELEMENTS or sum(len(str(n)) for n in value.flat) > MAX_SHAPE_CHARACTERS
    )


class FreshSymbols:
    """Symbols for data-dependent sizes, named after the node and the axis: `nonzero_1`."""

    def __init__(self, shapes: Iterable):
        self.shapes = list(shapes)
        self.isUsed = False

    @CachedProperty
    def taken(self) -> set[str]:
        """The names in use; few graphs have sizes that depend on the data."""
        return {name for shape in self.shapes if shape is not None for name in symbols(shape)}

    def named(self, path: str, module: Module, shapes: list[Shape]) -> list[Shape]:
        """A module's output shapes, with a symbol for each None."""
        if not any(None in shape for shape in shapes):
            return shapes
        self.isUsed = True
        names = module.outputNames if len(shapes) > 1 else [""]
        shared = self.new(f"{path}_count") if module.sharesSize else None
        return [
            tuple(
                size if size is not None else shared or self.new(f"{path}_{name}_{axis}")
                for axis, size in enumerate(shape)
            )
            for name, shape in zip(names, shapes)
        ]

    def new(self, text: str) -> Size:
        """Return a new symbol with a unique name."""
        name = re.sub(r"\W+|_+", "_", text)
        name = name if name[0].isalpha() else f"n{name}"
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return build({(DataDependent(name),): 1})


def asSize(size: Any) -> Size:
    """One size as an int or a Dim.

    Raises    ShapeError if it is neither an integer of at least 0 nor an expression of symbols
    """
    isText = isinstance(size, str)
    need(isText or isinstance(size, Integral) and not isinstance(size, bool), wanted=SIZE, given=repr(size))
    value = size if isinstance(size, Dim) else read(size) if isText else int(size)
    need(not value < 0, wanted=SIZE, given=size)
    return value


def asShape(shape: Any) -> Shape:
    """Convert a user's shape to a tuple of ints and Dims.

    Raises    ShapeError if it is not a tuple or list, or if a size is invalid
    """
    hint = f"write ({shape!r},) for one dimension" if isinstance(shape, (str, Integral)) else ""
    need(isinstance(shape, (tuple, list)), wanted=SHAPE, given=repr(shape), hint=hint)
    need(len(shape) <= MAX_AXES, f"a shape of at most {MAX_AXES} sizes", len(shape))
    return tuple(size if type(size) is int and size >= 0 else asSize(size) for size in shape)


def isShape(shape: Any) -> bool:
    """True for one shape, false for a list of shapes; () and [] are the shape of a number."""
    return isinstance(shape, (tuple, list)) and all(
        isinstance(size, (str, Integral)) and not isinstance(size, bool) for size in shape
    )


def fits(shape: Shape | list[Shape], wanted: Shape | list[Shape]) -> bool:
    """True if shapes match a rule's shapes, in which None is any size."""
    if isinstance(wanted, list):
        return isinstance(shape, list) and len(shape) == len(wanted) and all(map(fits, shape, wanted))
    if None not in wanted:
        return shape == wanted
    return isinstance(shape, tuple) and len(shape) == len(wanted) and all(m in (None, n) for n, m in zip(shape, wanted))


def isInstance(shape: Sequence, declared: Sequence) -> bool:
    """True if a shape matches a declared one, in which symbols stand for any size."""
    sizes: dict[Any, Any] = {}
    fits = len(shape) == len(declared)
    return fits and all(n == m or isinstance(m, Dim) and sizes.setdefault(m, n) == n for n, m in zip(shape, declared))


def showShape(shape: Sequence) -> str:
    """A shape as people write it, without quotes: (N, 16, H//2)."""
    return show(tuple(shape) if isShape(shape) else shape)


def product(dims: Iterable) -> Size:
    """The product of sizes: the number of elements of a shape."""
    return math.prod(dims)


def broadcast(*shapes: Sequence) -> Shape:
    """The common shape by numpy's rule; a symbol goes with 1 and with the same symbol.

    Sizes that all depend on the data may be equal when it comes: their common size is None, to be known then.

    Raises    ShapeError with all the shapes if two sizes differ and neither is 1
    """
    if len(shapes) == 1:
        return tuple(shapes[0])
    rank = max(map(len, shapes), default=0)
    result: list[Any] = []
    for column in zip(*((1,) * (rank - len(shape)) + tuple(shape) for shape in shapes)):
        sizes = [size for size in dict.fromkeys(column) if size != 1] or [1]
        hint = f"{sizes[0]} and {sizes[-1]} differ, and neither is 1"
        isLater = len(sizes) > 1 and all(isinstance(size, Dim) and dependsOnData(size) for size in sizes)
        need(isLater or len(sizes) == 1, wanted="shapes that broadcast", given=list(map(tuple, shapes)), hint=hint)
        result.append(None if isLater else sizes[0])
    return tuple(result)


def symbols(shape: Sequence) -> tuple[str, ...]:
    """The names of the symbols in a shape, in the order of their first appearance."""
    texts = [str(size) for size in shape if type(size) is not int]
    return tuple(dict.fromkeys(name for text in texts for name in SYMBOL.findall(text))) if texts else ()


def bind(shape: Sequence, sizes: Mapping[str, Any], complete: bool = False) -> Shape:
    """The shape with sizes for symbols: bind(("N", "H//2"), {"N": 32, "H": 9}) is (32, 4).

    Raises    ShapeError if a size becomes negative or, with `complete`, a symbol is left
    """
    values = {name: asSize(size) for name, size in sizes.items()}
    bound = tuple(read(size, values) if isinstance(size, str) else size for size in shape)
    origin = f"{showShape(shape)} with " + ", ".join(f"{name} = {size}" for name, size in values.items())
    need(not any(size < 0 for size in bound), wanted="sizes of at least 0", given=bound, hint=f"from {origin}")
    missing = ", ".join(symbols(bound))
    need(not (complete and missing), wanted=f"sizes for all symbols ({missing} missing)", given=tuple(shape))
    return bound


def window(size: Size, kernel: int, stride: int = 1, pad: int = 0, dilation: int = 1) -> Size:
    """The length that a convolution or pooling leaves; `pad` counts both sides together.

    Formula: (size + pad - dilation * (kernel - 1) - 1) // stride + 1
    Raises    ShapeError if not even one window fits
    """
    extent = dilation * (kernel - 1) + 1
    need(size + pad >= extent, wanted=f"at least {extent - pad}", given=size, hint="the window is larger")
    return (size + pad - extent) // stride + 1


def transposed(size: Size, kernel: int, stride: int = 1, pad: int = 0, dilation: int = 1, outpad: int = 0) -> Size:
    """The length that a transposed convolution makes; `pad` counts both sides together.

    Formula: (size - 1) * stride - pad + dilation * (kernel - 1) + outpad + 1
    Raises    ShapeError if nothing is left
    """
    length = (size - 1) * stride - pad + dilation * (kernel - 1) + outpad + 1
    need(length >= 1, wanted="a length of at least 1", given=length, hint=f"{size} is small for pad {pad}")
    return length


def normalAxis(axis: Any, rank: int, what: str = "axis") -> int:
    """Return the axis counted from the first: 2 for -1 of rank 3.

    Raises    ShapeError if it is not a whole number, or out of range
    """
    whole = isinstance(axis, Integral) and not isinstance(axis, bool)
    if not (whole and -rank <= axis < rank):
        need(False, f"{what} from {-rank} to {rank - 1}" if rank else f"a shape with dimensions for {what}", axis)
    return int(axis) % rank
