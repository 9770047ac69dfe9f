"""LayerNorm: normalisation of each sample by its own statistics."""

import numpy as np

from puregraph.arguments import Flag, NotNegative
from puregraph.base.widen import widen
from puregraph.core.param import Param
from puregraph.errors import need
from puregraph.kernels.reduce import moments, unbroadcast
from puregraph.module import Module
from puregraph.modules.windows import perAxis


class LayerNorm(Module):
    """y = scale (x - m) f + bias, f = 1 / sqrt(v + epsilon)

    m and v being mean and variance over the last axes, those of `shape` (an integer is one axis). m and f are hidden
    outputs `center` and `factor`, in float32 or better if there is a scale, else in the dtype of x.

    Shapes    x (..., *shape), scale, bias (*shape,) -> y as x
    Source    Ba, Kiros, Hinton 2016, arXiv:1607.06450, eq. 4
    Raises    ShapeError if the last axes of x are not `shape`
    """

    reads = ("x", "scale", "center", "factor")
    needsFloats = needsOneFloat = True
    hidden = ("center", "factor")
    flopsPerElement = 4

    def __init__(self, shape, epsilon: NotNegative = 1e-5, affine: Flag = True, name=None):
        super().__init__(name)
        self.shape = perAxis(shape, len(shape) if isinstance(shape, (tuple, list)) else 1, "shape")
        self.epsilon = epsilon
        self.scale = Param(self.shape, "ones") if affine else None
        self.bias = Param(self.shape) if affine else None

    @property
    def axes(self):
        return tuple(range(-len(self.shape), 0))

    def dataShapeFrom(self, x):
        hint = "normalised are the last axes"
        need(x[-len(self.shape) :] == self.shape, ("...", *self.shape), x, hint)
        return x

    def hiddenShapeFrom(self, x):
        shape = (*x[: -len(self.shape)], *(1,) * len(self.shape))
        return [shape] * 2

    def hiddenTypeFrom(self, x):
        return [x if self.scale is None else np.promote_types(self.scale.dtype, np.float32)] * 2

    def updateData(self, x, scale, bias):
        center, variance = moments(x, self.axes, keepdims=True)
        factor = 1 / np.sqrt(variance + self.epsilon)
        y = x - center
        y *= factor
        if scale is None:
            return y.astype(x.dtype, copy=False), center.astype(x.dtype, copy=False), factor.astype(x.dtype, copy=False)
        y *= scale
        y += bias
        return y.astype(x.dtype, copy=False), center, factor

    def updateGrad(self, grad, x, scale, bias, y, center, factor, needs):
        g, axes = widen(grad), self.axes
        z = (widen(x) - center) * factor
        gx = gscale = gbias = None
        if needs[0]:
            d = g if scale is None else g * scale
            d = d - d.mean(axis=axes, keepdims=True) - z * (d * z).mean(axis=axes, keepdims=True)
            gx = (d * factor).astype(x.dtype, copy=False)
        if needs[1]:
            gscale = unbroadcast(g * z, self.shape).astype(x.dtype, copy=False)
        if needs[2]:
            gbias = unbroadcast(g, self.shape).astype(x.dtype, copy=False)
        return gx, gscale, gbias

    @classmethod
    def examples(cls):
        yield cls(4), [(3, 4)]
        yield cls((2, 3), epsilon=1e-3), [(2, 4, 2, 3)]
        yield cls(5, affine=False), [(2, 2, 5)]
