"""Gelu: the input times the normal distribution function."""

from puregraph.arguments import Flag
from puregraph.pointwise import Pointwise


class Gelu(Pointwise):
    """y = x P(X <= x) for standard normal X = x/2 erfc(-x / sqrt 2), or its approximation by a tanh.

    `approximate`: y = x s(2 sqrt(2 / pi) (x + 0.044715 x^3)), s(z) = 1 / (1 + exp(-z)), off by less than 0.0005; it is
    x/2 (1 + tanh(z / 2)) without the difference that has no digits left below -4.

    Shapes    x (any) -> y the same
    Source    Hendrycks, Gimpel 2016, arXiv:1606.08415, section 2
    """

    formula = "0.5 * x * erfc(-x / sqrt(2))"
    approximation = "x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x ** 3))"

    def __init__(self, approximate: Flag = False, name=None):
        super().__init__(name, self.approximation if approximate else None)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(approximate=True), [(2, 3)]
