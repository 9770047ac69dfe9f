"""Mod: the remainder of a division."""

from puregraph.pointwise import Pointwise


class Mod(Pointwise):
    """y = a - b floor(a / b), element by element: it has the sign of b. Exact for integers, where y is 0 for b = 0.

    Shapes    any that broadcast -> their broadcast
    Source    the NumPy reference, numpy.remainder; ONNX operator Mod
    Raises    ShapeError if the shapes do not broadcast
    """

    formula = "a % b"

    def sample(self, rng, a, b):
        return [2.5 + 0.2 * rng.random(a), 1.0 + 0.2 * rng.random(b)]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), (2, 3)]
        yield cls(), [(2, 1), (4, 1, 3)]
