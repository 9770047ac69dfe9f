"""GPT: a transformer that predicts the next token."""

from puregraph.core.arguments import takes
from puregraph.core.initial import Normal
from puregraph.graph.sequential import Sequential
from puregraph.models.transformer import transformerBlock
from puregraph.modules import Dropout, Embedder, LayerNorm, Linear, Position

SIZES = {"gpt2": (12, 12, 768), "gpt2medium": (24, 16, 1024), "gpt2large": (36, 20, 1280), "gpt2xl": (48, 25, 1600)}


@takes()
def gpt(vocabulary=256, length=256, layers=6, heads=6, size=384, dropout=0.0, name="gpt"):
    """Token and position embeddings, causal blocks, a last norm, and scores of the next token at each position.

    The scores are products with the token embeddings: the output layer and the embedder share one array.
    They are on the last axis: train with `CrossEntropy(axis=-1)`, and `Accuracy(axis=-1)`. `generate(net, ids)` of
    puregraph writes tokens behind others.

    Shapes    x (n, t) integers below `vocabulary`, t <= length -> (n, t, vocabulary)
    Source    Radford et al. 2019, Language Models are Unsupervised Multitask Learners, section 2.3; the shared array:
              Press, Wolf 2017, arXiv:1608.05859
    Params    10,844,160 for 6 layers of 384 and 256 bytes as tokens

    >>> net = gpt(vocabulary=128, length=16, layers=2, heads=2, size=32)
    >>> net.dataShapeFrom(("N", 16))
    ('N', 16, 128)
    """
    words = Embedder(vocabulary, size, initscheme="gaussian", wscale=0.02, name="words")
    scores = Linear(size, vocabulary, useBias=False, transpose=True, name="scores")
    scores.W = words.W
    return Sequential(
        words,
        Position(length, size, name="places"),
        *([Dropout(dropout, name="drop")] if dropout else []),
        *(causalBlock(size, heads, layers, dropout, f"block{i + 1}") for i in range(layers)),
        LayerNorm(size, name="norm"),
        scores,
        name=name,
    )


def causalBlock(size, heads, layers, dropout, name):
    """A block with GPT-2's initial values: the more layers there are, the smaller is what it adds."""
    found = transformerBlock(size, heads, causal=True, dropout=dropout, approximate=True, start=0.02, name=name)
    for last in ("attn.out", "mlp.fc2"):
        found[last].W.initial = Normal(0.02 * (2 * layers) ** -0.5)
    return found


@takes()
def gpt2(size="gpt2", dropout=0.1, name=None):
    """`gpt` with the sizes of GPT-2: 50,257 tokens, 1,024 positions.

    Source    Radford et al. 2019, table 2
    Params    124,439,808 (gpt2), 354,823,168 (gpt2medium), 774,030,080 (gpt2large), 1,557,611,200 (gpt2xl)
    Raises    ValueError for a size that the paper does not have

    >>> gpt2().dataShapeFrom(("N", 64))                               # nothing is allocated
    ('N', 64, 50257)
    """
    if size not in SIZES:
        raise ValueError(f"gpt2: wanted a size of {', '.join(SIZES)}, got {size!r}")
    layers, heads, width = SIZES[size]
    return gpt(50257, 1024, layers, heads, width, dropout, name=name or size)
