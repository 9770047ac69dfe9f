"""AdditiveAttention: scores that are sums instead of products."""

from puregraph.core.arguments import Count, Flag, Probability, takes
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules.activation import Tanh
from puregraph.modules.block.blockname import blockNamed
from puregraph.modules.comparison import Where
from puregraph.modules.constant import Constant
from puregraph.modules.dropout import Dropout
from puregraph.modules.linear import Linear
from puregraph.modules.product import MatMul
from puregraph.modules.reduction import Sum
from puregraph.modules.reshaping import Squeeze, Unsqueeze
from puregraph.modules.softmax import SoftMax

HIDDEN = -1e9  # score of a key that a mask hides; in a row of hidden keys alone all weights are equal


@blockNamed
@takes(size=Count, useScale=Flag, masked=Flag, dropout=Probability)
def AdditiveAttention(size, useScale=True, masked=False, dropout=0.0, name=None):
    """y = softmax(s) v,   s[n, i, j] = sum over c of w[c] tanh(q[n, i, c] + k[n, j, c])

    Without `useScale` all w are 1. With `masked` a last input hides keys where it is False. `dropout` drops weights.
    The sums take memory for n t s size numbers; `Attention`, whose scores are products, takes none.

    Shapes    q (n, t, size), k (n, s, size), v (n, s, o) (, mask of bools that broadcasts to (n, t, s)); w (size, 1)
              -> y (n, t, o)
    Source    Bahdanau, Cho, Bengio 2015, arXiv:1409.0473, appendix A.1.2; Keras' AdditiveAttention
    Raises    ShapeError if the shapes do not fit

    >>> AdditiveAttention(8).dataShapeFrom([("N", 4, 8), ("N", 6, 8), ("N", 6, 5)])
    ('N', 4, 5)
    """
    q, k, v = inputs = [Input(name=name).node() for name in "qkv"]
    h = Tanh(name="tanh")(Unsqueeze((2,), name="queries")(q) + Unsqueeze((1,), name="keys")(k))
    if useScale:
        s = Squeeze((3,), name="scores")(Linear(size, 1, useBias=False, name="scale")(h))
    else:
        s = Sum(axis=3, name="scores")(h)
    if masked:
        inputs.append(Input(name="mask").node())
        s = Where(name="masked").node(inputs[-1], s, Constant(HIDDEN, name="hidden").node())
    weights = SoftMax(-1, name="weights")(s)
    weights = Dropout(dropout, name="drop")(weights) if dropout else weights
    return Graph(inputs, MatMul(name="y").node(weights, v), name=name)
