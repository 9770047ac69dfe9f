"""Tile: the input several times along each axis."""

import numpy as np

from puregraph.core.shape import asShape, givenSizes, sizesOf
from puregraph.errors import need
from puregraph.module import Module


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
        wanted = self.times if repeats is None else sizesOf(repeats)
        shape = [size for n, times in zip(x.shape, wanted, strict=True) for size in (times, n)]
        whole = np.broadcast_to(x.reshape([size for n in x.shape for size in (1, n)]), shape).copy()
        return whole.reshape([n * times for n, times in zip(x.shape, wanted)])

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
