"""AffineGrid: the positions of a regular grid, moved by an affine map."""

from math import prod

import numpy as np

from puregraph.arguments import Flag
from puregraph.base.widen import widened
from puregraph.core.shape import sizesOf, valueOf
from puregraph.errors import need
from puregraph.module import Module


class AffineGrid(Module):
    """y[n, o] = theta[n] (p(o), 1), p(o) being the position of o from -1 to 1, along the last axis first

    -1 and 1 are the first and last position with `alignCorners`, else the outer edges of theirs; a lone one is at 0.
    `size` is that of an array (n, c, d1, ..., dr) as GridSample gives it.

    Shapes    theta (n, r, r + 1), size (r + 2) -> y (n, d1, ..., dr, r)
    Source    ONNX operator AffineGrid; Jaderberg et al. 2015, Spatial Transformer Networks, arXiv:1506.02025, eq. (1)
    Raises    ShapeError for other shapes, or another n
    """

    reads = ("size",)
    indices = shapeInputs = ("size",)

    def __init__(self, alignCorners: Flag = False, name=None):
        super().__init__(name)
        self.alignCorners = alignCorners

    def dataShapeFrom(self, theta, size):
        need(len(theta) == 3 and theta[2] == theta[1] + 1, "maps (n, r, r + 1)", theta)
        need(size == (theta[1] + 2,), f"a size of {theta[1] + 2} numbers", size)
        value = valueOf(size)
        known = (theta[0], None) + (None,) * theta[1] if value is None else sizesOf(value)
        need(known[0] == theta[0], f"a size that begins with {theta[0]}", tuple(known))
        return (theta[0], *known[2:], theta[1])

    def dataTypeFrom(self, theta, size):
        return theta

    def points(self, theta, size):
        """The positions and a 1 in each row."""
        lengths = np.asarray(size).tolist()[2:]
        ends = [min(k - 1, 1) if self.alignCorners else 1 - 1 / max(k, 1) for k in lengths]
        axes = [np.linspace(-end, end, k) for end, k in zip(ends, lengths, strict=True)]
        found = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(lengths)], axis=-1)
        return found.reshape(-1, len(lengths) + 1).astype(theta.dtype)

    def updateData(self, theta, size):
        n, _, *lengths = np.asarray(size).tolist()
        need(
            n == len(theta) and min(lengths) >= 0,
            f"a size of {len(theta)} samples and lengths from 0 on",
            (n, *lengths),
        )
        return self.moved(theta, size).reshape(n, *lengths, theta.shape[1])

    @widened
    def moved(self, theta, size):
        """The positions as rows."""
        return self.points(theta, size) @ theta.swapaxes(1, 2)

    def updateGrad(self, grad, theta, size, y):
        return self.summed(grad.reshape(len(grad), prod(grad.shape[1:-1]), grad.shape[-1]), size), None

    @widened
    def summed(self, grad, size):
        """dtheta: each gradient times its position."""
        return grad.swapaxes(1, 2) @ self.points(grad, size)

    def sample(self, rng, theta, size):
        return [rng.standard_normal(theta), np.array([theta[0], 1, *range(2, theta[1] + 2)])]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 2, 3), (4,)]
        yield cls(alignCorners=True), [(1, 3, 4), (5,)]
