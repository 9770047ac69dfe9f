"""Reshaping: another shape, in which 0 may be a size; a matrix of the first axes by the others; axes of length one."""

import numpy as np

from puregraph.core.arguments import Flag, Items, Size, Wholes, optional
from puregraph.core.dim import Dim, dependsOnData
from puregraph.core.errors import need
from puregraph.core.shape import AXES, givenSizes, normalAxis, product, sizesOf
from puregraph.graph.module import Module
from puregraph.modules.reshaping import _Reshaped


class ReshapeTo(Module):
    """y = x with another shape, elements in row-major order; one size may be -1 and is inferred.

    With `keepsZero`, 0 is a size; otherwise it copies the size of x. Without `shape`, `sizes` are a second input.

    Shapes    x (any), sizes (rank) integers -> y (shape)
    Source    ONNX operator Reshape with allowzero
    Raises    ShapeError if x has another number of elements, or the inferred size is no integer
    """

    reads = ()
    views = True
    flopsPerElement = 0
    indices = shapeInputs = ("sizes",)
    followsValues = True

    def __init__(self, keepsZero: Flag = True, shape: optional(Items) = None, name=None):
        super().__init__(name)
        self.keepsZero = keepsZero
        self.shape = None if shape is None else tuple(shape)
        if shape is not None:
            self.sizes = None

    def target(self, x, wanted):
        """The shape that is meant for x."""
        need(list(wanted).count(-1) <= 1 and not any(n < -1 for n in wanted), "sizes, and -1 at most once", wanted)
        need(self.keepsZero or all(n != 0 or i < len(x) for i, n in enumerate(wanted)), "an axis to copy for each 0", x)
        sizes = [x[i] if n == 0 and not self.keepsZero else n for i, n in enumerate(wanted)]
        known = product(n for n in sizes if n != -1)
        count = product(x)
        if -1 in sizes:
            need(known != 0 and count % known == 0, f"a multiple of {known} elements", x)
            return tuple(count // known if n == -1 else n for n in sizes)
        need(known == count, f"as many elements as {tuple(sizes)} has", x)
        return tuple(sizes)

    def dataShapeFrom(self, x, sizes=None):
        wanted = givenSizes(sizes, "sizes") if self.shape is None else self.shape
        return (None,) * sizes[0] if wanted is None else self.target(x, wanted)

    def updateData(self, x, sizes=None):
        return x.reshape(self.target(x.shape, self.shape if sizes is None else sizesOf(sizes)))

    def updateGrad(self, grad, x, sizes, y):
        return grad.reshape(x.shape), None

    def sample(self, rng, x, *sizes):
        return [rng.standard_normal(x), *[np.array([-1] + [1] * (n - 1)) for (n,) in sizes]]

    @classmethod
    def examples(cls):
        yield cls(True, (3, 2)), [(2, 3)]
        yield cls(True, (0, 5)), [(2, 0)]
        yield cls(False, (0, -1)), [(2, 3, 2)]
        yield cls(), [(2, 3), (2,)]


class MatrixFrom(_Reshaped):
    """y[i, j] = x, the first `axis` axes as rows, the others as columns, in row-major order.

    Shapes    x (*a, *b), a being `axis` axes -> y (product of a, product of b)
    Source    ONNX operator Flatten
    Raises    ShapeError if x has fewer axes
    """

    def __init__(self, axis: Size = 1, name=None):
        super().__init__(name)
        self.axis = axis

    def dataShapeFrom(self, x):
        need(len(x) >= self.axis, f"at least {self.axis} axes", x)
        return product(x[: self.axis]), product(x[self.axis :])

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 2)]
        yield cls(0), [(2, 3)]
        yield cls(2), [(2, 3)]


class WithoutAxes(_Reshaped):
    """y = x without axes of length one; the elements keep their order.

    Shapes    x (any) -> y without the axes
    Source    ONNX operator Squeeze
    Raises    ShapeError if one has another length
    """

    def __init__(self, axes: Wholes, name=None):
        super().__init__(name)
        self.axes = tuple(axes)

    def dataShapeFrom(self, x):
        axes = [normalAxis(axis, len(x)) for axis in self.axes]
        need(len(set(axes)) == len(axes), "every axis at most once", self.axes)
        lengths = [x[axis] for axis in axes]  # one that depends on the data is looked at when it comes
        areOne = all(n == 1 or isinstance(n, Dim) and dependsOnData(n) for n in lengths)
        need(areOne, f"length one along the axes {self.axes}", x)
        return tuple(n for i, n in enumerate(x) if i not in axes)

    @classmethod
    def examples(cls):
        yield cls((0, -1)), [(1, 2, 1)]
        yield cls(()), [(2,)]


class NewAxes(_Reshaped):
    """y = x with axes of length one, `axes` of y.

    Shapes    x (any) -> y with as many axes more
    Source    ONNX operator Unsqueeze
    Raises    ShapeError if an axis is named twice, or is none of y's
    """

    def __init__(self, axes: Wholes, name=None):
        super().__init__(name)
        self.axes = tuple(axes)

    def dataShapeFrom(self, x):
        rank = len(x) + len(self.axes)
        need(rank <= AXES, f"at most {AXES} axes", rank)
        axes = [normalAxis(axis, rank) for axis in self.axes]
        need(len(set(axes)) == len(axes), "every axis at most once", self.axes)
        sizes = iter(x)
        return tuple(1 if i in axes else next(sizes) for i in range(rank))

    @classmethod
    def examples(cls):
        yield cls((0, -1)), [(2, 3)]
        yield cls((0,)), [()]
