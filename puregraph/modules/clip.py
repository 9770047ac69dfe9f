"""Clip: values limited to bounds."""

from puregraph.arguments import Scalar
from puregraph.errors import ArgumentError
from puregraph.pointwise import Pointwise


class Clip(Pointwise):
    """y = min(max(x, low), high); its derivative is 1 at both bounds. The defaults are ReLU6.

    Shapes    x (any) -> y the same
    Source    Krizhevsky 2010, Convolutional Deep Belief Networks on CIFAR-10, section 2; PuzzleLib's clip
    Raises    ArgumentError if low is above high
    """

    formula = "clip(x, low, high)"

    def __init__(self, low: Scalar = 0.0, high: Scalar = 6.0, name=None):
        if not low <= high:
            raise ArgumentError(f"Clip: wanted low <= high, got {low} and {high}")
        super().__init__(name, low=low, high=high)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(low=-0.5, high=0.5), [(2, 3)]
