"""Slice: numpy's basic indexing, and DynamicSlice, whose axes are an input."""

from numbers import Integral
from typing import Any

import numpy as np

from puregraph.core.arguments import Axes
from puregraph.core.dim import Dim, dependsOnData, minimum
from puregraph.core.errors import need
from puregraph.core.shape import normalAxis, sizesOf, valueOf
from puregraph.graph.module import Module

OPEN_END = 2**31 - 1


class Slice(Module):
    """y = x[slc]: a slice keeps an axis, an integer drops it, None adds one, and ... skips some.

    `Slice()[:, 0, ::2]` is the same as `Slice((slice(None), 0, slice(None, None, 2)))`. The length of a symbolic axis
    becomes an expression: [1:] is N - 1, [:4] is min(N, 4); [-3:7] has none, and is an error.

    `Slice(axes=(1, 2))` reads the ends of the slices along these axes from further inputs, integers: starts, ends and,
    unless they are 1, steps.

    Shapes    x (any), starts, ends, steps (count of axes) -> y as in numpy
    Source    the NumPy reference, basic indexing; PuzzleLib's Slice
    Raises    ShapeError if x has fewer axes than `slc` names, or an integer is out of range
    """

    reads = ("starts", "ends", "steps")
    views = True
    __iter__ = None  # it has `__getitem__`, but is no sequence
    flopsPerElement = 0
    indices = shapeInputs = ("starts", "ends", "steps")
    followsValues = True

    def __init__(self, slc=(), name=None, axes: Axes | None = None):
        super().__init__(name)
        need(axes is None or slc == (), "slc, or axes whose ends are inputs", "both")
        self.axes: Any = axes if axes is None else tuple(axes)
        if axes is None:
            self.starts = self.ends = self.steps = None
        parts = slc if isinstance(slc, tuple) else (slc,)
        need(all(not isinstance(part, slice) or part.step != 0 for part in parts), "steps other than 0", parts)
        wrong = [part for part in parts if not isBasic(part)]
        need(not wrong, "slc of slices, whole numbers, None and ...", wrong, "an array of indices is no slice")
        need(sum(part is ... for part in parts) <= 1, "at most one ...", parts)
        self.slc = tuple(int(part) if isinstance(part, Integral) else part for part in parts)

    def __getitem__(self, slc):
        return Slice(slc, self.name)

    def written(self, without=()):
        """Return the call that makes this, with the index in brackets."""
        if not self.slc:
            return super().written(without)
        name = "" if self.name is None or "name" in without else f"name={self.name!r}"
        return f"{type(self).__name__}({name})[{', '.join(map(sliceText, self.slc))}]"

    @property
    def key(self):
        """The index with a ... in it, so that the result is an array even where no axis is left."""
        return self.slc if ... in self.slc else (*self.slc, ...)

    def keyFrom(self, rank, limits):
        """The index with slices along `axes`, from arrays of starts, ends and steps."""
        starts, ends, steps = [[1] * len(self.axes) if values is None else sizesOf(values) for values in limits]
        need(0 not in steps, "steps other than 0", steps)
        key = [slice(None)] * rank
        for axis, start, end, step in zip(self.axesOf(rank), starts, ends, steps, strict=True):
            key[axis] = slice(start, end, step)
        return (*key, ...)

    def axesOf(self, rank):
        """The axes that are sliced, counted from the first."""
        axes = [normalAxis(axis, rank, "axes") for axis in self.axes]
        need(len(set(axes)) == len(axes), "every axis once", self.axes)
        return axes

    def dataShapeFrom(self, x, starts=None, ends=None, steps=None):
        if self.axes is None:
            return sliced(x, self.key, sum(part is not None and part is not ... for part in self.slc))
        count, axes = len(self.axes), self.axesOf(len(x))
        for name, shape in zip(self.indices, (starts, ends, steps)):
            need(shape == (count,) or name == "steps" and shape is None, f"{name} of shape ({count},)", shape)
        values = [None if shape is None else valueOf(shape) for shape in (starts, ends, steps)]
        if values[0] is None or values[1] is None or steps is not None and values[2] is None:
            return tuple(None if axis in axes else size for axis, size in enumerate(x))
        return sliced(x, self.keyFrom(len(x), values), len(x))

    def updateData(self, x, starts=None, ends=None, steps=None):
        return x[self.index(x, starts, ends, steps)]

    def index(self, x, *ends):
        """The index of the slice in x."""
        return self.key if self.axes is None else self.keyFrom(x.ndim, ends)

    def updateGrad(self, grad, x, starts, ends, steps, y):
        gx = np.zeros_like(grad, shape=x.shape)
        gx[self.index(x, starts, ends, steps)] = grad
        return gx, None, None, None

    def sample(self, rng, x, *ends):
        limits = [np.full(shape, value) for shape, value in zip(ends, (0, 2, 1))]
        return [rng.standard_normal(x), *limits]

    @classmethod
    def examples(cls):
        yield cls(0), [(3, 2)]
        yield cls((slice(None), slice(1, None))), [(2, 4, 2)]
        yield cls()[..., -1], [(2, 3)]
        yield cls()[1, 2], [(2, 3)]
        yield cls()[::-2, None, ..., 1:3], [(5, 2, 4)]
        yield cls()[:1, -1:], [(2, 3)]
        yield cls(), [(2, 3)]
        yield cls(axes=(1,)), [(2, 3), (1,), (1,)]
        yield cls(axes=(-1, 0)), [(3, 2, 4), (2,), (2,), (2,)]


