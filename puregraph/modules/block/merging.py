"""Average, Maximum and Minimum of several inputs, element by element."""

from functools import reduce

from puregraph.core.arguments import Count, takes
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.arithmetic import Add, MulAddConst
from puregraph.modules.block.blockname import blockNamed


def inputNodes(count):
    """Return `count` input nodes x1, x2, ..."""
    return [Input(name=f"x{i + 1}").node() for i in range(count)]


@blockNamed
@takes(count=Count)
def Average(count=2, name=None):
    """y = (x1 + x2 + ... + x_count) / count, element by element

    Shapes    any that broadcast -> their broadcast
    Source    Keras' Average
    Raises    ShapeError if the shapes do not broadcast

    >>> Average(3)([np.array([1.0]), np.array([2.0]), np.array([6.0])])
    array([3.])
    """
    xs = inputNodes(count)
    return Graph(xs, MulAddConst(1 / count, 0.0, name="mean")(Add(name="sum").node(*xs)), name=name)


def ofPairs(formula, count, name):
    """Return the Graph of a formula of a and b, from the first input to the last."""
    xs = inputNodes(count)
    return Graph(xs, reduce(lambda a, b: Pointwise(formula=formula)(a, b), xs), name=name)


@blockNamed
@takes(count=Count)
def Maximum(count=2, name=None):
    """y = max(x1, x2, ..., x_count), element by element; equal values share the gradient, two by two

    Shapes    any that broadcast -> their broadcast
    Source    Keras' Maximum
    Raises    ShapeError if the shapes do not broadcast

    >>> Maximum(3)([np.array([1.0]), np.array([6.0]), np.array([2.0])])
    array([6.])
    """
    return ofPairs("maximum(a, b)", count, name)


@blockNamed
@takes(count=Count)
def Minimum(count=2, name=None):
    """y = min(x1, x2, ..., x_count), element by element; equal values share the gradient, two by two

    Shapes    any that broadcast -> their broadcast
    Source    Keras' Minimum
    Raises    ShapeError if the shapes do not broadcast

    >>> Minimum(3)([np.array([1.0]), np.array([6.0]), np.array([2.0])])
    array([1.])
    """
    return ofPairs("minimum(a, b)", count, name)
