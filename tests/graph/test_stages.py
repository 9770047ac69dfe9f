"""A graph in stages: what they give, forward and backward, is what the graph gives, to the bit, wherever it is cut."""

import random
from itertools import pairwise

import numpy as np
import pytest
from nets import branched, tied
from randomgraphs import randomGraph

import puregraph
from puregraph import (
    Add,
    ArgumentError,
    Attention,
    Dropout,
    Footprint,
    Graph,
    GraphError,
    Input,
    Linear,
    MulAddConst,
    Relu,
    Sequential,
    ShapeError,
    Tanh,
    stages,
)
from puregraph.graph.analysis.stagecuts import StageCuts
from puregraph.graph.analysis.stages import stagesAt
from puregraph.graph.graphsegment import Crossings
from puregraph.models import gpt, gpt2, lenet, resnet50, unet


def dense():
    """Values with several readers on both sides of every cut, and the input among them."""
    x = Input(name="x").node()
    seen, h = [x], x
    for i in range(4):
        h = Tanh(name=f"tanh{i}")(Linear(4, 4, name=f"fc{i}")(Add(name=f"add{i}").node(*seen)))
        seen.append(h)
    return Graph([x], [Add(name="sum").node(*seen), (h, 0)], name="dense")


def masked():
    """An argument that is left out, and one behind it that is given by name; booleans go through all stages."""
    x, mask = Input(name="x").node(), Input(name="mask").node()
    h = Linear(4, 4, name="fc")(x)
    y = Attention(name="attention").node(h, h, h, mask=mask)
    return Graph([x, mask], Linear(4, 2, name="out")(Relu(name="relu")(y)), name="masked")


NETS = {
    "dense": (dense, [(3, 4)]),
    "masked": (masked, [(2, 1, 5, 4), (2, 1, 5, 5)]),
    "branched": (branched, [(3, 4)]),
    "tied": (tied, [(5, 3)]),
    "lenet": (lenet, [(2, 1, 28, 28)]),
    "unet": (lambda: unet(maps=2, depth=2, norm=True), [(2, 1, 8, 8)]),
    "gpt": (lambda: gpt(11, 6, layers=2, heads=2, size=8, dropout=0.2), [(2, 6)]),
}


def dataFor(graph, shapes, rng):
    """Random arrays in the dtypes that the inputs want."""
    kinds = graph.inputTypes(len(shapes))
    made = {"f": lambda s, d: rng.standard_normal(s).astype(d), "i": lambda s, d: rng.integers(0, 7, s).astype(d)}
    if graph.name == "masked":
        return [made["f"](shapes[0], np.float32), rng.random(shapes[1]) < 0.7]
    return [made[d.kind](s, d) for s, d in zip(shapes, kinds)]


def bitsOf(run, backward, graph, data, rng):
    """All that a pass forward and one backward leave, as bytes."""
    before = {path: state.data.copy() for path, state in graph.states.items()}
    found = run(data)
    outputs = found if isinstance(found, list) else [found]
    grads = [rng.standard_normal(y.shape).astype(y.dtype) for y in outputs]
    grad = backward(grads if len(grads) > 1 else grads[0])
    params = [None if p.grad is None else p.grad.tobytes() for p in graph.params.values()]
    states = [state.data.tobytes() for state in graph.states.values()]
    for path, state in graph.states.items():
        state.data = before[path]
    inputs = grad if isinstance(grad, list) else [grad]
    return [y.tobytes() for y in outputs], [None if g is None else g.tobytes() for g in inputs], params, states


def compare(graph, shapes, parts, data):
    """The whole graph against its stages."""

    def backward(grad):
        graph.backward(grad)
        return graph.grad

    wanted = bitsOf(graph, backward, graph, data, np.random.default_rng(5))
    assert bitsOf(parts, parts.backward, graph, data, np.random.default_rng(5)) == wanted


def everyCut(graph, shapes):
    """The steps at which a graph may be cut."""
    found = Footprint(graph, *shapes)
    crossings = Crossings(found.steps)
    end = len(found.steps.items)
    refused = StageCuts(found, crossings).refused
    return found, crossings, [cut for cut in range(1, end) if cut not in refused], end


