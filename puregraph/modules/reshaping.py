"""Modules that change the shape of one array: Reshape, Flatten, Squeeze, Unsqueeze, Transpose, Expand, Tile."""

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np

from puregraph.core.arguments import Axes, Flag, Whole, Wholes
from puregraph.core.dim import Dim, dependsOnData
from puregraph.core.errors import need
from puregraph.core.shape import MAX_AXES, asShape, broadcast, givenSizes, normalAxis, product, sizesOf, valueOf
from puregraph.graph.module import Module
from puregraph.ops.reduction.reference import unbroadcast


class Reshape(Module):
    """y = x with another shape, elements in row-major order.

    In `shape`, 0 copies the axis of x at that index, and one -1 is inferred: (0, -1) flattens a batch. `keepsZero`
    makes 0 a size instead. Without `shape`, `sizes` are a second input of such integers.

    Shapes    x (any), sizes (rank) -> y (shape)
    Source    ONNX operator Reshape; PuzzleLib's Reshape
    Raises    ShapeError if x has another number of elements, or no axis to copy, or the inferred size is no integer

    >>> Reshape((0, -1)).dataShapeFrom(("N", 3, 4)), Reshape((0, 5), keepsZero=True).dataShapeFrom((2, 0))
    (('N', 12), (0, 5))
    """

    reads = ()
    views = reinterprets = True
    flopsPerElement = 0
    indices = shapeInputs = ("sizes",)
    followsValues = True

    def __init__(self, shape=None, name=None, keepsZero: Flag = False):
        super().__init__(name)
        self.shape, self.keepsZero = None, keepsZero
        if shape is not None:
            sizes = shape if isinstance(shape, (tuple, list)) else (None,)
            need(areTargets(sizes), WANTED, shape)
            self.shape, self.sizes = tuple(map(int, sizes)), None

    def dataShapeFrom(self, x, sizes=None):
        wanted = givenSizes(sizes, "sizes") if self.shape is None else self.shape
        return (None,) * sizes[0] if wanted is None else resolved(x, wanted, self.keepsZero)

    def updateData(self, x, sizes=None):
        return x.reshape(resolved(x.shape, self.shape if sizes is None else sizesOf(sizes), self.keepsZero))

    def updateGrad(self, grad, x, sizes, y):
        return grad.reshape(x.shape), None

    def sample(self, rng, x, *sizes):
        return [rng.standard_normal(x), *[np.array([-1] + [1] * (n - 1)) for (n,) in sizes]]

    @classmethod
    def examples(cls):
        yield cls((0, -1)), [(2, 3, 4)]
        yield cls((0, 2, -1, 0)), [(1, 4, 7, 7)]
        yield cls((6, 4)), [(2, 3, 4)]
        yield cls((-1, 2)), [(2, 3)]
        yield cls(()), [(1, 1)]
        yield cls(), [(2, 3), (2,)]
        yield cls((0, 5), keepsZero=True), [(2, 0)]


WANTED = "shape as a tuple of sizes, with 0 to copy an axis, and -1 at most once"


def areTargets(sizes):
    """True if these sizes describe a target shape: integers of at least -1, and at most one -1."""
    areIntegers = all(isinstance(n, (Integral, Dim)) and not isinstance(n, bool) and not n < -1 for n in sizes)
    return areIntegers and list(sizes).count(-1) <= 1


def resolved(x, wanted, keepsZero=False):
    """Return `wanted` with -1 inferred, and without `keepsZero` each 0 copied from x."""
    need(areTargets(wanted), WANTED, tuple(wanted))
    copied = [axis for axis, size in enumerate(wanted) if size == 0 and not keepsZero]
    need(all(axis < len(x) for axis in copied), f"at least {max(copied, default=-1) + 1} axes", x, "0 copies an axis")
    elements = product(size for axis, size in enumerate(x) if axis not in copied)
    count = product(size for axis, size in enumerate(wanted) if size != -1 and axis not in copied)
    text = tuple(wanted)
    if -1 in wanted:
        need(count != 0, "no size of 0 beside -1 with keepsZero", text)
        need(elements % count == 0, f"a multiple of {count} elements", x, f"-1 in {text} must be a whole number")
    elif not any(x[axis] == 0 for axis in copied):
        isSample = len(x) > 1 and product(x[1:]) == count
        batch = f"{(0, *text)} keeps the first axis, that of the samples" if isSample else ""
        need(elements == count, f"as many elements as {text} has", x, batch or "-1 stands for a size to infer")
    return tuple(
        x[axis] if axis in copied else elements // count if size == -1 else size for axis, size in enumerate(wanted)
    )


