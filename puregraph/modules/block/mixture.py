"""MoE: experts, of which a router chooses some for each row."""

from typing import Any

from puregraph.core import initial
from puregraph.core.arguments import Count, NotNegative, choice, takes
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.arithmetic import Add, Mul
from puregraph.modules.block.blockname import blockNamed
from puregraph.modules.block.encoding import ACTIVATIONS
from puregraph.modules.comparison import Where
from puregraph.modules.constant import Constant, Weight
from puregraph.modules.cumulative import CumSum
from puregraph.modules.gathering import Gather, GatherElements
from puregraph.modules.identity import Cast
from puregraph.modules.joining import Concat, Split
from puregraph.modules.linear import Linear
from puregraph.modules.normreduction import LogSumExp
from puregraph.modules.penalty import Penalty
from puregraph.modules.product import GroupedMatMul, MatMul
from puregraph.modules.reduction import Sum
from puregraph.modules.reshaping import Reshape, Transpose
from puregraph.modules.scattering import ScatterElements
from puregraph.modules.selection import OneHot, TopKValues
from puregraph.modules.slice import Slice


@blockNamed
@takes(
    size=Count,
    experts=Count,
    k=Count,
    inner=Count,
    capacity=Count | None,
    activation=choice(*ACTIVATIONS),
    balance=NotNegative,
    zCost=NotNegative,
    block=Count,
)
def MoE(size, experts, k, inner, capacity=None, activation="relu", balance=0.01, zCost=0.0, block=64, name=None):
    """y = sum over the k most probable experts e of p_e / (sum of the k p) (W2_e activation(W1_e x + b1_e) + b2_e)

    p = softmax(router(x)). With a `capacity` an expert takes at most that number of rows: first choices before
    second ones, in the order of the rows. A choice beyond it is dropped: it adds nothing. Products and memory are
    those of experts * capacity rows.

    Without one, nothing is dropped: choices are sorted by expert, those of one expert padded to a multiple of `block`
    rows, and each block is multiplied by the weights of its expert (`GroupedMatMul`). Sizes must not depend on data,
    so products and memory are those of the largest number of blocks, ceil(n k / block) + experts - 1: a larger `block`
    pads more, a smaller one packs the weights more often.

    `balance` is the weight of experts * sum_e f_e mean(p_e), f_e the fraction of choices of e, and `zCost` that of
    mean(logsumexp(router(x))^2). Both are added to the cost of the network as by `Penalty`.

    Shapes    x (n, size) -> y as x
    Source    Fedus et al. 2021, arXiv:2101.03961, eq. 4; z-cost: Zoph et al. 2022, arXiv:2202.08906, eq. 5; blocks:
              Gale et al. 2022, arXiv:2211.15841, section 5
    Raises    ValueError if k exceeds the number of experts

    >>> MoE(8, experts=4, k=2, inner=16).dataShapeFrom(("N", 8))
    ('N', 8)
    """
    if k > experts:
        raise ValueError(f"MoE: wanted k of at most the {experts} experts, got {k}")
    x = Input(name="x").node()
    gates, chosen = routed(x, size, experts, k, balance, zCost)
    if capacity is None:
        slots, rows, groups = blocksOf(chosen, experts, block)
    else:
        slots, rows = slotsOf(chosen, experts, capacity)
        groups = None
    h = Gather(name="dispatch").node(x, rows)
    h = mapped(h, "fc1", (experts, size, inner), groups)
    h = mapped(ACTIVATIONS[activation]()(h), "fc2", (experts, inner, size), groups)
    h = Gather(name="combine").node(Reshape((-1, size), name="results")(h), slots)
    gates = Reshape((k, -1, 1), name="weights")(Transpose((1, 0), name="byChoice")(gates))
    h = Mul(name="weighted").node(Reshape((k, -1, size), name="choices")(h), gates)
    return Graph(x, Sum(axis=0, name="sum")(h), name=name)


def mapped(x, name, shape, groups):
    """Return x[g] W[e] + b[e], e = g, or expertOf[g] with `groups` (counts of blocks, expertOf).

    `shape` is that of W.
    """
    experts, insize, outsize = shape
    weights, biases = Weight(shape, name=name), Weight((experts, 1, outsize), name=f"{name}b")
    weights.W.initial = initial.weights(None, insize, outsize, 1.0)
    W, b = weights.node(), biases.node()
    if groups is None:
        return Add(name=f"{name}y").node(b, MatMul(name=f"{name}x").node(x, W))
    counts, expertOf = groups
    b = Gather(name=f"{name}bOf").node(b, expertOf)  # before the product, so that it can be added in its epilogue
    return Add(name=f"{name}y").node(b, GroupedMatMul(name=f"{name}x").node(x, W, counts))


