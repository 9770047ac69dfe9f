"""GlobalMaxPool: the maximum over all positions."""

from puregraph.graph.sequential import Sequential
from puregraph.modules.adaptivepool import AdaptiveMaxPool
from puregraph.modules.block.blockname import blockNamed
from puregraph.modules.reshaping import Flatten


@blockNamed
def GlobalMaxPool(name=None):
    """y[n, c] = max over all positions a of x[n, c, a]; of equal values the first has the gradient

    Shapes    x (n, c, *spatial) -> y (n, c), for any number of spatial axes, at least one
    Source    ONNX operator GlobalMaxPool, Keras' GlobalMaxPooling2D
    Raises    ShapeError if x has no spatial axis, or one of length 0

    >>> GlobalMaxPool().dataShapeFrom(("N", 8, 5, 7))
    ('N', 8)
    """
    return Sequential(AdaptiveMaxPool(name="pool"), Flatten(name="flat"), name=name)
