"""ScaleMaps: x scaled and shifted channel by channel, by arrays that are inputs."""

import numpy as np

from puregraph.core.arguments import NotNegative
from puregraph.core.errors import need
from puregraph.graph.module import Module
from puregraph.modules.windows import overMaps, perMap
from puregraph.ops.reduction.reference import total


class ScaleMaps(Module):
    """y = scale (x - mean) / sqrt(var + epsilon) + bias, for each channel; all of them inputs.

    Shapes    x (n, maps, *spatial), the others (maps,) -> y as x
    Source    ONNX operator BatchNormalization
    Raises    ShapeError if one is of another length
    """

    reads = ("x", "scale", "mean", "var")
    needsFloats = True
    flopsPerElement = 4

    def __init__(self, epsilon: NotNegative = 1e-5, name=None):
        super().__init__(name)
        self.epsilon = epsilon

    def dataShapeFrom(self, x, scale, bias, mean, var):
        maps = x[1] if len(x) > 1 else 1
        need(scale == bias == mean == var == (maps,), f"four inputs of shape ({maps},)", [scale, bias, mean, var])
        return x

    def dataTypeFrom(self, x, *rest):
        super().dataTypeFrom(x, *rest)
        return x

    def shaped(self, values, x):
        """Per-channel values, shaped to broadcast with x."""
        return perMap(values, x) if x.ndim > 1 else values

    def updateData(self, x, scale, bias, mean, var):
        factor = scale / np.sqrt(var + self.epsilon)
        y = (x - self.shaped(mean, x)) * self.shaped(factor, x) + self.shaped(bias, x)
        return y.astype(x.dtype, copy=False)

    def updateGrad(self, grad, x, scale, bias, mean, var, y):
        inverse = 1 / np.sqrt(var + self.epsilon)
        axes = overMaps(x) if x.ndim > 1 else (0,)
        centered = x - self.shaped(mean, x)
        gbias, moved = total(grad, axes), total(grad * centered, axes)
        return (
            grad * self.shaped(scale * inverse, x),
            moved * inverse,
            gbias,
            -gbias * scale * inverse,
            -0.5 * moved * scale * inverse**3,
        )

    def sample(self, rng, x, *rest):
        *others, var = [rng.standard_normal(shape) for shape in rest]
        return [rng.standard_normal(x), *others, 0.5 + var * var]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 2), (3,), (3,), (3,), (3,)]
