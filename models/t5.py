"""T5: an encoder that reads a text, and a decoder that writes another one."""

from puregraph.core.arguments import Count, takes
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules import Cast, Embedder, Gelu, Linear, Mul, MulAddConst, Relu, Reshape, RmsNorm
from puregraph.modules.block import MultiHeadAttention, relativeBias
from puregraph.modules.block.multihead import normal

PADDING_SCORE = -1e9  # what is added to the scores of padding


@takes(vocabulary=Count, layers=Count, heads=Count, size=Count, inner=Count, width=Count, buckets=Count, far=Count)
def t5(
    vocabulary=32128,
    layers=6,
    heads=8,
    size=512,
    inner=2048,
    width=64,
    gated=False,
    tied=True,
    buckets=32,
    far=128,
    epsilon=1e-6,
    name="t5",
):
    """An encoder and a decoder whose attention knows positions by biases of relative distances, in `buckets`.

    By default the small one; `width` is that of a head, `far` the distance from which on all are alike. `gated` and
    untied are the sizes of version 1.1. `mask` is 1 or True for tokens of the text, and 0 for padding.

    Shapes    ids (n, t) and targets (n, s), integers below `vocabulary`, mask (n, t) -> (n, s, vocabulary)
    Source    Raffel et al. 2019, arXiv:1910.10683, section 2.1; gated: Shazeer 2020, arXiv:2002.05202
    Params    60,506,624 by default

    >>> t5(layers=1, heads=2, size=32, inner=64, width=16).dataShapeFrom(("N", "T"), ("N", "T"), ("N", "S"))
    ('N', 'S', 32128)
    """
    ids, mask, targets = (Input(name=label).node() for label in ("ids", "mask", "targets"))
    words = Embedder(vocabulary, size, initscheme="gaussian", wscale=1.0, name="words")
    options = (heads, size, inner, width, gated, epsilon)
    seen = Reshape((0, 1, 1, -1), name="seen")(Cast("bool", name="isToken")(mask))
    hidden = Reshape((0, 1, 1, -1), name="hidden")(
        MulAddConst(-PADDING_SCORE, PADDING_SCORE, name="penalty")(Cast("float32", name="tokens")(mask))
    )
    bias = relativeBias(ids, heads, buckets, far, True, "encoder") + hidden
    h = words.node(ids)
    for i in range(layers):
        h = t5Block(*options, False, f"encoder{i + 1}").node(h, bias)
    memory = RmsNorm(size, epsilon, name="encodernorm")(h)
    bias = relativeBias(targets, heads, buckets, far, False, "decoder")
    h = words.node(targets)
    for i in range(layers):
        h = t5Block(*options, True, f"decoder{i + 1}").node(h, bias, memory, seen)
    h = RmsNorm(size, epsilon, name="decodernorm")(h)
    scores = Linear(size, vocabulary, useBias=False, transpose=tied, name="scores", **normal(size**-0.5))
    if tied:
        scores.W = words.W
        h = MulAddConst(size**-0.5, name="scaled")(h)
    return Graph([ids, mask, targets], scores(h), name=name)


def t5Block(heads, size, inner, width, gated, epsilon, decodes, name):
    """x + attention(norm(x)), in the decoder attention to the memory as well, then a network."""
    x, bias = Input(name="x").node(), Input(name="bias").node()
    inputs = [x, bias]
    options = {"masked": True, "useBias": False, "start": 0.05, "width": width, "packed": False, "scale": 1.0}
    attention = MultiHeadAttention(size, heads, decodes, name="attn", **options)
    h = x + attention.node(RmsNorm(size, epsilon, name="norm1")(x), bias)
    if decodes:
        memory, seen = Input(name="memory").node(), Input(name="seen").node()
        inputs += [memory, seen]
        n = RmsNorm(size, epsilon, name="norm2")(h)
        h = h + MultiHeadAttention(size, heads, cross=True, name="cross", **options).node(n, memory, seen)
    n = RmsNorm(size, epsilon, name="norm3")(h)

    def linear(insize, outsize, label):
        return Linear(insize, outsize, useBias=False, name=label, **normal(insize**-0.5))

    if gated:
        inside = Mul(name="gated")(
            Gelu(approximate=True, name="gelu")(linear(size, inner, "gate")(n)), linear(size, inner, "up")(n)
        )
    else:
        inside = Relu(name="relu")(linear(size, inner, "up")(n))
    return Graph(inputs, h + linear(inner, size, "down")(inside), name=name)
