"""SliceAlong: slices along axes that are inputs themselves."""

import numpy as np

from puregraph.core.errors import need
from puregraph.core.shape import normalAxis, sizesOf
from puregraph.graph.module import Module

FAR = 1 << 30  # a larger end means that the slice has no end


def cutAt(start, end, step, size):
    """The slice of an axis; a backward slice that starts before the first element contains it, unlike numpy's."""
    return slice(max(start, -size) if step < 0 and start < -1 else start, end, step)


class SliceAlong(Module):
    """y = x[..., start:end:step, ...] along the axes in an input.

    The shape of y depends on the data.

    Shapes    x (any), starts, ends, axes, steps (count) integers -> y of the same rank
    Source    ONNX operator Slice
    Raises    ShapeError if they differ in number
    """

    reads = ("starts", "ends", "axes", "steps")
    keepsDtype = True
    indices = ("starts", "ends", "axes", "steps")
    flopsPerElement = 0

    def dataShapeFrom(self, x, starts, ends, axes, steps=None):
        need(starts == ends == axes and steps in (None, starts), "as many starts, ends, axes, steps", [starts, ends])
        return (None,) * len(x)

    def key(self, x, starts, ends, axes, steps):
        """The index of the slice in x."""
        index = [slice(None)] * x.ndim
        lists = [[1] * len(axes) if values is None else sizesOf(values) for values in (axes, starts, ends, steps)]
        for axis, start, end, step in zip(*lists):
            at = normalAxis(axis, x.ndim)
            index[at] = cutAt(start, end, step, x.shape[at])
        return tuple(index)

    def updateData(self, x, starts, ends, axes, steps=None):
        return x[self.key(x, starts, ends, axes, steps)].copy()

    def updateGrad(self, grad, x, starts, ends, axes, steps, y):
        gx = np.zeros_like(grad, shape=x.shape)
        gx[self.key(x, starts, ends, axes, steps)] = grad
        return gx, None, None, None, None

    def sample(self, rng, x, *rest):
        values = (0, 2, 0, 1)
        return [rng.standard_normal(x), *[np.full(shape, value) for shape, value in zip(rest, values)]]

    @classmethod
    def examples(cls):
        yield cls(), [(3, 2), (1,), (1,), (1,), (1,)]
        yield cls(), [(3, 2), (1,), (1,), (1,)]
