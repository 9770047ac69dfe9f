"""Gradients of branches and loops in a file: onnxruntime gives ours, of random loops, of graphs in graphs, of none."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnxtrips import listed, ran  # noqa: E402
from test_onnx_backward import alone, check  # noqa: E402
from test_onnx_loops import loopModel, scanModel  # noqa: E402

from puregraph import Add, Graph, GraphError, Input, Linear, Mul, Tanh  # noqa: E402
from puregraph.graph.pointwise import Pointwise  # noqa: E402
from puregraph.modules import Constant, If, Less, Loop, Max, RoiPool, Scan  # noqa: E402  # noqa: E402
from puregraph.onnx import backwardOnnx, fromOnnx  # noqa: E402


def inputs(names):
    """Input nodes of these names."""
    return [Input(name=name).node() for name in names.split()]


def trial(make, rng):
    """One random model, whose gradients have to be ours, or are refused where a carried value grows."""
    model, given = make(rng)
    net, data = fromOnnx(model), list(given.values())
    if "g" in given:
        with pytest.raises(GraphError, match="has another size in each run"):
            check(net, [x.shape for x in data], data)
        return "refused"
    return "ran" if check(net, [x.shape for x in data], data) else "none"


@pytest.mark.parametrize("make", [scanModel, loopModel])
def test_gradients_of_random_loops_are_onnxruntimes(make):
    rng = np.random.default_rng(1)
    assert [trial(make, rng) for _ in range(8)].count("ran") > 2


@pytest.mark.slow
@pytest.mark.parametrize("make", [scanModel, loopModel])
def test_gradients_of_200_random_loops_are_onnxruntimes(make):
    rng = np.random.default_rng(2)
    assert [trial(make, rng) for _ in range(200)].count("ran") > 80


def layers(isShared):
    """Two layers and a nonlinearity between them; they may share one weight."""
    first, second = Linear(3, 3, name="first"), Linear(3, 3, name="second")
    if isShared:
        second.W = first.W
    x = Input(name="x").node()
    return Graph(x, second.node(Tanh(name="tanh").node(first.node(x))))


def nested():
    """A Loop of Scans, whose runs choose between two graphs by what comes in; both layers in one graph are the same."""
    first, other = layers(isShared=True), Input(name="x").node()
    choice = If(first, Graph(other, Pointwise(formula="x * x").node(other)), name="choice")
    c, x, z = inputs("c x z")
    isLow = Less(name="less").node(Max(0, name="max").node(x), Constant(np.float32(0.5)).node())
    new = choice.node(isLow, Add(name="add").node(c, x))
    scan = Scan(Graph([c, x, z], [new, Mul(name="mul").node(new, z)]), 1, [(0, True)], [(0, False)], name="scan")
    t, on, c, x, z = inputs("t on c x z")
    found = scan.node(c, x, z)
    body = Graph([t, on, c, x, z], [on, (found, 0), (found, 1), t])
    return Loop(body, 1, name="loop")


SIZES = [(), (), (3,), (4, 3), (3,)]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_gradients_of_graphs_in_graphs_are_onnxruntimes_of_no_run_too(count):
    rng = np.random.default_rng(count)
    data = [np.array(count), np.array(True), *(rng.standard_normal(s).astype("f4") * 0.5 for s in SIZES[2:])]
    assert check(alone(nested(), SIZES), SIZES, data)


def test_a_loop_that_is_read_again_has_the_same_gradients():
    rng = np.random.default_rng(1)
    data = [np.array(2), np.array(True), *(rng.standard_normal(s).astype("f4") for s in SIZES[2:])]
    net = alone(nested(), SIZES)
    model = backwardOnnx(net, ["x2", "x3"], net.outputNames[0], shapes=SIZES, dtypes=[x.dtype for x in data])
    seed = rng.standard_normal(3).astype("f4")
    for y, want in zip(listed(fromOnnx(model)(*data, seed)), ran(model, [*data, seed]), strict=True):
        np.testing.assert_allclose(y, want, 1e-5, 1e-6)


def branched(graph):
    """An If that takes this graph."""
    return If(graph, layers(isShared=False)), [(), (2, 3)], [np.array(True)]


def scanned(graph):
    """A Scan that runs this graph once."""
    return Scan(graph, 0, [(0, False)], [(0, False)]), [(1, 2, 3)], []


@pytest.mark.parametrize("make", [branched, scanned])
def test_a_weight_that_is_shared_inside_has_its_gradient_once(make):
    graph = layers(isShared=True)
    module, shapes, given = make(graph)
    net, rng = alone(module, shapes).calcMode("float64"), np.random.default_rng(2)
    x = rng.standard_normal((2, 3))
    y = graph(x)
    graph.backward(np.ones_like(y))
    W = graph["first"].W
    wanted = W.grad.copy()
    y = net(*given, x.reshape(shapes[-1]))
    net.backward(np.ones_like(y))
    np.testing.assert_allclose(W.grad, wanted, 1e-12)
    assert check(net, shapes, [*given, x.reshape(shapes[-1]).astype("f4")])


def test_a_branch_of_a_known_condition_is_differentiated_alone():
    x = Input(name="x").node()
    net = Graph(x, branched(layers(isShared=True))[0].node(Constant(np.array(False)).node(), x))
    assert check(net, [("N", 3)], others=[[np.ones((n, 3), np.float32)] for n in (1, 4)], data=[np.ones((2, 3), "f4")])
    model = backwardOnnx(net, ["x"], net.outputNames[0], shapes=[("N", 3)])
    assert "If" not in {node.op_type for node in model.graph.node}


def test_a_gradient_that_is_nothing_is_refused_by_name():
    net = alone(RoiPool((2, 2)), [(1, 1, 4, 4), (1, 5)])
    with pytest.raises(GraphError, match=r"output 'gradient_x1' has no value: a rule on the way to it has no gradient"):
        backwardOnnx(net, ["x1"], net.outputNames[0], shapes=[(1, 1, 4, 4), (1, 5)])