class _Reshaped(Module):
    """Base class of modules that change the shape, and keep the elements in order."""

    reads = ()
    views = True
    flopsPerElement = 0
    followsValues = True

    def updateData(self, x):
        return x.reshape(self.dataShapeFrom(x.shape))

    def updateGrad(self, grad, x, y):
        return grad.reshape(x.shape)


class Flatten(_Reshaped):
    """y[n, i w + j] = x[n, i, j], w being the length of j: the axes from `start` to `end` as one, in row-major order.

    With `asMatrix` the axes before `start` become one too, of length 1 where there are none.

    Shapes    x (n, ...) -> y (n, product of the others); with asMatrix x (*a, *b) -> y (product of a, product of b)
    Source    ONNX operator Flatten; PuzzleLib's Flatten; torch.flatten
    Raises    ShapeError if x has no axis `start` or `end`, or `end` is before `start`

    >>> Flatten().dataShapeFrom(("N", 3, 4)), Flatten(0, end=1).dataShapeFrom((2, 3, 4))
    (('N', 12), (6, 4))
    """

    def __init__(self, start: Whole = 1, name=None, end: Whole = -1, asMatrix: Flag = False):
        super().__init__(name)
        need(not asMatrix or end == -1, "end -1 beside asMatrix", end)
        self.start, self.end, self.asMatrix = start, end, asMatrix

    def dataShapeFrom(self, x):
        if self.asMatrix:
            need(-len(x) <= self.start <= len(x), f"start from {-len(x)} to {len(x)}", self.start)
            start = self.start + len(x) * (self.start < 0)
            return product(x[:start]), product(x[start:])
        start, end = normalAxis(self.start, len(x), "start"), normalAxis(self.end, len(x), "end")
        need(start <= end, f"an end from {start} on", end)
        return (*x[:start], product(x[start : end + 1]), *x[end + 1 :])

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 4)]
        yield cls(), [(2, 3)]
        yield cls(start=0), [(2, 3)]
        yield cls(start=-2), [(2, 3, 4, 5)]
        yield cls(start=0, end=-2), [(2, 3, 4)]
        yield cls(start=2, asMatrix=True), [(2, 3, 2)]


class _UnitAxes(_Reshaped):
    """Base class of modules that drop or add axes of length one; the axes may be an input."""

    target: Callable[..., Any]
    indices = shapeInputs = ("along",)
    sign = 0  # 1 if axes are added, -1 if they are dropped

    def __init__(self, axes: Wholes | None = None, name=None):
        super().__init__(name)
        self.axes = None if axes is None else tuple(axes)
        if axes is not None:
            self.along = None

    def dataShapeFrom(self, x, along=None):
        if along is None:
            return self.target(x, self.axes)
        isCount = len(along) == 1 and not isinstance(along[0], Dim)
        need(isCount and (self.sign > 0 or along[0] <= len(x)), "axes of shape (count,)", along)
        value = valueOf(along)
        isKnown = value is not None and value.dtype.kind != "O"
        return self.target(x, sizesOf(value)) if isKnown else (None,) * (len(x) + self.sign * along[0])

    def updateData(self, x, along=None):
        return x.reshape(self.target(x.shape, self.axes if along is None else sizesOf(along)))

    def updateGrad(self, grad, x, along, y):
        return grad.reshape(x.shape), None

    def sample(self, rng, x, *along):
        return [rng.standard_normal(x), *[np.arange(*shape) for shape in along]]


class Squeeze(_UnitAxes):
    """y = x without the axes of length one that `axes` name; the elements keep their order.

    Without `axes`, `along` is an optional second input of them; without both, all axes of length one are dropped.

    Shapes    x (any), along (count) -> y without the axes
    Source    ONNX operator Squeeze; torch.squeeze
    Raises    ShapeError if one of them has another length

    >>> Squeeze((1,)).dataShapeFrom(("N", 1, 4)), Squeeze().dataShapeFrom((1, 3, 1))
    (('N', 4), (3,))
    """

    sign = -1

    def target(self, x, axes):
        """The shape of y."""
        if axes is None:
            isKnown = not any(isinstance(n, Dim) for n in x)
            need(isKnown, "numbers for all sizes, or axes", x, "whether a size is 1 depends on the symbol")
            axes = [i for i, n in enumerate(x) if n == 1]
        chosen = [normalAxis(axis, len(x)) for axis in axes]
        need(len(set(chosen)) == len(chosen), "every axis at most once", tuple(axes))
        lengths = [x[axis] for axis in chosen]  # those that depend on data are checked at run time
        areOne = all(n == 1 or isinstance(n, Dim) and dependsOnData(n) for n in lengths)
        need(areOne, f"length one along the axes {tuple(axes)}", x)
        return tuple(n for i, n in enumerate(x) if i not in chosen)

    @classmethod
    def examples(cls):
        yield cls((0, -1)), [(1, 2, 1)]
        yield cls(()), [(2,)]
        yield cls(), [(1, 2, 1)]
        yield cls(), [(1, 1, 3), (1,)]


