"""Power: the input to a constant power."""

from puregraph.arguments import Number
from puregraph.pointwise import Pointwise


class Power(Pointwise):
    """y = x^exponent

    Shapes    x (any) -> y the same
    Source    the NumPy reference, numpy.power
    Raises    FormulaError for the exponent 0, with which nothing depends on x
    """

    formula = "x ** exponent"

    def __init__(self, exponent: Number, name=None):
        super().__init__(name, exponent=exponent)

    def sample(self, rng, *shapes):
        return [1.0 + rng.random(shape) for shape in shapes]

    @classmethod
    def examples(cls):
        yield cls(2), [(2, 3)]
        yield cls(3.0), [(2, 3)]
        yield cls(1), [(2, 3)]
