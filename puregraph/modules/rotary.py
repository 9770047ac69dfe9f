"""Rotary: positions as rotations of queries and keys."""

import numpy as np

from puregraph.core.arguments import Positive
from puregraph.core.base.widen import widen
from puregraph.core.errors import need
from puregraph.core.tracer import arrayLike
from puregraph.graph.module import Module


class Rotary(Module):
    """y = x cos a + x' sin a, a[t, j] = (offset + t) theta^(-2j / d) for j < d / 2, and the same for j + d / 2

    x' has the halves of the last axis swapped and the new first one negated, so that each pair (x_j, x_(j + d/2)) is
    rotated by its angle. Products of rotated queries and keys depend on differences of positions alone. The optional
    input `offset` is the position of the first row of each sample, 0 unless given. Angles are float32 or better.

    Shapes    x (n, ..., t, d), d even, offset (n,) integers -> y as x
    Source    Su et al. 2021, arXiv:2104.09864, eq. 34; pairs of halves as in Touvron et al. 2023, arXiv:2302.13971
    Raises    ShapeError if d is odd, or the offset is not one number for each sample
    """

    reads = ("offset",)
    indices = ("offset",)
    needsFloats = True
    flopsPerElement = 3

    def __init__(self, theta: Positive = 10000.0, name=None):
        super().__init__(name)
        self.theta = theta

    def dataShapeFrom(self, x, offset=None):
        need(len(x) >= 3 and x[-1] % 2 == 0, "(n, ..., t, d) with d even", x)
        need(offset is None or offset == x[:1], f"offset of shape {x[:1]}", offset)
        return x

    def rotated(self, x, offset, sign):
        """Return x rotated by the angles of its positions, times `sign`."""
        count, width = x.shape[-2:]
        wide = np.promote_types(x.dtype, np.float32)
        rates = np.asarray(self.theta ** (-np.arange(0, width, 2) / width))
        positions = np.arange(count).reshape(-1, 1)
        if offset is None:
            angles = positions * rates
            cos, sin = (arrayLike(x, f(angles).astype(wide)) for f in (np.cos, np.sin))
        else:
            lead = (-1, *(1,) * (x.ndim - 1))
            angles = (offset.reshape(lead) + arrayLike(x, positions)).astype(wide) * arrayLike(x, rates.astype(wide))
            cos, sin = np.cos(angles), np.sin(angles)
        a, b = widen(x[..., : width // 2]), widen(x[..., width // 2 :])
        sin = sin * sign
        y = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
        return y.astype(x.dtype, copy=False)

    def updateData(self, x, offset=None):
        return self.rotated(x, offset, 1)

    def updateGrad(self, grad, x, *others, needs):
        offset = others[0] if len(needs) > 1 else None
        return (self.rotated(grad, offset, -1), *[None] * (len(needs) - 1))

    def sample(self, rng, x, *others):
        return [rng.standard_normal(x), *(rng.integers(0, 50, shape) for shape in others)]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 4, 6)]
        yield cls(theta=100.0), [(2, 3, 4), (2,)]
