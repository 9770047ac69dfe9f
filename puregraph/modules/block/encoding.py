"""TransformerEncoder: layers of self-attention and a position-wise network, each with a residual connection."""

from puregraph.core.arguments import Count, Flag, Positive, Probability, choice, takes
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.sequential import Sequential
from puregraph.modules.activation import Gelu, QuickGelu, Relu, SquaredRelu, Swish
from puregraph.modules.block.blockname import blockNamed
from puregraph.modules.block.multihead import MultiHeadAttention, normal
from puregraph.modules.dropout import Dropout
from puregraph.modules.gated import GeGLU, ReGLU, SwiGLU
from puregraph.modules.linear import Linear
from puregraph.modules.normalization import LayerNorm

ACTIVATIONS = {
    "relu": lambda: Relu(name="relu"),
    "gelu": lambda: Gelu(name="gelu"),
    "tanhgelu": lambda: Gelu(approximate=True, name="gelu"),
    "quickgelu": lambda: QuickGelu(name="gelu"),
    "silu": lambda: Swish(name="swish"),
    "squaredrelu": lambda: SquaredRelu(name="relu"),
}
GATES = {"geglu": GeGLU, "reglu": ReGLU, "swiglu": SwiGLU}  # whose first Linear is twice as wide
KINDS = {
    "size": Count,
    "heads": Count,
    "inner": Count | None,
    "dropout": Probability,
    "activation": choice(*ACTIVATIONS, *GATES),
    "normFirst": Flag,
    "causal": Flag,
    "masked": Flag,
    "lengths": Flag,
    "epsilon": Positive,
    "useBias": Flag,
    "start": Positive | None,
    "groups": Count | None,
    "rotary": Positive | None,
    "alibi": Flag,
    "attentionDropout": Probability,
}


class _LayerParts:
    """The parts that a layer of an encoder and one of a decoder have in common."""

    def __init__(self, size, dropout, epsilon, normFirst, useBias, start):
        self.size, self.dropout, self.epsilon, self.normFirst = size, dropout, epsilon, normFirst
        self.useBias, self.start = useBias, start

    def norm(self, number):
        return LayerNorm(self.size, self.epsilon, useBias=self.useBias, name=f"norm{number}")

    def added(self, x, part, number):
        """Return x + part(norm(x)), or norm(x + part(x)), with dropout of the part's result."""
        y = part(self.norm(number)(x) if self.normFirst else x)
        y = x + (Dropout(self.dropout, name=f"drop{number}")(y) if self.dropout else y)
        return y if self.normFirst else self.norm(number)(y)

    def network(self, inner, activation, inside):
        """Return two Linear layers with an activation, or a gate, between them."""
        options = normal(self.start) | {"useBias": self.useBias}
        isGated = activation in GATES
        middle = GATES[activation](name="gate") if isGated else ACTIVATIONS[activation]()
        return Sequential(
            Linear(self.size, inner * (1 + isGated), **options, name="fc1"),
            middle,
            *([Dropout(inside, name="drop")] if inside else []),
            Linear(inner, self.size, **options, name="fc2"),
            name="mlp",
        )


@blockNamed
@takes(**KINDS)
def TransformerEncoderLayer(
    size,
    heads,
    inner=None,
    dropout=0.0,
    activation="relu",
    normFirst=False,
    causal=False,
    masked=False,
    lengths=False,
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
    """Self-attention, then a position-wise network, each with a residual connection and a norm.

    y = norm2(h + network(h)), h = norm1(x + attention(x)); with `normFirst` y = h + network(norm2(h)),
    h = x + attention(norm1(x)).

    `inner` is the width of the network, 4 size by default. `activation` is "relu", "gelu", "tanhgelu", "quickgelu",
    "silu" or "squaredrelu", or a gate: "geglu", "reglu" or "swiglu". `dropout` is the probability of dropping an
    element of the attention's and the network's result; `innerDropout`, equal to it by default, that of the network's
    inner values; `attentionDropout` that of attention's weights, which torch sets to `dropout`. `masked`, `lengths`,
    `causal`, `groups`, `rotary`, `alibi` and `start` are those of `MultiHeadAttention`.

    Shapes    x (n, t, size) (, mask that broadcasts to (n, heads, t, t)) (, lengths (n,)) -> (n, t, size)
    Source    Vaswani et al. 2017, arXiv:1706.03762, section 3; norms first: Xiong et al. 2020, arXiv:2002.04745
    Params    12 size^2 + 13 size with an inner width of 4 size
    Raises    ValueError if the heads do not divide the size; ArgumentError for an unknown activation

    >>> TransformerEncoderLayer(64, heads=4, lengths=True).dataShapeFrom(("N", "T", 64), ("N",))
    ('N', 'T', 64)
    """
    parts = _LayerParts(size, dropout, epsilon, normFirst, useBias, start)
    extra = {label: Input(name=label).node() for label, isUsed in (("mask", masked), ("lengths", lengths)) if isUsed}
    options = {"start": start, "groups": groups, "rotary": rotary, "alibi": alibi, "lengths": lengths}
    options["dropout"] = attentionDropout
    attention = MultiHeadAttention(size, heads, causal, masked=masked, useBias=useBias, name="attn", **options)
    x = Input(name="x").node()
    h = parts.added(x, lambda h: attention.node(h, *extra.values()), 1)
    inside = dropout if innerDropout is None else innerDropout
    return Graph(
        [x, *extra.values()], parts.added(h, parts.network(inner or 4 * size, activation, inside).node, 2), name=name
    )


@blockNamed
@takes(layers=Count, **KINDS)
def TransformerEncoder(layers, size, heads, *, norm=None, name=None, **options):
    """Layers one after another, `TransformerEncoderLayer`s of the same options, and a last norm.

    The last norm is there with `normFirst`, unless `norm` says otherwise. All layers share the mask and the lengths.

    Shapes    x (n, t, size) (, mask that broadcasts to (n, heads, t, t)) (, lengths (n,)) -> (n, t, size)
    Source    Vaswani et al. 2017, arXiv:1706.03762, figure 1, the left half
    Raises    as `TransformerEncoderLayer`

    >>> TransformerEncoder(2, 64, heads=4, masked=True).dataShapeFrom(("N", 7, 64), (7, 7))
    ('N', 7, 64)
    """
    return stack(TransformerEncoderLayer, layers, size, heads, norm, name, options)


def stack(make, layers, size, heads, norm, name, options):
    """A Graph of layers whose first input is the result of the layer before; they share all other inputs."""
    made = [make(size, heads, name=f"block{i + 1}", **options) for i in range(layers)]
    x, *extra = nodes = [Input(name=label).node() for label in made[0].arguments]
    for layer in made:
        x = layer.node(x, *extra)
    if options.get("normFirst", False) if norm is None else norm:
        epsilon, useBias = options.get("epsilon", 1e-5), options.get("useBias", True)
        x = LayerNorm(size, epsilon, useBias=useBias, name="norm")(x)
    return Graph(nodes, x, name=name)
