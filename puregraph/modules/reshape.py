"""Reshape: the same elements in the same order, in another shape."""

from numbers import Integral

from puregraph.core.shape import product
from puregraph.errors import need
from puregraph.module import Module


class Reshape(Module):
    """y = x with another shape, elements in row-major order.

    In `shape`, 0 copies the axis of x at that index, and -1, once, is what is left: (0, -1) flattens a batch.

    Shapes    x (any) -> y (shape)
    Source    ONNX operator Reshape; PuzzleLib's Reshape
    Raises    ShapeError if x has another number of elements, or no axis to copy, or what is left is no integer
    """

    reads = ()
    views = True
    flopsPerElement = 0

    def __init__(self, shape, name=None):
        super().__init__(name)
        sizes = shape if isinstance(shape, (tuple, list)) else (None,)
        whole = all(isinstance(size, Integral) and not isinstance(size, bool) and size >= -1 for size in sizes)
        once = list(sizes).count(-1) <= 1
        need(whole and once, "shape as a tuple of sizes, with 0 to copy an axis, and -1 at most once", shape)
        self.shape = tuple(map(int, sizes))

    def dataShapeFrom(self, x):
        copied = [axis for axis, size in enumerate(self.shape) if size == 0]
        need(
            all(axis < len(x) for axis in copied), f"at least {max(copied, default=-1) + 1} axes", x, "0 copies an axis"
        )
        rest = product(size for axis, size in enumerate(x) if axis not in copied)
        given = product(size for size in self.shape if size > 0)
        if -1 in self.shape:
            need(rest % given == 0, f"a multiple of {given} elements", x, f"-1 in {self.shape} must be a whole number")
        else:
            need(rest == given, f"as many elements as {self.shape} has", x, "-1 stands for a size to infer")
        return tuple(
            x[axis] if size == 0 else rest // given if size < 0 else size for axis, size in enumerate(self.shape)
        )

    def updateData(self, x):
        return x.reshape(self.dataShapeFrom(x.shape))

    def updateGrad(self, grad, x, y):
        return grad.reshape(x.shape)

    @classmethod
    def examples(cls):
        yield cls((0, -1)), [(2, 3, 4)]
        yield cls((0, 2, -1, 0)), [(1, 4, 7, 7)]
        yield cls((6, 4)), [(2, 3, 4)]
        yield cls((-1, 2)), [(2, 3)]
        yield cls(()), [(1, 1)]
