"""Normalization of each sample by its own mean and variance: LayerNorm, RmsNorm, GroupNorm, InstanceNorm."""

import numpy as np

from puregraph.core.arguments import Count, Flag, NotNegative
from puregraph.core.base.dtype import promoted
from puregraph.core.base.widen import widen
from puregraph.core.errors import need
from puregraph.core.param import Param
from puregraph.core.shape import product
from puregraph.graph.module import Module
from puregraph.modules.convolution import checkMaps
from puregraph.modules.windows import channelHint, overMaps, perAxis, perMap
from puregraph.ops.reduction.reference import moments, total, unbroadcast


class LayerNorm(Module):
    """y = scale (x - m) f + bias, f = 1 / sqrt(v + epsilon); no bias if not `useBias`, neither if not `affine`

    m and v are mean and variance over the last axes, with sizes `shape` (an integer is one axis). m and f are hidden
    outputs `center` and `factor`, in float32 or better if there is a scale, else in the dtype of x.

    Shapes    x (..., *shape), scale, bias (*shape,) -> y as x
    Source    Ba, Kiros, Hinton 2016, arXiv:1607.06450, eq. 4
    Raises    ShapeError if the last axes of x are not `shape`
    """

    reads = ("x", "scale", "center", "factor")
    needsFloats = needsOneFloat = True
    hidden = ("center", "factor")
    flopsPerElement = 4

    def __init__(self, shape, epsilon: NotNegative = 1e-5, affine: Flag = True, name=None, *, useBias: Flag = True):
        super().__init__(name)
        self.shape = perAxis(shape, len(shape) if isinstance(shape, (tuple, list)) else 1, "shape")
        self.epsilon = epsilon
        self.scale = Param(self.shape, "ones") if affine else None
        self.bias = Param(self.shape) if affine and useBias else None

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
        if bias is not None:
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
        yield cls(3, useBias=False), [(4, 3)]


class RmsNorm(Module):
    """y = scale x f, f = 1 / sqrt(mean of x^2 + epsilon)

    The mean is over the last axes, with sizes `shape` (an integer is one axis). f is the hidden output `factor`.

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


class GroupNorm(Module):
    """y = scale (x - m) f + bias, f = 1 / sqrt(v + epsilon); no bias if not `useBias`, neither if not `affine`

    m and v are mean and variance over the channels of a group and all positions of one sample. m and f are
    the hidden outputs `center` and `factor`, in float32 or better if there is a scale, else in the dtype of x.

    Shapes    x (n, maps, *spatial), scale, bias (maps,) -> y as x
    Source    Wu, He 2018, arXiv:1803.08494, eq. 7
    Raises    ShapeError if x has another number of channels or no positions, or groups do not divide the channels
    """

    reads = ("x", "scale", "center", "factor")
    needsFloats = needsOneFloat = featuresFirst = True
    hidden = ("center", "factor")
    flopsPerElement = 4

    def __init__(
        self,
        groups: Count,
        maps: Count,
        epsilon: NotNegative = 1e-5,
        affine: Flag = True,
        name=None,
        *,
        useBias: Flag = True,
    ):
        super().__init__(name)
        checkMaps(maps, maps, groups)
        self.groups, self.maps, self.epsilon = groups, maps, epsilon
        self.scale = Param((maps,), "ones") if affine else None
        self.bias = Param((maps,)) if affine and useBias else None

    def dataShapeFrom(self, x):
        need(len(x) >= 2 and x[1] == self.maps, f"(n, {self.maps}, *spatial)", x, channelHint(x, self.maps))
        need(product(x[2:]) >= 1, "at least one value of each map", x)
        return x

    def hiddenShapeFrom(self, x):
        return [(x[0], self.groups, 1)] * 2

    def hiddenTypeFrom(self, x):
        return [x if self.scale is None else np.promote_types(self.scale.dtype, np.float32)] * 2

    def grouped(self, x):
        """x with the elements of each group contiguous: (n, groups, maps / groups * positions)."""
        return x.reshape(x.shape[0], self.groups, product(x.shape[1:]) // self.groups)

    def updateData(self, x, scale, bias):
        center, variance = moments(self.grouped(x), 2, keepdims=True)
        factor = 1 / np.sqrt(variance + self.epsilon)
        if scale is None:
            y = ((self.grouped(x) - center) * factor).reshape(x.shape)
            return y.astype(x.dtype, copy=False), center.astype(x.dtype, copy=False), factor.astype(x.dtype, copy=False)
        rows = x.reshape(x.shape[0], self.groups, self.maps // self.groups, product(x.shape[2:]))
        y = (rows - center[..., None]) * (factor[..., None] * scale.reshape(self.groups, -1, 1))
        if bias is not None:
            y = y + bias.reshape(self.groups, -1, 1)
        return y.reshape(x.shape).astype(x.dtype, copy=False), center, factor

    def updateGrad(self, grad, x, scale, bias, y, center, factor, needs):
        g = widen(grad)
        z = (widen(self.grouped(x)) - center) * factor
        gx = gscale = gbias = None
        if needs[0]:
            d = self.grouped(g if scale is None else g * perMap(scale, g))
            d = d - d.mean(axis=2, keepdims=True) - z * (d * z).mean(axis=2, keepdims=True)
            gx = (d * factor).reshape(x.shape).astype(x.dtype, copy=False)
        if needs[1]:
            gscale = total(g * z.reshape(x.shape), overMaps(g)).astype(x.dtype, copy=False)
        if needs[2]:
            gbias = total(g, overMaps(g)).astype(x.dtype, copy=False)
        return gx, gscale, gbias

    @classmethod
    def examples(cls):
        yield cls(2, 4), [(2, 4, 3, 2)]
        yield cls(3, 3, epsilon=1e-3), [(2, 3, 4)]
        yield cls(1, 4, affine=False), [(3, 4)]
        yield cls(2, 2, affine=False), [(1, 2, 2, 1, 3)]
        yield cls(3, 6, useBias=False), [(2, 6, 2)]


class InstanceNorm(GroupNorm):
    """y = scale (x - m) f + bias, f = 1 / sqrt(v + epsilon), m and v of one map of one sample: as many groups as maps

    Shapes    x (n, maps, *spatial), scale, bias (maps,) -> y as x
    Source    Ulyanov, Vedaldi, Lempitsky 2016, arXiv:1607.08022, eq. 2; PuzzleLib's InstanceNorm2D
    Raises    ShapeError if x has another number of channels or no positions
    """

    def __init__(
        self, maps: Count, epsilon: NotNegative = 1e-5, affine: Flag = True, name=None, *, useBias: Flag = True
    ):
        super().__init__(maps, maps, epsilon, affine, name, useBias=useBias)

    @classmethod
    def examples(cls):
        yield cls(3), [(2, 3, 4)]
        yield cls(2, epsilon=1e-3, useBias=False), [(2, 2, 2, 3)]
        yield cls(2, affine=False), [(1, 2, 3, 1, 2)]
