"""Reshape: the same elements in the same order, in another shape."""

from numbers import Integral

import numpy as np

from puregraph.core.dim import Dim
from puregraph.core.shape import givenSizes, product, sizesOf
from puregraph.errors import need
from puregraph.module import Module


class Reshape(Module):
    """y = x with another shape, elements in row-major order.

    In `shape`, 0 copies the axis of x at that index, and -1, once, is what is left: (0, -1) flattens a batch. Without
    it, `sizes` are a second input, integers that say the same.

    Shapes    x (any), sizes (rank) -> y (shape)
    Source    ONNX operator Reshape; PuzzleLib's Reshape
    Raises    ShapeError if x has another number of elements, or no axis to copy, or what is left is no integer
    """

    reads = ()
    views = reinterprets = True
    flopsPerElement = 0
    indices = shapeInputs = ("sizes",)
    followsValues = True

    def __init__(self, shape=None, name=None):
        super().__init__(name)
        self.shape = None
        if shape is not None:
            sizes = shape if isinstance(shape, (tuple, list)) else (None,)
            need(areTargets(sizes), WANTED, shape)
            self.shape, self.sizes = tuple(map(int, sizes)), None

    def dataShapeFrom(self, x, sizes=None):
        wanted = givenSizes(sizes, "sizes") if self.shape is None else self.shape
        return (None,) * sizes[0] if wanted is None else resolved(x, wanted)

    def updateData(self, x, sizes=None):
        return x.reshape(resolved(x.shape, self.shape if sizes is None else sizesOf(sizes)))

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


WANTED = "shape as a tuple of sizes, with 0 to copy an axis, and -1 at most once"


def areTargets(sizes):
    """Whether these say what an array is reshaped to."""
    whole = all(isinstance(n, (Integral, Dim)) and not isinstance(n, bool) and not n < -1 for n in sizes)
    return whole and list(sizes).count(-1) <= 1


def resolved(x, wanted):
    """The shape that `wanted`, with its 0 and -1, means for x."""
    need(areTargets(wanted), WANTED, tuple(wanted))
    copied = [axis for axis, size in enumerate(wanted) if size == 0]
    need(all(axis < len(x) for axis in copied), f"at least {max(copied, default=-1) + 1} axes", x, "0 copies an axis")
    rest = product(size for axis, size in enumerate(x) if axis not in copied)
    given = product(size for size in wanted if size not in (0, -1))
    text = tuple(wanted)
    if -1 in wanted:
        need(rest % given == 0, f"a multiple of {given} elements", x, f"-1 in {text} must be a whole number")
    elif not any(x[axis] == 0 for axis in copied):
        isSample = len(x) > 1 and product(x[1:]) == given
        batch = f"{(0, *text)} keeps the first axis, that of the samples" if isSample else ""
        need(rest == given, f"as many elements as {text} has", x, batch or "-1 stands for a size to infer")
    return tuple(x[axis] if size == 0 else rest // given if size == -1 else size for axis, size in enumerate(wanted))