class Unsqueeze(_UnitAxes):
    """y = x with axes of length one inserted as `axes` of y. Without `axes`, `along` is a second input of them.

    Shapes    x (any), along (count) -> y with count more axes
    Source    ONNX operator Unsqueeze; torch.unsqueeze; the NumPy reference, numpy.expand_dims
    Raises    ShapeError if an axis is named twice, or y has no such axis

    >>> Unsqueeze((0, -1)).dataShapeFrom(("N", 4))
    (1, 'N', 4, 1)
    """

    sign = 1

    def target(self, x, axes):
        """The shape of y."""
        need(axes is not None, "axes, or an input of them", axes)
        rank = len(x) + len(axes)
        need(rank <= MAX_AXES, f"at most {MAX_AXES} axes", rank)
        chosen = [normalAxis(axis, rank) for axis in axes]
        need(len(set(chosen)) == len(chosen), "every axis at most once", tuple(axes))
        sizes = iter(x)
        return tuple(1 if i in chosen else next(sizes) for i in range(rank))

    @classmethod
    def examples(cls):
        yield cls((0, -1)), [(2, 3)]
        yield cls((0,)), [()]
        yield cls(), [(2, 3), (1,)]


class Transpose(Module):
    """y[i_axes[0], i_axes[1], ...] = x[i_0, i_1, ...]: axis k of y is axis `axes[k]` of x; without `axes`, reversed.

    Shapes    x (d_0, d_1, ...) -> y (d_axes[0], d_axes[1], ...)
    Source    ONNX operator Transpose; PuzzleLib's Transpose
    Raises    ShapeError if `axes` does not name each axis of x once
    """

    reads = ()
    views = True
    flopsPerElement = 0
    followsValues = True

    def __init__(self, axes: Axes | None = None, name=None):
        super().__init__(name)
        need(len(axes or ()) <= MAX_AXES, f"at most {MAX_AXES} axes", len(axes or ()))
        self.axes: Any = None if axes is None else tuple(normalAxis(axis, len(axes), "axes") for axis in axes)
        need(len(set(self.axes or ())) == len(axes or ()), "every axis once", tuple(axes or ()))

    def order(self, rank):
        """Return the axis of x for each axis of y."""
        return tuple(reversed(range(rank))) if self.axes is None else self.axes

    def dataShapeFrom(self, x):
        axes = self.order(len(x))
        need(len(axes) == len(x), f"{len(axes)} axes", x, f"the axes are {axes}")
        return tuple(x[axis] for axis in axes)

    def updateData(self, x):
        return x.transpose(self.order(x.ndim))

    def updateGrad(self, grad, x, y):
        axes = self.order(x.ndim)
        return grad.transpose(tuple(sorted(range(len(axes)), key=axes.__getitem__)))

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 4)]
        yield cls((0, 2, 3, 1)), [(2, 3, 4, 5)]
        yield cls((-1, 0, 1)), [(2, 3, 4)]


class SwapAxes(Transpose):
    """y = x with two axes exchanged

    Shapes    x (..., n, ..., m, ...) -> y (..., m, ..., n, ...)
    Source    the NumPy reference, numpy.swapaxes; PuzzleLib's SwapAxes
    Raises    ShapeError if x has no such axis

    >>> SwapAxes(1, -1).dataShapeFrom(("N", 3, 4, 5))
    ('N', 5, 4, 3)
    """

    def __init__(self, axis1: Whole, axis2: Whole, name=None):
        super().__init__(name=name)
        self.pair = (axis1, axis2)

    def order(self, rank):
        first, second = (normalAxis(axis, rank) for axis in self.pair)
        return tuple(second if i == first else first if i == second else i for i in range(rank))

    @classmethod
    def examples(cls):
        yield cls(0, -1), [(2, 3, 4)]
        yield cls(1, 1), [(2, 3)]


