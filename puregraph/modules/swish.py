"""Swish: the input times its sigmoid; with beta 1 also called SiLU."""

from puregraph.arguments import Number
from puregraph.pointwise import Pointwise


class Swish(Pointwise):
    """y = x / (1 + e^(-beta x))

    Shapes    x (any) -> y the same
    Source    Ramachandran, Zoph, Le 2018, arXiv:1710.05941, section 4; Elfwing, Uchibe, Doya 2018, arXiv:1702.03118
    """

    formula = "x * sigmoid(beta * x)"

    def __init__(self, beta: Number = 1.0, name=None):
        super().__init__(name, beta=beta)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(beta=1.7), [(2, 3)]
