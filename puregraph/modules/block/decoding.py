"""TransformerDecoder: self-attention, attention to a memory, and a network; Transformer: encoder and decoder."""

from puregraph.core.arguments import Count, Flag, takes
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules.block.blockname import blockNamed
from puregraph.modules.block.encoding import KINDS, TransformerEncoder, _LayerParts, stack
from puregraph.modules.block.multihead import MultiHeadAttention

DECODING = {**KINDS, "memoryMasked": Flag, "memoryLengths": Flag}


@blockNamed
@takes(**DECODING)
def TransformerDecoderLayer(
    size,
    heads,
    inner=None,
    dropout=0.0,
    activation="relu",
    normFirst=False,
    causal=False,
    masked=False,
    memoryMasked=False,
    lengths=False,
    memoryLengths=False,
    epsilon=1e-5,
    useBias=True,
    start=None,
    groups=None,
    rotary=None,
    alibi=False,
    innerDropout=None,
    attentionDropout=0.0,
    name=None,
):
    """Self-attention, attention to a memory, then a network, each with a residual connection and a norm.

    `memoryMasked` and `memoryLengths` add inputs with the mask and the lengths of the memory. The other options are
    those of `TransformerEncoderLayer`. `causal` is of the self-attention; rotary and alibi positions are, too.

    Shapes    x (n, t, size), memory (n, s, size) (, mask to (n, heads, t, t)) (, memoryMask to (n, heads, t, s))
              (, lengths (n,)) (, memoryLengths (n,)) -> (n, t, size)
    Source    Vaswani et al. 2017, arXiv:1706.03762, section 3; norms first: Xiong et al. 2020, arXiv:2002.04745
    Raises    as `TransformerEncoderLayer`

    >>> TransformerDecoderLayer(64, heads=4, causal=True).dataShapeFrom(("N", "T", 64), ("N", "S", 64))
    ('N', 'T', 64)
    """
    parts = _LayerParts(size, dropout, epsilon, normFirst, useBias, start)
    labels = {"mask": masked, "memoryMask": memoryMasked, "lengths": lengths, "memoryLengths": memoryLengths}
    extra = {label: Input(name=label).node() for label, isUsed in labels.items() if isUsed}

    def attention(label, mask, ends, **options):
        used = [extra[n] for n in (mask, ends) if n in extra]
        both = {"masked": mask in extra, "lengths": ends in extra, "useBias": useBias, "start": start, "groups": groups}
        both["dropout"] = attentionDropout
        made = MultiHeadAttention(size, heads, name=label, **both, **options)
        return lambda *h: made.node(*h, *used)

    selfAttention = attention("attn", "mask", "lengths", causal=causal, rotary=rotary, alibi=alibi)
    cross = attention("cross", "memoryMask", "memoryLengths", cross=True)
    x, memory = Input(name="x").node(), Input(name="memory").node()
    h = parts.added(x, selfAttention, 1)
    h = parts.added(h, lambda h: cross(h, memory), 2)
    inside = dropout if innerDropout is None else innerDropout
    y = parts.added(h, parts.network(inner or 4 * size, activation, inside).node, 3)
    return Graph([x, memory, *extra.values()], y, name=name)


@blockNamed
@takes(layers=Count, **DECODING)
def TransformerDecoder(layers, size, heads, *, norm=None, name=None, **options):
    """Layers one after another, `TransformerDecoderLayer`s of the same options, and a last norm.

    The last norm is there with `normFirst`, unless `norm` says otherwise. All layers share the memory, masks and
    lengths.

    Shapes    as `TransformerDecoderLayer`
    Source    Vaswani et al. 2017, arXiv:1706.03762, figure 1, the right half
    Raises    as `TransformerEncoderLayer`

    >>> TransformerDecoder(2, 64, heads=4, causal=True).dataShapeFrom(("N", "T", 64), ("N", "S", 64))
    ('N', 'T', 64)
    """
    return stack(TransformerDecoderLayer, layers, size, heads, norm, name, options)


@blockNamed
@takes(encoderLayers=Count, decoderLayers=Count, sourceMasked=Flag, sourceLengths=Flag, **DECODING)
def Transformer(
    size,
    heads,
    encoderLayers=6,
    decoderLayers=6,
    inner=None,
    *,
    causal=True,
    sourceMasked=False,
    masked=False,
    memoryMasked=False,
    sourceLengths=False,
    lengths=False,
    memoryLengths=None,
    name=None,
    **options,
):
    """An encoder of a source, and a decoder of a target whose layers attend to the encoder's result.

    `causal` is of the decoder's self-attention. `sourceLengths` is the number of tokens of each source; the decoder
    uses it as well unless `memoryLengths=False`. Both stacks end with a norm. The other options are those of
    `TransformerDecoderLayer`.

    Shapes    source (n, s, size), target (n, t, size) (, sourceMask to (n, heads, s, s)) (, mask to (n, heads, t, t))
              (, memoryMask to (n, heads, t, s)) (, sourceLengths (n,)) (, lengths (n,)) -> (n, t, size)
    Source    Vaswani et al. 2017, arXiv:1706.03762, figure 1
    Raises    as `TransformerEncoderLayer`

    >>> Transformer(64, 4, 2, 2).dataShapeFrom(("N", "S", 64), ("N", "T", 64))
    ('N', 'T', 64)
    """
    options["inner"] = inner
    seesLengths = sourceLengths if memoryLengths is None else memoryLengths
    encoder = TransformerEncoder(
        encoderLayers, size, heads, masked=sourceMasked, lengths=sourceLengths, norm=True, name="encoder", **options
    )
    decoding = {"causal": causal, "masked": masked, "memoryMasked": memoryMasked, "lengths": lengths}
    decoder = TransformerDecoder(
        decoderLayers, size, heads, memoryLengths=seesLengths, norm=True, name="decoder", **decoding, **options
    )
    labels = [
        "source",
        "target",
        *(
            n
            for n, isUsed in (
                ("sourceMask", sourceMasked),
                ("mask", masked),
                ("memoryMask", memoryMasked),
                ("sourceLengths", sourceLengths),
                ("lengths", lengths),
            )
            if isUsed
        ),
    ]
    nodes = {label: Input(name=label).node() for label in labels}
    memory = encoder.node(nodes["source"], *(nodes[n] for n in ("sourceMask", "sourceLengths") if n in nodes))
    passed = {"memory": memory, "memoryLengths": nodes.get("sourceLengths"), **nodes}
    y = decoder.node(nodes["target"], *(passed[label] for label in decoder.arguments[1:]))
    return Graph(list(nodes.values()), y, name=name)