class MoveAxis(SwapAxes):
    """y = x with the axis `src` as the axis `dst`, the others in order

    Shapes    x (..., n, ...) -> y (..., n, ...)
    Source    the NumPy reference, numpy.moveaxis; PuzzleLib's MoveAxis
    Raises    ShapeError if x has no such axis

    >>> MoveAxis(1, -1).dataShapeFrom(("N", 3, 4, 5))
    ('N', 4, 5, 3)
    """

    def __init__(self, src: Whole, dst: Whole, name=None):
        super().__init__(src, dst, name)

    def order(self, rank):
        source, target = (normalAxis(axis, rank) for axis in self.pair)
        others = [i for i in range(rank) if i != source]
        return (*others[:target], source, *others[target:])


class Expand(Module):
    """y = x, repeated to the shape that x and `shape` broadcast to; a size of 1 keeps what x has.

    Without `shape`, `sizes` are a second input, integers.

    Shapes    x (any), sizes (rank) -> y (the broadcast of both)
    Source    ONNX operator Expand
    Raises    ShapeError if they do not broadcast
    """

    reads = ()
    keepsDtype = True
    indices = shapeInputs = ("sizes",)
    followsValues = True
    flopsPerElement = 0

    def __init__(self, shape=None, name=None):
        super().__init__(name)
        self.shape = None
        if shape is not None:
            self.shape, self.sizes = asShape(shape), None

    def dataShapeFrom(self, x, sizes=None):
        wanted = givenSizes(sizes, "sizes") if self.shape is None else self.shape
        return (None,) * max(len(x), sizes[0]) if wanted is None else broadcast(x, wanted)

    def updateData(self, x, sizes=None):
        wanted: Any = self.shape if sizes is None else sizesOf(sizes)
        return np.broadcast_to(x, broadcast(x.shape, wanted)).copy()

    def updateGrad(self, grad, x, sizes, y):
        return unbroadcast(grad, x.shape), None

    def sample(self, rng, x, *sizes):
        return [rng.standard_normal(x), *[np.ones(shape, int) for shape in sizes]]

    @classmethod
    def examples(cls):
        yield cls((2, 3)), [(3,)]
        yield cls((4, 1, 3)), [(2, 1)]
        yield cls((1,)), [(2, 3)]
        yield cls(), [(2, 3), (3,)]


class Tile(Module):
    """y[i, j, ...] = x[i mod n, j mod m, ...]: x, `repeats` times along each axis.

    Without `repeats`, they are a second input, integers.

    Shapes    x (n, m, ...), repeats (rank of x) -> y (r_0 n, r_1 m, ...)
    Source    ONNX operator Tile; the NumPy reference, numpy.tile
    Raises    ShapeError if there are not as many repeats as axes
    """

    reads = ()
    keepsDtype = True
    indices = shapeInputs = ("repeats",)
    followsValues = True
    flopsPerElement = 0

    def __init__(self, repeats=None, name=None):
        super().__init__(name)
        self.times = None
        if repeats is not None:
            self.times, self.repeats = asShape(repeats), None

    def dataShapeFrom(self, x, repeats=None):
        wanted = givenSizes(repeats, "repeats") if self.times is None else self.times
        count = repeats[0] if wanted is None else len(wanted)
        need(count == len(x), f"as many repeats as x has axes, {len(x)}", count)
        return (None,) * len(x) if wanted is None else tuple(n * times for n, times in zip(x, wanted))

    def updateData(self, x, repeats=None):
        wanted: Any = self.times if repeats is None else sizesOf(repeats)
        shape = [size for n, times in zip(x.shape, wanted, strict=True) for size in (times, n)]
        tiled = np.broadcast_to(x.reshape([size for n in x.shape for size in (1, n)]), shape).copy()
        return tiled.reshape([n * times for n, times in zip(x.shape, wanted)])

    def updateGrad(self, grad, x, repeats, y):
        shape = [size for n, m in zip(x.shape, grad.shape) for size in (m // n if n else 1, n)]
        return grad.reshape(shape).sum(axis=tuple(range(0, 2 * x.ndim, 2))), None

    def sample(self, rng, x, *repeats):
        return [rng.standard_normal(x), *[np.full(shape, 2) for shape in repeats]]

    @classmethod
    def examples(cls):
        yield cls((2, 3)), [(3, 2)]
        yield cls((1, 1, 2)), [(2, 1, 3)]
        yield cls(()), [()]
        yield cls(), [(2, 3), (2,)]
