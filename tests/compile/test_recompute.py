"""What is kept of the forward pass and what is made again: equal gradients, and the memory that was predicted."""

import random
import tracemalloc

import numpy as np
import pytest
from randomgraphs import randomGraph

from puregraph.autodiff import add_backward_pass, make_backward_function
from puregraph.autodiff.joint import rematpolicy
from puregraph.core.errors import AutoDiffException, ShapeError
from puregraph.core.param import State
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.pointwise import Pointwise
from puregraph.graph.sequential import Sequential
from puregraph.graph.steps import shapeOnly
from puregraph.modules import (
    Add,
    BatchNorm,
    Conv2D,
    Dropout,
    Linear,
    MatMul,
    MaxPool2D,
    Mul,
    Relu,
    Sum,
    Tanh,
)

STRATEGIES = ["store_all", "recompute_all"]


@pytest.fixture
def fewTrials(monkeypatch):
    """Fewer ways to cut a graph are measured, among which there are good ones."""
    monkeypatch.setattr(rematpolicy, "MAX_TRIALS", 10)


def mlp(depth=16, width=48):
    layers = [m for i in range(depth) for m in (Linear(width, width, name=f"fc{i}"), Tanh(name=f"t{i}"))]
    return Sequential(*layers, Sum(name="S"))


def convs(depth=10, maps=4):
    layers = [m for i in range(depth) for m in (Conv2D(maps, maps, 3, pad=1, name=f"c{i}"), Relu(name=f"r{i}"))]
    return Sequential(*layers, Sum(name="S"))


def residual(depth=8, width=32):
    x = node = Input(name="x").node()
    for i in range(depth):
        node = Add(name=f"sum{i}")(node, Tanh(name=f"t{i}")(Linear(width, width, name=f"fc{i}")(node)))
    return Graph(x, Sum(name="S")(node))


MODELS = {"mlp": (mlp, (3000, 48)), "convs": (convs, (8, 4, 48, 48)), "residual": (residual, (4000, 32))}


def passes(graph, **options):
    return add_backward_pass(graph, "S", [*graph.params, "x"], **options)


def measured(joint, *data):
    """The outputs of a run, and the most bytes that it took beyond what was there before."""
    joint(*data)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        found = joint(*data)
        return found, tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def least(graph, shape):
    """What the error for a budget that cannot be met says is the least."""
    with pytest.raises(
        AutoDiffException, match="a budget of 1,000 bytes cannot be met: the smallest peak is"
    ) as caught:
        passes(graph, budget=1000, shapes=[shape])
    return int(str(caught.value).split()[-1].replace(",", ""))


def remade(joint):
    return [step.path for step in joint.remade]