def routed(x, size, experts, k, balance, zCost):
    """Return the gates (n, k), whose sum is 1, and the chosen experts (k, n)."""
    logits = Linear(size, experts, useBias=False, name="router")(x)
    peak = LogSumExp(axis=1, keepdims=True, name="logsum")(logits)
    if zCost:
        peak = Penalty(zCost, "x ** 2", name="zCost")(peak)
    p = Pointwise(formula="exp(x - y)", name="p").node(logits, peak)
    top = TopKValues(k, name="top").node(p)
    values: Any = (top, 0)
    numbers = (top, 1)
    if balance:
        values = GatherElements(axis=1, name="topValues").node(balanced(p, numbers, experts, balance), numbers)
    total = Sum(axis=1, keepdims=True, name="total")(values)
    gates = Pointwise(formula="x / y", name="gates").node(values, total)
    return gates, Transpose((1, 0), name="chosen")(numbers)


def balanced(p, numbers, experts, balance):
    """Return p, with the balance cost of the chosen experts added to the network's.

    The next node must read the penalty's result: it is p next to p (f - 1), whose sum is that of p f.
    """
    chosen = OneHot(experts, name="isChosen")(numbers)
    counts = Sum(axis=(0, 1), name="counts")(chosen)
    total = Sum(axis=0, keepdims=True, name="allChoices")(counts)
    rest = Pointwise(formula="x * (y / maximum(z, 1) - 1)", name="rest").node(p, counts, total)  # a batch may be empty
    both = Penalty(balance * experts, "x", name="balance")(Concat(1, name="both").node(p, rest))
    return (Split(1, 2, name="split").node(both), 0)


def ordered(chosen, experts):
    """Return the experts of the choices (k n) in order, as numbers and as rows of ones; the count of earlier choices of
    the same expert, and the number of the row of x.
    """
    isChosen = OneHot(experts, "int64", name="expert")(chosen)
    ones = Sum(axis=2, name="ones")(isChosen)
    numbers = Reshape((-1,), name="row")(CumSum(1, exclusive=True, name="number")(ones))
    isChosen = Reshape((-1, experts), name="inOrder")(isChosen)
    before = CumSum(0, exclusive=True, name="before")(isChosen)
    position = Sum(axis=1, name="position")(Mul(name="earlier").node(before, isChosen))
    return Reshape((-1,), name="expertOf")(chosen), isChosen, position, numbers


def slotsOf(chosen, experts, capacity):
    """Return for each choice (k n) its slot, -1 if it is dropped, and the row of x in each slot, -1 if none."""
    chosen, _, position, numbers = ordered(chosen, experts)
    slot = chosen * capacity + position
    slots = Where(name="slot").node(position < capacity, slot, Constant(-1, dtype="int64", name="dropped").node())
    empty = Constant(
        [-1] * (experts * capacity + 1), dtype="int64", name="empty"
    ).node()  # its last is for dropped choices
    rows = ScatterElements(name="rowOf").node(empty, slots, numbers)
    taken = (Split(0, (experts * capacity, 1), name="taken").node(rows), 0)
    return slots, Reshape((experts, capacity), name="slots")(taken)


def blocksOf(chosen, experts, block):
    """Return for each choice (k n) its slot, the rows of x in the slots of each block, -1 if none, and the groups: the
    number of blocks of each expert, and the expert of each block.

    Blocks of an expert follow each other; the last of them has free slots, and so have blocks after all experts.
    """
    chosen, isChosen, position, numbers = ordered(chosen, experts)
    counts = Sum(axis=0, name="countOf")(isChosen)
    blockCounts = (counts + (block - 1)) // block
    first = CumSum(0, exclusive=True, name="first")(blockCounts)
    slots = Add(name="slot").node(Gather(name="firstOf").node(first, chosen) * block, position)
    ones = Sum(axis=1, name="one")(isChosen)
    spare = Constant([1] * (experts - 1), dtype="int64", name="spare").node()
    blocks = Concat(0, name="blocks").node(Slice(slice(None, None, block), name="full")(ones), spare)
    blocks = Reshape((-1, 1), name="column")(blocks)
    number = CumSum(0, exclusive=True, name="block")(blocks)
    isAfter = Cast("int64", name="isAfter")(number >= first)
    expertOf = Sum(axis=1, name="isOf")(isAfter) - 1
    empty = Constant([-1] * block, dtype="int64", name="empty").node()
    empty = Reshape((-1,), name="free")(Mul(name="rows").node(blocks, empty))
    rows = ScatterElements(name="rowOf").node(empty, slots, numbers)
    return slots, Reshape((-1, block), name="slots")(rows), (blockCounts, expertOf)
