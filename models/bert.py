"""BERT: a transformer that reads a text in both directions."""

from puregraph.core.arguments import Count, takes
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules import Cast, Embedder, LayerNorm, Linear, Position, Reshape, Slice, Tanh
from puregraph.modules.block import TransformerEncoderLayer
from puregraph.modules.block.multihead import normal


@takes(vocabulary=Count, length=Count, layers=Count, heads=Count, size=Count, types=Count)
def bert(
    vocabulary=30522,
    length=512,
    layers=12,
    heads=12,
    size=768,
    inner=None,
    types=2,
    pooler=True,
    epsilon=1e-12,
    name="bert",
):
    """Embeddings of tokens, their types and positions, and blocks that are normalised after each part.

    `mask` is 1 or True for tokens, and 0 for padding, `types` says which of two texts a token is of. With `pooler` a
    second output is a vector of the first token. MiniLM-L6 has 6 layers, 12 heads and a size of 384.

    Shapes    ids (n, t) integers below `vocabulary`, mask (n, t), types (n, t) integers; t <= length
              -> (n, t, size) (, (n, size))
    Source    Devlin, Chang, Lee, Toutanova 2018, arXiv:1810.04805, section 3
    Params    109,482,240 (base), 335,141,888 (24 layers, 16 heads, a size of 1024)
    Raises    ValueError if the heads do not divide the size

    >>> bert(layers=2, heads=4, size=64).dataShapeFrom(("N", "T"), ("N", "T"), ("N", "T"))
    [('N', 'T', 64), ('N', 64)]
    """
    ids, mask, kinds = (Input(name=label).node() for label in ("ids", "mask", "types"))
    words = Embedder(vocabulary, size, initscheme="gaussian", wscale=0.02, name="words")(ids)
    sides = Embedder(types, size, initscheme="gaussian", wscale=0.02, name="sides")(kinds)
    h = LayerNorm(size, epsilon, name="norm")(Position(length, size, name="positions")(words + sides))
    seen = Reshape((0, 1, 1, -1), name="seen")(Cast("bool", name="isToken")(mask))
    for i in range(layers):
        block = TransformerEncoderLayer(
            size, heads, inner, activation="gelu", masked=True, epsilon=epsilon, start=0.02, name=f"block{i + 1}"
        )
        h = block.node(h, seen)
    if not pooler:
        return Graph([ids, mask, kinds], h, name=name)
    first = Slice((slice(None), 0), name="first")(h)
    pooled = Tanh(name="pooled")(Linear(size, size, **normal(0.02), name="pooler")(first))
    return Graph([ids, mask, kinds], [h, pooled], name=name)
