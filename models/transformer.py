"""Transformer: attention and a position-wise network, each with a residual connection."""

from puregraph.core.arguments import Count, Positive, optional, takes
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.sequential import Sequential
from puregraph.modules import Attention, Dropout, Gelu, LayerNorm, Linear, Reshape, Rotary, Split, Transpose


@takes(size=Count, heads=Count, groups=optional(Count), rotary=optional(Positive))
def multiHeadAttention(
    size,
    heads,
    causal=False,
    cross=False,
    masked=False,
    useBias=True,
    start=None,
    groups=None,
    rotary=None,
    window=None,
    cap=None,
    name=None,
):
    """Attention of several heads: q, k and v by one Linear, `Attention`, and a Linear for all heads together.

    With `cross` the keys and values come from a second input, with `masked` the mask from a last one: bools that hide
    where they are False, or floats that are added. `start` is the deviation of normal initial values, in place of
    xavier's. `groups` is the number of heads of keys and values, `heads` unless given; `rotary` the theta of rotated
    queries and keys (`Rotary`), for self-attention; `window` and `cap` are those of `Attention`.

    Shapes    x (n, t, size) (, memory (n, s, size)) (, mask that broadcasts to (n, heads, t, s)) -> (n, t, size)
    Source    Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2; groups: Ainslie et al. 2023, arXiv:2305.13245
    Params    4 size (size + 1), or 4 size^2 without bias; less with `groups`
    Raises    ValueError if the heads do not divide the size, or the groups the heads, and for rotary cross-attention

    >>> net = multiHeadAttention(64, heads=4, cross=True)
    >>> net.dataShapeFrom(("N", 10, 64), ("N", 7, 64))                # ten vectors that look at seven
    ('N', 10, 64)
    """
    if size % heads:
        raise ValueError(f"multiHeadAttention: wanted heads that divide the size {size}, got {heads}")
    groups = groups or heads
    if heads % groups:
        raise ValueError(f"multiHeadAttention: wanted groups that divide the {heads} heads, got {groups}")
    if rotary is not None and cross:
        raise ValueError("multiHeadAttention: rotary is for self-attention, got cross=True")
    options, width = normal(start) | ({} if useBias else {"useBias": False}), size // heads

    x = Input(name="x").node()
    inputs = [x]
    if cross:
        memory = Input(name="memory").node()
        inputs.append(memory)
        kv = Split(-1, 2, name="parts").node(Linear(size, 2 * groups * width, **options, name="kv")(memory))
        q, k, v = Linear(size, size, **options, name="q")(x), (kv, 0), (kv, 1)
    else:
        sections = 3 if groups == heads else (size, groups * width, groups * width)
        qkv = Linear(size, size + 2 * groups * width, **options, name="qkv")(x)
        qkv = Split(-1, sections, name="parts").node(qkv)
        q, k, v = (qkv, 0), (qkv, 1), (qkv, 2)
    counts = ((q, heads, "Q"), (k, groups, "K"), (v, groups, "V"))
    q, k, v = (splitHeads(h, count, width, part) for h, count, part in counts)
    if rotary is not None:
        q, k = (Rotary(rotary, name=f"rotated{part}")(h) for h, part in ((q, "Q"), (k, "K")))
    attention = Attention(causal, window=window, cap=cap, name="attention")
    if masked:
        mask = Input(name="mask").node()
        inputs.append(mask)
        h = attention.node(q, k, v, mask=mask)
    else:
        h = attention.node(q, k, v)
    return Graph(inputs, Linear(size, size, **options, name="out")(mergeHeads(h, size)), name=name)


def splitHeads(h, heads, width, part):
    """(n, t, heads width) as (n, heads, t, width)."""
    h = Reshape((0, 0, heads, width), name=f"split{part}")(h)
    return Transpose((0, 2, 1, 3), name=f"heads{part}")(h)


def mergeHeads(h, size):
    """(n, heads, t, width) as (n, t, size)."""
    return Reshape((0, 0, size), name="join")(Transpose((0, 2, 1, 3), name="positions")(h))


def normal(start):
    """The options of a Linear with normal initial values of this deviation; None: as usual."""
    return {} if start is None else {"initscheme": "gaussian", "wscale": start}


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
    inner = inner or 4 * size
    options = normal(start)
    x = Input(name="x").node()
    mixed = multiHeadAttention(size, heads, causal, start=start, name="attn").node(
        LayerNorm(size, epsilon, name="norm1")(x)
    )
    h = x + (Dropout(dropout, name="drop1")(mixed) if dropout else mixed)
    network = Sequential(
        Linear(size, inner, **options, name="fc1"),
        Gelu(approximate, name="gelu"),
        Linear(inner, size, **options, name="fc2"),
        name="mlp",
    )
    y = network.node(LayerNorm(size, epsilon, name="norm2")(h))
    return Graph(x, h + (Dropout(dropout, name="drop2")(y) if dropout else y), name=name)


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
