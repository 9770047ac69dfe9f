"""MoE: experts, of which a router chooses some for each row."""

from puregraph.core.arguments import Count, NotNegative, choice, takes
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.arithmetic import Mul
from puregraph.modules.block.encoding import ACTIVATIONS
from puregraph.modules.comparison import Where
from puregraph.modules.constant import Constant
from puregraph.modules.cumulative import CumSum
from puregraph.modules.gathering import Gather
from puregraph.modules.joining import Concat, Split
from puregraph.modules.linear import GroupLinear, Linear
from puregraph.modules.normreduction import LogSumExp
from puregraph.modules.penalty import Penalty
from puregraph.modules.reduction import Sum
from puregraph.modules.reshaping import Reshape, Transpose
from puregraph.modules.scattering import ScatterElements
from puregraph.modules.selection import OneHot, TopKValues


@takes(
    size=Count,
    experts=Count,
    k=Count,
    inner=Count,
    capacity=Count,
    activation=choice(*ACTIVATIONS),
    balance=NotNegative,
    zCost=NotNegative,
)
def MoE(size, experts, k, inner, capacity, activation="relu", balance=0.01, zCost=0.0, name=None):
    """y = sum over the k most probable experts e of p_e / (sum of the k p) W2_e activation(W1_e x + b1_e) + b2_e

    p = softmax(router(x)). An expert takes at most `capacity` rows: first choices before second ones, in the order of
    the rows. A choice beyond it is dropped: it adds nothing. Memory grows with experts * capacity.

    `balance` is the weight of experts * sum_e f_e mean(p_e), f_e the fraction of choices of e, and `zCost` that of
    mean(logsumexp(router(x))^2). Both are added to the cost of the network as by `Penalty`.

    Shapes    x (n, size) -> y as x
    Source    Fedus et al. 2021, arXiv:2101.03961, eq. 4; z-cost: Zoph et al. 2022, arXiv:2202.08906, eq. 5
    Raises    ValueError if k exceeds the number of experts

    >>> MoE(8, experts=4, k=2, inner=16, capacity=32).dataShapeFrom(("N", 8))
    ('N', 8)
    """
    if k > experts:
        raise ValueError(f"MoE: wanted k of at most the {experts} experts, got {k}")
    x = Input(name="x").node()
    gates, chosen = routed(x, size, experts, k, balance, zCost)
    slots, rows = slotsOf(chosen, experts, k, capacity)
    h = Reshape((experts, capacity, size), name="slots")(Gather(name="dispatch").node(x, rows))
    h = GroupLinear(experts, size, inner, batchDim=1, name="fc1")(h)
    h = GroupLinear(experts, inner, size, batchDim=1, name="fc2")(ACTIVATIONS[activation]()(h))
    h = Gather(name="combine").node(Reshape((experts * capacity, size), name="results")(h), slots)
    gates = Reshape((-1, 1), name="weights")(Transpose((1, 0), name="byChoice")(gates))
    h = Reshape((k, -1, size), name="choices")(Mul(name="weighted").node(h, gates))
    return Graph(x, Sum(axis=0, name="sum")(h), name=name)


def routed(x, size, experts, k, balance, zCost):
    """Return the gates (n, k), whose sum is 1, and the chosen experts (k, n)."""
    logits = Linear(size, experts, useBias=False, name="router")(x)
    peak = LogSumExp(axis=1, keepdims=True, name="logsum")(logits)
    if zCost:
        peak = Penalty(zCost, "x ** 2", name="zCost")(peak)
    p = Pointwise(formula="exp(x - y)", name="p").node(logits, peak)
    if balance:
        p = balanced(p, experts, k, balance)
    top = TopKValues(k, name="top").node(p)
    total = Sum(axis=1, keepdims=True, name="total")((top, 0))
    gates = Pointwise(formula="x / y", name="gates").node((top, 0), total)
    return gates, Transpose((1, 0), name="chosen")((top, 1))


def balanced(p, experts, k, balance):
    """Return p, with the balance cost added to the network's.

    The next node must read the penalty's result: it is p next to p (f - 1), whose sum is that of p f.
    """
    chosen = OneHot(experts, name="isChosen")((TopKValues(k, name="choice").node(p), 1))
    counts = Sum(axis=(0, 1), name="counts")(chosen)
    total = Sum(axis=0, keepdims=True, name="allChoices")(counts)
    rest = Pointwise(formula="x * (y / maximum(z, 1) - 1)", name="rest").node(p, counts, total)  # a batch may be empty
    both = Penalty(balance * experts, "x", name="balance")(Concat(1, name="both").node(p, rest))
    return (Split(1, 2, name="split").node(both), 0)


def slotsOf(chosen, experts, k, capacity):
    """Return for each choice (k n) its slot, -1 if it is dropped, and for each slot its row of x, -1 if none."""
    isChosen = OneHot(experts, "int64", name="expert")(chosen)
    numbers = CumSum(1, exclusive=True, name="number")(Sum(axis=2, name="ones")(isChosen))
    numbers = Reshape((-1,), name="row")(numbers)
    isChosen = Reshape((-1, experts), name="inOrder")(isChosen)
    before = CumSum(0, exclusive=True, name="before")(isChosen)
    position = Sum(axis=1, name="position")(Mul(name="earlier").node(before, isChosen))
    chosen = Reshape((-1,), name="expertOf")(chosen)
    slot = chosen * capacity + position
    slots = Where(name="slot").node(position < capacity, slot, Constant(-1, dtype="int64", name="dropped").node())
    empty = Constant(
        [-1] * (experts * capacity + 1), dtype="int64", name="empty"
    ).node()  # its last is for dropped choices
    rows = ScatterElements(name="rowOf").node(empty, slots, numbers)
    return slots, (Split(0, (experts * capacity, 1), name="taken").node(rows), 0)
