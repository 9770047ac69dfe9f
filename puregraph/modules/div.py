"""Div: the quotient of two inputs."""

import numpy as np

from puregraph.pointwise import Pointwise


class Div(Pointwise):
    """y = a / b, element by element; shapes broadcast as numpy's do.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator Div
    Raises    ShapeError if the shapes do not broadcast
    """

    formula = "a / b"

    def sample(self, rng, a, b):
        below = rng.standard_normal(b)
        return [rng.standard_normal(a), below + np.copysign(0.5, below)]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), (2, 3)]
        yield cls(), [(2, 1), (4, 1, 3)]
        yield cls(), [(2, 3), ()]
