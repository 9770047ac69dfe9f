"""Elu: exponential below zero."""

from puregraph.arguments import Number
from puregraph.pointwise import Pointwise


class Elu(Pointwise):
    """y = x if x > 0 else alpha (e^x - 1)

    Shapes    x (any) -> y the same
    Source    Clevert, Unterthiner, Hochreiter 2016, arXiv:1511.07289, eq. 15
    """

    formula = "where(x > 0, x, alpha * expm1(x))"

    def __init__(self, alpha: Number = 1.0, name=None):
        super().__init__(name, alpha=alpha)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(alpha=0.5), [(2, 3)]
