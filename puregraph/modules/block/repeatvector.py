"""RepeatVector: a vector at each of several time steps."""

from puregraph.core.arguments import Count, takes
from puregraph.graph.sequential import Sequential
from puregraph.modules.block.blockname import blockNamed
from puregraph.modules.reshaping import Tile, Unsqueeze


@blockNamed
@takes(count=Count)
def RepeatVector(count, name=None):
    """y[n, t] = x[n] for t = 0, ..., count - 1

    Shapes    x (n, c) -> y (n, count, c)
    Source    Keras' RepeatVector
    Raises    ShapeError if x has another rank

    >>> RepeatVector(3).dataShapeFrom(("N", 8))
    ('N', 3, 8)
    """
    return Sequential(Unsqueeze((1,), name="step"), Tile((1, count, 1), name="steps"), name=name)
