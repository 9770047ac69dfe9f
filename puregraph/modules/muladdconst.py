"""MulAddConst: scaled and shifted by constants."""

from puregraph.arguments import Number
from puregraph.pointwise import Pointwise


class MulAddConst(Pointwise):
    """y = a x + b

    Shapes    x (any) -> y the same
    Source    PuzzleLib's MulAddConst
    """

    formula = "a * x + b"

    def __init__(self, a: Number = 1.0, b: Number = 0.0, name=None):
        if b == 0:
            super().__init__(name, "a * x", a=a)
        else:
            super().__init__(name, a=a, b=b)

    @classmethod
    def examples(cls):
        yield cls(2.0, -1.0), [(2, 3)]
        yield cls(a=-0.5), [(2, 3)]
        yield cls(b=3), [(2, 3)]
        yield cls(), [(2, 3)]
