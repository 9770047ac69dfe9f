"""Transformer: attention and a position-wise network, each with a residual connection."""

from puregraph.core.arguments import Count, takes
from puregraph.graph.sequential import Sequential
from puregraph.modules import LayerNorm
from puregraph.modules.block import MultiHeadAttention, TransformerEncoderLayer

multiHeadAttention = MultiHeadAttention


@takes()
def transformerBlock(
    size=256,
    heads=4,
    inner=None,
    causal=False,
    dropout=0.0,
    approximate=False,
    start=None,
    epsilon=1e-5,
    name="block",
):
    """x + attention(norm(x)), then h + network(norm(h)): one layer, normalised before each part.

    `inner` is the width of the network, 4 size unless given; `approximate` is the Gelu's, `start` the attention's,
    `epsilon` that of the norms.

    Shapes    x (n, t, size) -> (n, t, size)
    Source    Vaswani et al. 2017, arXiv:1706.03762, section 3; with norms first: Xiong et al. 2020, arXiv:2002.04745
    Params    12 size^2 + 13 size: 789,760 for a size of 256

    >>> transformerBlock(64, heads=4, causal=True).dataShapeFrom(("N", "T", 64))
    ('N', 'T', 64)
    """
    options = {"start": start, "innerDropout": 0.0, "epsilon": epsilon, "normFirst": True, "name": name}
    activation = "tanhgelu" if approximate else "gelu"
    return TransformerEncoderLayer(size, heads, inner, dropout, activation, causal=causal, **options)


@takes(layers=Count, size=Count, heads=Count)
def transformer(layers=6, size=256, heads=4, inner=None, causal=False, dropout=0.0, name="transformer"):
    """Blocks one after the other, and a last norm: each vector of the result depends on all of them.

    Shapes    x (n, t, size) -> (n, t, size)
    Source    Vaswani et al. 2017, arXiv:1706.03762, figure 1, the encoder; norms first as in `transformerBlock`
    Params    4,739,072 for 6 layers of 256

    >>> transformer(layers=2, size=64).dataShapeFrom(("N", 10, 64))
    ('N', 10, 64)
    """
    blocks = [transformerBlock(size, heads, inner, causal, dropout, name=f"block{i + 1}") for i in range(layers)]
    return Sequential(*blocks, LayerNorm(size, name="norm"), name=name)
