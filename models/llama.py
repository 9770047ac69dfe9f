"""Llama: a transformer that predicts the next token, with rotated queries and keys."""

from puregraph.core.arguments import Count, takes
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules import (
    Attention,
    Embedder,
    Linear,
    Mul,
    RmsNorm,
    Rotary,
    Swish,
)
from puregraph.modules.block.multihead import mergeHeads, normal, splitHeads


@takes(vocabulary=Count, layers=Count, heads=Count, size=Count, inner=Count)
def llama(
    vocabulary=32000,
    layers=32,
    heads=32,
    size=4096,
    inner=11008,
    groups=None,
    theta=10000.0,
    tied=False,
    epsilon=1e-6,
    name="llama",
):
    """Token embeddings, causal blocks with rotary positions and gated networks, a last norm, and scores of next tokens.

    `groups` is the number of heads of keys and values, as many as of queries unless given; `theta` the base of the
    rotation; with `tied`, the scores are products with the token embeddings.

    Shapes    ids (n, t) integers below `vocabulary` -> (n, t, vocabulary)
    Source    Touvron et al. 2023, arXiv:2302.13971, section 2.2; rotation: Su et al. 2021, arXiv:2104.09864, eq. 34;
              the network: Shazeer 2020, arXiv:2002.05202, SwiGLU; groups: Ainslie et al. 2023, arXiv:2305.13245
    Params    6,738,415,616 for the sizes of Llama 7B
    Raises    ValueError if the heads do not divide the size, into an even number, or the groups the heads

    >>> llama(vocabulary=128, layers=2, heads=4, size=64, inner=96, groups=2).dataShapeFrom(("N", "T"))
    ('N', 'T', 128)
    """
    groups = groups or heads
    if size % (2 * heads) or heads % groups:
        raise ValueError(
            f"llama: wanted heads that divide the size {size} into even parts, and groups that divide the heads, got "
            f"{heads} heads, {groups} groups"
        )
    ids = Input(name="ids").node()
    words = Embedder(vocabulary, size, initscheme="gaussian", wscale=0.02, name="words")
    scores = Linear(size, vocabulary, useBias=False, transpose=tied, name="scores", **normal(0.02))
    if tied:
        scores.W = words.W
    h = words(ids)
    for i in range(layers):
        h = gatedBlock(size, heads, groups, inner, theta, epsilon, f"block{i + 1}").node(h)
    return Graph(ids, scores(RmsNorm(size, epsilon, name="norm")(h)), name=name)


def gatedBlock(size, heads, groups, inner, theta, epsilon, name):
    """x + attention(norm(x)), then h + network(norm(h)), normalised by root mean squares."""
    x = Input(name="x").node()
    width = size // heads

    def linear(outsize, label, insize=size):
        return Linear(insize, outsize, useBias=False, name=label, **normal(0.02))

    n = RmsNorm(size, epsilon, name="norm1")(x)
    q, k, v = (
        splitHeads(linear(count * width, label)(n), count, width, label.upper())
        for count, label in ((heads, "q"), (groups, "k"), (groups, "v"))
    )
    q, k = (Rotary(theta, name=f"rotated{label}")(part) for part, label in ((q, "Q"), (k, "K")))
    mixed = linear(size, "out")(mergeHeads(Attention(causal=True, name="attention").node(q, k, v), size))
    h = x + mixed
    n = RmsNorm(size, epsilon, name="norm2")(h)
    gate = Mul(name="gated")(Swish(name="swish")(linear(inner, "gate")(n)), linear(inner, "up")(n))
    return Graph(x, h + linear(size, "down", inner)(gate), name=name)
