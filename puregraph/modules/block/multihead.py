"""MultiHeadAttention: attention of several heads with its projections."""

from typing import Any

from puregraph.core.arguments import Count, Flag, Positive, Probability, takes
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules.arithmetic import Add
from puregraph.modules.attention import Attention
from puregraph.modules.block.blockname import blockNamed
from puregraph.modules.block.relative import alibiBias
from puregraph.modules.joining import Split
from puregraph.modules.linear import Linear
from puregraph.modules.reshaping import Reshape, Transpose
from puregraph.modules.rotary import Rotary


@blockNamed
@takes(
    size=Count,
    heads=Count,
    causal=Flag,
    cross=Flag,
    masked=Flag,
    useBias=Flag,
    groups=Count | None,
    rotary=Positive | None,
    width=Count | None,
    keysize=Count | None,
    valuesize=Count | None,
    packed=Flag,
    alibi=Flag,
    lengths=Flag,
    dropout=Probability,
    sinks=Flag,
)
def MultiHeadAttention(
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
    width=None,
    keysize=None,
    valuesize=None,
    packed=True,
    scale=None,
    alibi=False,
    lengths=False,
    dropout=0.0,
    sinks=False,
):
    """Attention of several heads: q, k and v by Linear layers, `Attention`, and a Linear for all heads together.

    With `cross` the keys and values come from a second input of size `keysize`. With `valuesize` the values come from
    a third one of that size. `masked` adds an input with the mask: bools that hide where they are False, or floats
    that are added. `lengths` adds a last input with the number of keys of each sample; later keys are hidden.

    `groups` is the number of heads of keys and values, `heads` by default. `width` is the size of a head,
    size / heads by default. `rotary` is the theta of rotated queries and keys (`Rotary`). `alibi` adds a bias to the
    scores that falls with the distance of query and key (`alibiBias`). `scale`, `window`, `cap` and `dropout` are
    those of `Attention`, and `sinks` gives a sink to each head. `start` is the deviation of normal initial values, in
    place of xavier's. One Linear makes q, k and v, or, with `cross`, k and v; without `packed` there is a Linear for
    each.

    Shapes    x (n, t, size) (, memory (n, s, keysize)) (, values (n, s, valuesize))
              (, mask that broadcasts to (n, heads, t, s)) (, lengths (n,)) -> (n, t, size)
    Source    Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2; groups: Ainslie et al. 2023, arXiv:2305.13245
    Params    4 size (size + 1), or 4 size^2 without bias; less with `groups`
    Raises    ValueError if the heads do not divide the size, or the groups the heads, if keysize or valuesize has no
              `cross`, and for rotary or alibi cross-attention

    >>> net = MultiHeadAttention(64, heads=4, cross=True)
    >>> net.dataShapeFrom(("N", 10, 64), ("N", 7, 64))                # ten vectors that look at seven
    ('N', 10, 64)
    """
    groups, width = groups or heads, width or headWidth(size, heads)
    refuseMisfits(heads, groups, cross, {"rotary": rotary, "alibi": alibi or None}, keysize, valuesize)
    options = normal(start) | {"useBias": useBias}
    x = Input(name="x").node()
    memory = Input(name="memory").node() if cross else x
    values = memory if valuesize is None else Input(name="values").node()
    insizes = (size, keysize or size, valuesize or keysize or size)
    outsizes = (heads * width, groups * width, groups * width)
    h = projections((x, memory, values), insizes, outsizes, options, packed and (cross, valuesize is not None))
    counts = zip(h, (heads, groups, groups), "QKV")
    q, k, v = (splitHeads(part, count, width, label) for part, count, label in counts)
    if rotary is not None:
        q, k = (Rotary(rotary, name=f"rotated{part}")(h) for h, part in ((q, "Q"), (k, "K")))
    mask = Input(name="mask").node() if masked else None
    ends = Input(name="lengths").node() if lengths else None
    bias = mask
    if alibi:
        bias = alibiBias(x, heads, "alibi")
        bias = bias if mask is None else Add(name="bias")(bias, mask)
    extras: dict[str, Any] = {label: h for label, h in (("mask", bias), ("lengths", ends)) if h is not None}
    limits = {"window": window, "cap": cap, "dropout": dropout, "sinks": heads if sinks else None}
    h = Attention(causal, scale, **limits, name="attention").node(q, k, v, **extras)
    inputs = [x, memory, values, mask, ends]
    y = Linear(heads * width, size, **options, name="out")(mergeHeads(h, heads * width))
    return Graph(list(dict.fromkeys(h for h in inputs if h is not None)), y, name=name)


def headWidth(size, heads):
    """Return size / heads; refuse a remainder."""
    if size % heads:
        raise ValueError(f"MultiHeadAttention: wanted heads that divide the size {size}, got {heads}")
    return size // heads


def refuseMisfits(heads, groups, cross, positions, keysize, valuesize):
    """Raise a ValueError for options that do not fit each other."""
    if heads % groups:
        raise ValueError(f"MultiHeadAttention: wanted groups that divide the {heads} heads, got {groups}")
    for option, value in positions.items():
        if value is not None and cross:
            raise ValueError(f"MultiHeadAttention: {option} is for self-attention, got cross=True")
    for option, value in (("keysize", keysize), ("valuesize", valuesize)):
        if value is not None and not cross:
            raise ValueError(f"MultiHeadAttention: {option} is for cross-attention, got cross=False")


def projections(nodes, insizes, outsizes, options, packing):
    """Return q, k and v by one Linear (qkv), by two (q, kv), or by three.

    `packing` is (keys have an input of their own, values have one), or False.
    """

    def linear(label, *parts):
        outsize = sum(outsizes[i] for i in parts)
        return Linear(insizes[parts[0]], outsize, **options, name=label)(nodes[parts[0]])

    if not packing or packing[1]:
        return [linear(label, i) for i, label in enumerate("qkv")]
    if packing[0]:
        kv = Split(-1, 2, name="parts").node(linear("kv", 1, 2))
        return [linear("q", 0), (kv, 0), (kv, 1)]
    sections = 3 if outsizes[0] == outsizes[1] else outsizes
    qkv = Split(-1, sections, name="parts").node(linear("qkv", 0, 1, 2))
    return [(qkv, i) for i in range(3)]


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