@pytest.mark.parametrize("name", NETS)
def test_stages_give_the_bits_of_the_graph_wherever_it_is_cut(name, rng):
    make, shapes = NETS[name]
    puregraph.seed(3)
    graph = make()
    graph.trainMode()
    data = dataFor(graph, shapes, rng)
    found, crossings, free, end = everyCut(graph, shapes)
    assert free
    for cut in free[:: max(len(free) // 6, 1)]:
        compare(graph, shapes, stagesAt(found, crossings, [0, cut, end]), data)
    compare(graph, shapes, stagesAt(found, crossings, [0, *free, end]), data)


@pytest.mark.parametrize("seed", range(40))
def test_stages_of_random_graphs_give_their_bits(seed):
    graph, shapes, _ = randomGraph(random.Random(f"stages {seed}"), most=20)
    rng = np.random.default_rng(seed)
    data = [rng.standard_normal(shape) for shape in shapes]
    found, crossings, free, end = everyCut(graph, shapes)
    some = sorted(rng.choice(free, min(3, len(free)), replace=False).tolist()) if free else []
    compare(graph, shapes, stagesAt(found, crossings, [0, *some, end]), data)


def test_stages_share_modules_and_paths_with_the_net():
    net = gpt(11, 6, layers=2, heads=2, size=8)
    parts = stages(net, 3, (2, 6))
    assert len(parts) == 3 and [graph.name for graph in parts] == ["stage1", "stage2", "stage3"]
    merged = {path: param for graph in parts for path, param in graph.params.items()}
    for path, param in merged.items():
        assert net.params.get(path, net["words"].W) is param
    assert set(merged) == {*net.params, "scores.W"}
    for one, other in pairwise(parts):
        assert len(one.outputs) == len(other.inputs)


def test_the_stages_of_gpt2_take_about_as_much_each():
    parts = stages(gpt2(), 4, (8, 1024))
    total = sum(line.flops for line in parts.lines)
    assert max(line.flops for line in parts.lines) < 0.28 * total
    assert [line.first for line in parts.lines] == ["words", "block5.norm1", "block9.norm1", "norm"]
    assert {line.received for line in parts.lines[1:]} == {8 * 1024 * 768 * 4}  # one value goes over each cut
    assert sum(line.nodes for line in parts.lines) == len(Footprint(gpt2(), (8, 1024)).lines)
    table = parts.table().split("\n")
    assert len(table) == 5 and table[2].split()[:3] == ["2", "block5.norm1", "block8.add2"]


def test_cuts_of_a_residual_network_are_behind_its_blocks():
    parts = stages(resnet50(), 4, (32, 3, 224, 224))
    assert all(len(segment.taken) == 1 for segment in parts.segments[1:])
    assert sum(line.params for line in parts.lines) == 25557032


def test_more_stages_than_cuts_are_refused():
    with pytest.raises(GraphError, match="Sequential can be cut in 3 at most, wanted 4"):
        stages(Sequential(Linear(3, 3), Relu(), Linear(3, 3)), 4, (2, 3))


def test_what_would_change_bits_stays_in_one_stage():
    drop, shared = Dropout(0.5, name="drop"), Linear(3, 3, name="shared")
    with pytest.raises(GraphError, match=r"at most, wanted 2: 'drop.key', a state, is on both sides"):
        stages(Sequential(drop, Relu(), drop), 2, (2, 3))
    with pytest.raises(GraphError, match=r"cut in 2 at most, wanted 3: 'shared.W' has several readers on both sides"):
        stages(Sequential(shared, shared, shared), 3, (2, 3))
    assert len(stages(Sequential(shared, MulAddConst(2.0), shared), 3, (2, 3))) == 3


def test_shapes_are_those_of_a_microbatch_in_numbers():
    net = Sequential(Linear(3, 3), Relu())
    with pytest.raises(ArgumentError, match=r"wanted a number for each symbol, got \(N, 3\)"):
        stages(net, 2, ("N", 3))
    with pytest.raises(ShapeError):
        stages(net, 2, (2, 4))
    with pytest.raises(ShapeError, match="wanted k as a whole number of at least 1, got 0"):
        stages(net, 0, (2, 3))
