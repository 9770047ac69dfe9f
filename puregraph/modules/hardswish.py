"""HardSwish: the input times a piecewise linear sigmoid."""

from puregraph.pointwise import Pointwise


class HardSwish(Pointwise):
    """y = x min(max(x + 3, 0), 6) / 6

    The derivative is 0 at -3 and 1 at 3, as PyTorch's.

    Shapes    x (any) -> y the same
    Source    Howard et al. 2019, Searching for MobileNetV3, arXiv:1905.02244, section 5.2
    """

    formula = "where(x < 3, x * relu(minimum(x, 3) + 3) / 6, x)"

    def __init__(self, name=None):
        super().__init__(name)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(), [(3, 2, 2)]