class DynamicSlice(Module):
    """y = x[..., start:end:step, ...] along the axes that an input names; the sizes of y depend on the data.

    A slice that goes backward from before the first element has that one, not none as numpy's.

    Shapes    x (any), starts, ends, axes, steps (count) integers -> y of the same rank
    Source    ONNX operator Slice
    Raises    ShapeError if they differ in number

    >>> DynamicSlice()(np.arange(5), np.array([3]), np.array([0]), np.array([0]), np.array([-2]))
    array([3, 1])
    """

    reads = ("starts", "ends", "axes", "steps")
    keepsDtype = True
    indices = ("starts", "ends", "axes", "steps")
    flopsPerElement = 0

    def dataShapeFrom(self, x, starts, ends, axes, steps=None):
        need(starts == ends == axes and steps in (None, starts), "as many starts, ends, axes, steps", [starts, ends])
        return (None,) * len(x)

    def key(self, x, *limits):
        """The index of the slice in x, from starts, ends, axes and steps."""
        index = [slice(None)] * x.ndim
        sizes: list[Any] = [None if values is None else sizesOf(values) for values in limits]
        starts, ends, axes, steps = sizes
        for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(axes)):
            need(step != 0, "steps other than 0", tuple(steps or ()))
            at = normalAxis(axis, x.ndim)
            index[at] = cutAt(start, end, step, x.shape[at])
        return tuple(index)

    def updateData(self, x, starts, ends, axes, steps=None):
        return x[self.key(x, starts, ends, axes, steps)].copy()

    def updateGrad(self, grad, x, starts, ends, axes, steps, y):
        gx = np.zeros_like(grad, shape=x.shape)
        gx[self.key(x, starts, ends, axes, steps)] = grad
        return gx, None, None, None, None

    def sample(self, rng, x, *limits):
        return [rng.standard_normal(x), *[np.full(shape, value) for shape, value in zip(limits, (0, 2, 0, 1))]]

    @classmethod
    def examples(cls):
        yield cls(), [(3, 2), (1,), (1,), (1,), (1,)]
        yield cls(), [(3, 2), (1,), (1,), (1,)]


def cutAt(start, end, step, size):
    """The slice of an axis; one that goes backward from before the first element has that one, not none as numpy's."""
    return slice(max(start, -size) if step < 0 and start < -1 else start, end, step)


def sliced(x, key, named):
    """The shape of x[key], in which `named` axes are indexed."""
    need(named <= len(x), f"at least {named} axes", x)
    shape, sizes = [], iter(x)
    for part in key:
        if part is ...:
            shape += [next(sizes) for _ in range(len(x) - named)]
        elif part is None:
            shape.append(1)
        elif isinstance(part, slice):
            shape.append(lengthOf(part, next(sizes), x))
        else:
            least = max(part + 1, -part)
            need(next(sizes) >= least, f"an axis of at least {least} for the index {part}", x)
    return tuple(shape)


def isBasic(part):
    """True if `part` is basic indexing in numpy."""
    if isinstance(part, slice):
        ends = (part.start, part.stop, part.step)
        return part.step != 0 and all(end is None or isWhole(end) for end in ends)
    return part is None or part is ... or isWhole(part)


def isWhole(part):
    """True if `part` is an integer."""
    return isinstance(part, Integral) and not isinstance(part, bool)


def lengthOf(part, size, x):
    """Return the length of an axis after slicing. Raises ShapeError if that of a symbolic axis has no expression."""
    if not any(isinstance(n, Dim) for n in (size, part.start, part.stop)):
        return len(range(size)[part])
    step = 1 if part.step is None else int(part.step)
    first, last = (0, size) if step > 0 else (size - 1, -1)
    start, stop = (
        default if isFar(end) else end + size if end < 0 else end if isinstance(end, Dim) else int(end)
        for end, default in ((part.start, first), (part.stop, last))
    )
    if step < 0:
        start, stop, step = stop + 1, start + 1, -step
    if stop - start <= 0:
        return 0
    if dependsOnData(size) and (start <= 0 or size - stop <= 0 or start - stop <= 0):
        start, stop = (clipped(end, size) for end in (start, stop))
    elif not (0 - start <= 0 and stop - size <= 0):
        ends = [None] if start - stop > 0 else [clipped(start, size), clipped(stop, size)]
        hint = f"the length of the slice depends on {size}"
        need(None not in ends, f"a number in place of {size} for [{asText(part)}]", x, hint)
        start, stop = ends
    return (stop - start + step - 1) // step


def clipped(end, size):
    """The end of a slice, clipped to the axis; None if unknown."""
    if end - size <= 0:
        return size - minimum(size, size - end)
    return minimum(end, size) if 0 - end <= 0 else None


def isFar(end):
    """True if a slice is open-ended: its end is left out, or beyond any axis, as in ONNX."""
    return end is None or not isinstance(end, Dim) and abs(end) >= OPEN_END


def asText(part):
    """A slice as it is written: 1::2."""
    ends = ["" if end is None else str(end) for end in (part.start, part.stop)]
    return ":".join(ends if part.step is None else [*ends, str(part.step)])


def sliceText(part):
    """A part of an index as it is written between brackets."""
    if not isinstance(part, slice):
        return "..." if part is ... else repr(part)
    ends = ["" if end is None else str(end) for end in (part.start, part.stop, part.step)]
    return ":".join(ends if ends[2] else ends[:2])