# Memory ----------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("fewTrials")
@pytest.mark.parametrize("model", MODELS)
def test_the_predicted_saving_is_met_and_the_gradients_are_equal(model, rng):
    make, shape = MODELS[model]
    net, x = make(), rng.standard_normal(shape).astype("float32")
    full = passes(net)
    wanted, most = measured(full, x)
    smallest = least(net, shape)
    for budget in (smallest, (smallest + full.peak(shape, ())) // 2):
        lean = passes(net, budget=budget, shapes=[shape])
        assert lean.peak(shape, ()) <= budget
        found, bytes = measured(lean, x)
        saving = full.peak(shape, ()) - lean.peak(shape, ())
        assert saving > 0.3 * (full.peak(shape, ()) - smallest)
        assert most - bytes >= 0.9 * saving
        assert all(np.array_equal(a, b) for a, b in zip(wanted, found))
    assert smallest < 0.6 * full.peak(shape, ()), "of a deep chain half and more can be saved"


@pytest.mark.usefixtures("fewTrials")
@pytest.mark.parametrize("model", ["mlp", "residual"])
def test_the_predicted_peak_is_what_a_run_takes(model, rng):
    make, shape = MODELS[model]
    net, x = make(), rng.standard_normal(shape).astype("float32")
    params = sum(p.nbytes for p in net.params.values())
    for options in (
        {},
        {"data_forwarding_strategy": "recompute_all"},
        {"budget": least(net, shape), "shapes": [shape]},
    ):
        joint = passes(net, **options)
        _, bytes = measured(joint, x)
        within = bytes - (joint.peak(shape, ()) - params - x.nbytes)
        assert -0.01 * bytes <= within <= 1.1 * x.nbytes, "a rule's own working memory, one array, is not predicted"


@pytest.mark.usefixtures("fewTrials")
def test_the_longer_a_chain_the_larger_the_part_that_is_saved():
    parts = []
    for depth in (4, 12, 32):
        net = mlp(depth, 8)
        parts.append(least(net, (1000, 8)) / passes(net).peak((1000, 8), ()))
    assert parts[0] > parts[1] > parts[2] and parts[2] < 0.4


def test_a_larger_budget_makes_less_again():
    net, shape = mlp(8), (1000, 48)
    full, smallest = passes(net).peak(shape, ()), least(net, shape)
    counts = [
        len(passes(net, budget=smallest + (full - smallest) * part // 4, shapes=[shape]).remade) for part in range(5)
    ]
    assert counts == sorted(counts, reverse=True) and counts[0] > 0 and counts[-1] == 0


def test_a_budget_wants_shapes_and_stands_alone():
    net = mlp(2)
    with pytest.raises(AutoDiffException, match=r"needs the inputs' shapes: give shapes=\[\(32, 784\), ...\]"):
        passes(net, budget=10**6)
    with pytest.raises(AutoDiffException, match="give budget= or data_forwarding_strategy=, not both"):
        passes(net, budget=10**6, shapes=[(5, 48)], data_forwarding_strategy="recompute_all")
    with pytest.raises(ShapeError, match="at 'fc0'"):
        passes(net, budget=10**6, shapes=[(5, 47)])
    with pytest.raises(AutoDiffException, match=r"needs numbers for all sizes, got N in \[\(N, 48\)\]"):
        passes(net, budget=10**6, shapes=[("N", 48)])
    assert passes(net, budget=10**9, shapes=(5, 48)).remade == []


def test_values_are_freed_after_their_last_reader(rng):
    alive = []

    class Watch(Module):
        """y = x, and counts the arrays that are there."""

        def dataShapeFrom(self, x):
            return x

        def updateData(self, x):
            alive.append(tracemalloc.get_traced_memory()[0])
            return x + 0

        def updateGrad(self, grad, x, y):
            return self.updateData(grad)

    Watch.reads = ()
    net = Sequential(*[Watch(name=f"w{i}") for i in range(8)], Sum(name="S"))
    joint = add_backward_pass(net, "S", "x")
    x = rng.standard_normal(100_000)
    joint(x)
    alive.clear()
    tracemalloc.start()
    joint(x)
    tracemalloc.stop()
    assert len(alive) == 16 and max(alive) < 2.5 * x.nbytes, "one value and its successor at a time"


# Equal gradients ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", range(5))
def test_whatever_is_made_again_the_gradients_are_equal(block):
    for number in range(1000 + block * 20, 1010 + block * 20):
        draw = random.Random(number)
        graph, shapes, _ = randomGraph(draw)
        outs = list(dict.fromkeys(graph.outputNames))
        if len(set(graph.steps().outputs)) < len(graph.outputs) or not graph.steps().items:
            continue
        forward, backward, result, _ = make_backward_function(graph)
        outs, ins = list(result.given_grad_names), list(result.required_grad_names)
        rng = np.random.default_rng(number)
        data = [rng.standard_normal(s) for s in shapes]
        ys = graph(data)
        ys = dict(zip(graph.outputNames, ys if isinstance(ys, list) else [ys]))
        seeds = [rng.standard_normal(np.shape(ys[name])) for name in outs]
        wanted = add_backward_pass(graph, outs, ins)(*data, *seeds)
        values = [step.path for step in graph.steps().items if len(step.visible) == 1]
        for _ in range(3):
            again = draw.sample(values, draw.randint(1, len(values))) if values else []
            if again:
                joint = add_backward_pass(
                    graph, outs, ins, data_forwarding_strategy="user_defined", data_to_recompute=again
                )
                found = joint(*data, *seeds)
                assert all(np.array_equal(a, b) for a, b in zip(wanted, found)), (number, again)
                assert set(remade(joint)) <= set(again)


def test_hidden_outputs_are_made_again_with_the_rest(rng):
    net = Sequential(Conv2D(1, 2, 3, name="conv"), MaxPool2D(2, name="pool"), Tanh(name="t"), Sum(name="S"))
    x = rng.standard_normal((2, 1, 8, 8)).astype("float32")
    wanted = passes(net)(x)
    joint = passes(net, data_forwarding_strategy="recompute_all")
    assert {"conv", "pool"} <= set(remade(joint))
    assert all(np.array_equal(a, b) for a, b in zip(wanted, joint(x)))
    again = passes(net, data_forwarding_strategy="user_defined", data_to_recompute=["pool"])
    assert remade(again) == ["pool"]
    assert all(np.array_equal(a, b) for a, b in zip(wanted, again(x)))


# What is chosen ----------------------------------------------------------------------------------------------------------


def test_store_all_makes_nothing_again_and_recompute_all_keeps_only_what_is_given():
    net = mlp(4)
    assert passes(net).remade == []
    assert set(passes(net).forwarded) == {"fc0.x", "t0", "t1", "t2", "t3"}
    joint = passes(net, data_forwarding_strategy="recompute_all")
    assert joint.forwarded == ["fc0.x"]
    assert set(remade(joint)) == {f"{kind}{i}" for kind in ("fc", "t") for i in range(4)}


def test_what_a_user_names_is_made_again_right_before_the_gradient_that_wants_it():
    net = mlp(3)
    joint = passes(net, data_forwarding_strategy="user_defined", data_to_recompute=["t0", "fc1", "t1"])
    assert remade(joint) == ["fc1", "t1", "t0"] or remade(joint) == ["t0", "fc1", "t1"]
    paths = [step.path for step in joint.steps().items]
    between = paths[paths.index("again:t1") + 1 : paths.index("grad:fc2")]
    assert between == ["value:fc2.W", "value:fc2.b"], "parameters are read where they are"
    assert "again:t1" not in paths[: paths.index("grad:t2")]
    by_node = [net.getNodeByName(name) for name in ("t0", "fc1", "t1")]
    other = passes(net, data_forwarding_strategy="user_defined", data_to_recompute=by_node)
    assert remade(other) == remade(joint)


def test_a_value_is_made_again_once_however_many_read_it(rng):
    x = Input(name="x").node()
    h = Tanh(name="h")(x)
    graph = Graph(x, Sum(name="S")(Add()(Mul()(h, h), Pointwise(formula="exp(x)", name="e")(h))))
    joint = add_backward_pass(graph, "S", "x", data_forwarding_strategy="recompute_all")
    assert sorted(remade(joint)) == ["e", "h"]


@pytest.mark.parametrize(
    "options, words",
    [
        ({"data_forwarding_strategy": "some"}, "wanted one of store_all, recompute_all, user_defined, got 'some'"),
        ({"data_forwarding_strategy": "user_defined"}, "data_to_recompute is needed with"),
        ({"data_to_recompute": ["t0"]}, "data_to_recompute is needed with .* and only then"),
        (
            {"data_forwarding_strategy": "user_defined", "data_to_recompute": ["tt"]},
            "data_to_recompute: .* no value named 'tt'; the nearest names are",
        ),
        (
            {"data_forwarding_strategy": "user_defined", "data_to_recompute": ["fc0.W"]},
            "'fc0.W' cannot be recomputed: it is given, not computed",
        ),
    ],
)
def test_choices_that_are_none_are_refused(options, words):
    with pytest.raises(AutoDiffException, match=words):
        passes(mlp(2), **options)
    with pytest.raises(AutoDiffException, match=words):
        make_backward_function(mlp(2), **options)


class Counted(Module):
    """y = x + count, and counts its runs."""

    def __init__(self, name=None):
        super().__init__(name)
        self.count = State((), dtype=np.int64)

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x, count):
        count += 1
        return x * x + count

    def updateGrad(self, grad, x, count, y):
        return grad * 2 * x, None


@pytest.mark.parametrize("strategy", [*STRATEGIES, "budget"])
def test_what_has_a_running_state_runs_once(strategy, rng):
    modules = [m for i in range(4) for m in (Linear(8, 8, name=f"fc{i}"), Counted(f"c{i}"), Dropout(name=f"d{i}"))]
    net = Sequential(*modules, BatchNorm(8, name="bn"), Sum(name="S"))
    x = rng.standard_normal((50, 8)).astype("float32")
    if strategy == "budget":
        joint = passes(net, budget=least(net, (50, 8)), shapes=[(50, 8)])
    else:
        joint = passes(net, data_forwarding_strategy=strategy)
    assert not set(remade(joint)) & {f"{kind}{i}" for kind in "cd" for i in range(4)}
    for run in (1, 2):
        joint(x)
        assert {int(net.states[f"c{i}.count"].data) for i in range(4)} == {run}
        assert {int(net.states[f"d{i}.count"].data) for i in range(4)} == {run}


def test_what_has_a_running_state_cannot_be_asked_to_run_twice():
    net = Sequential(Linear(3, 3, name="fc"), Dropout(name="drop"), Sum(name="S"))
    with pytest.raises(AutoDiffException, match="'drop' cannot be recomputed: it has a running state or is random"):
        passes(net, data_forwarding_strategy="user_defined", data_to_recompute="drop")


# Freeing -----------------------------------------------------------------------------------------------------------------


def test_a_run_that_frees_keeps_only_what_is_given_and_what_comes_out(rng):
    x = Input(name="x").node()
    graph = Graph(x, Sum(name="S")(Tanh(name="b")(Tanh(name="a")(x))))
    steps = graph.unfold([1])
    steps.freeAfterLastUse(lambda step: step.args)
    data = rng.standard_normal(3)
    values = steps.run([data])
    kept = {steps.names[n] for n, value in enumerate(values) if value is not None}
    assert kept == {"x", "S"} and values[steps.inputs[0]] is data
    assert graph.nodes[1].data is None, "nodes get no data"
    assert all(step.frees == () for step in graph.steps().items), "other runs free nothing"


def test_a_value_whose_shape_alone_is_asked_later_leaves_its_outline(rng):
    seen = []

    class Late(Module):
        """y = 2 b, with a look at what is left of a."""

        def dataShapeFrom(self, a, b):
            return b

        def updateData(self, a, b):
            seen.append(a)
            return 2 * b

    x = Input(name="x").node()
    a = Tanh(name="a")(x)
    graph = Graph(x, Late(name="late")(a, Sum(name="S")(a)))
    steps = graph.unfold([1])
    steps.freeAfterLastUse(lambda step: step.args[1:] if step.path == "late" else step.args)
    steps.run([rng.standard_normal((4, 5))])
    (left,) = seen
    assert left.shape == (4, 5) and left.strides == (0, 0) and not left.any()
    assert shapeOnly(np.float32(3)).dtype == "float32" and shapeOnly("text") == "text" and shapeOnly(None) is None


def test_what_is_summed_is_not_kept_for_its_shape():
    net = Sequential(Pointwise(formula="2 * x", name="twice"), Sum(name="S"))
    x, twice, gradient = (1000 * 1000 * 4 for _ in range(3))
    assert add_backward_pass(net, "S", "x").peak((1000, 1000), ()) < x + twice + gradient + 100


def test_matrix_products_are_made_again_from_what_is_stored(rng):
    x, w = Input(name="x").node(), Input(name="w").node()
    h = MatMul(name="h")(x, w)
    graph = Graph([x, w], Sum(name="S")(Tanh(name="t")(h)))
    joint = add_backward_pass(graph, "S", ["x", "w"], data_forwarding_strategy="recompute_all")
    assert joint.forwarded == ["x", "w"] and remade(joint) == ["h", "t"]
