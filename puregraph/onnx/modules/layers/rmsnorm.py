"""RmsNorm: normalisation of each sample by the root of its mean square."""

import numpy as np

from puregraph.arguments import Flag, NotNegative
from puregraph.base.dtype import promoted
from puregraph.base.widen import widen
from puregraph.core.param import Param
from puregraph.errors import need
from puregraph.kernels.reduce import unbroadcast
from puregraph.module import Module
from puregraph.modules.windows import perAxis


class RmsNorm(Module):
    """y = scale x f, f = 1 / sqrt(mean of x^2 + epsilon)

    The mean is over the last axes, those of `shape` (an integer is one axis). f is the hidden output `factor`.

    Shapes    x (..., *shape), scale (*shape,) -> y as x
    Source    Zhang, Sennrich 2019, arXiv:1910.07467, eq. 4; ONNX operator RMSNormalization
    Raises    ShapeError if the last axes of x are not `shape`
    """

    reads = ("x", "scale", "factor")
    needsFloats = True
    hidden = ("factor",)
    flopsPerElement = 3

    def __init__(self, shape, epsilon: NotNegative = 1e-5, affine: Flag = True, name=None):
        super().__init__(name)
        self.shape = perAxis(shape, len(shape) if isinstance(shape, (tuple, list)) else 1, "shape")
        self.epsilon = epsilon
        self.scale = Param(self.shape, "ones") if affine else None

    @property
    def axes(self):
        return tuple(range(-len(self.shape), 0))

    def dataShapeFrom(self, x):
        need(x[-len(self.shape) :] == self.shape, ("...", *self.shape), x, "normalised are the last axes")
        return x

    def hiddenShapeFrom(self, x):
        return [(*x[: -len(self.shape)], *(1,) * len(self.shape))]

    def hiddenTypeFrom(self, x):
        return [None if x is None else np.promote_types(x, np.float32)]

    def updateData(self, x, scale):
        wide = widen(x)
        factor = 1 / np.sqrt((wide * wide).mean(axis=self.axes, keepdims=True) + self.epsilon)
        y = wide * factor
        dtype = x.dtype if scale is None else promoted([x.dtype, scale.dtype])
        y = y if scale is None else y * scale
        return y.astype(dtype, copy=False), factor

    def updateGrad(self, grad, x, scale, y, factor, needs):
        g, z = widen(grad), widen(x) * factor
        gx = gscale = None
        if needs[0]:
            d = g if scale is None else g * scale
            d = d - z * (d * z).mean(axis=self.axes, keepdims=True)
            gx = (d * factor).astype(x.dtype, copy=False)
        if needs[1]:
            gscale = unbroadcast(g * z, self.shape).astype(x.dtype, copy=False)
        return gx, gscale

    @classmethod
    def examples(cls):
        yield cls(4), [(3, 4)]
        yield cls((2, 3), epsilon=1e-3), [(2, 4, 2, 3)]
        yield cls(5, affine=False), [(2, 2, 5)]
