"""RandomLike: samples in the shape of an input."""

from typing import Annotated

import numpy as np

from puregraph.core.arguments import Dtype, Scalar, choice
from puregraph.core.base.dtype import nativeType
from puregraph.core.param import State
from puregraph.graph.module import Module
from puregraph.modules.dropout import drawKey
from puregraph.ops.random.reference import normal, uniform


class RandomLike(Module):
    """y = scale u + start, u uniform in [0, 1) or normal, in the shape of x

    They are a function of two States: `key` names the stream, and `count` grows with each pass, in evalMode too.

    Shapes    x any -> y as x
    Source    ONNX operators RandomUniformLike and RandomNormalLike
    """

    namesFloats = True
    reads = ()
    isDiscrete = True
    draws = "count"
    drawsAlways = True  # in evalMode too: it is part of the model

    def __init__(
        self,
        kind: Annotated[str, choice("uniform", "normal")] = "uniform",
        start: Scalar = 0.0,
        scale: Scalar = 1.0,
        dtype: Dtype = "float32",
        name=None,
    ):
        super().__init__(name)
        self.kind, self.start, self.scale, self.dtype = kind, start, scale, nativeType(dtype)
        self.key = State((), drawKey, np.uint64)
        self.count = State((), dtype=np.int64)

    def dataShapeFrom(self, x):
        return tuple(x)

    def dataTypeFrom(self, x):
        return self.dtype

    def updateData(self, x, key, count):
        drawn = (uniform if self.kind == "uniform" else normal)(x.shape, key, count)
        count += 1
        return (drawn * self.scale + self.start).astype(self.dtype)

    @classmethod
    def examples(cls):
        yield cls("normal", 1.0, 2.0, "float64"), [(4,)]
        yield cls(), [(2, 3)]
