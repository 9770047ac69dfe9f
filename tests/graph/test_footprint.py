"""What Footprint says of bytes, by hand, against a simulation with real arrays, and against what a Graph holds."""

import random

import numpy as np
import pytest

from puregraph.core.errors import ArgumentError, GraphError, ShapeError
from puregraph.core.rules import registerRule
from puregraph.graph import Graph
from puregraph.graph.analysis.footprint import Footprint
from puregraph.graph.analysis.summary import summary
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.sequential import Sequential
from puregraph.models import lenet, resnet20, transformer, vgg11
from puregraph.modules import (
    Add,
    BatchNorm,
    Conv2D,
    Dropout,
    Embedder,
    Flatten,
    Identity,
    Linear,
    MaxPool2D,
    Mean,
    Mul,
    Relu,
    Split,
    Tanh,
)
from puregraph.modules.costs import CrossEntropy


def linearReluLinear():
    return Sequential(Linear(3, 4), Relu(), Linear(4, 2))


def kept(*modules, shape=(5, 3)):
    """The bytes that modules keep for backward between two Linear layers, without what those keep themselves."""
    size = int(np.prod(Sequential(*modules).dataShapeFrom(shape)[1:]))
    net = Sequential(Linear(shape[1], shape[1], name="first"), *modules, Flatten(), Linear(size, 1, name="last"))
    return Footprint(net, shape).kept() - shape[0] * (shape[1] + size) * 4


# Seconds --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("N", [1, 1000])
def test_seconds_are_those_of_operations_or_of_bytes_whichever_are_more(N):
    """A product of 300 x 400 weights in batches of N, bound by the bytes of its weights for N = 1, and a Relu."""
    flops, bandwidth = 1e11, 1e10
    net = Sequential(Linear(300, 400, useBias=False), Flatten(), Relu())
    product = max(2 * N * 300 * 400 / flops, 4 * (300 * 400 + N * 700) / bandwidth)
    relu = max(400 * N / flops, 4 * 800 * N / bandwidth)
    assert (2 * 300 * 400 * N / flops > 4 * 300 * 400 / bandwidth) == (N > 1)
    footprint = Footprint(net, ("N", 300))
    assert footprint.seconds(flops, bandwidth, False, N=N) == pytest.approx(product + relu)
    assert footprint.seconds(flops, bandwidth, N=N) == pytest.approx(3 * product + 2 * relu)


def test_seconds_of_a_table_are_those_of_the_rows_that_are_read():
    footprint = Footprint(Sequential(Embedder(1000, 16)), (5, 3))
    assert footprint.seconds(1e11, 1e10, False) == pytest.approx(4 * 5 * 3 * 16 / 1e10)


def test_seconds_need_rates_and_sizes_and_a_network_without_faults():
    footprint = Footprint(linearReluLinear(), ("N", 3))
    with pytest.raises(ArgumentError, match="bandwidth: wanted a rate above 0, got 0"):
        footprint.seconds(1e11, 0, N=2)
    with pytest.raises(ShapeError, match="sizes for all symbols"):
        footprint.seconds(1e11, 1e10)
    assert Footprint(linearReluLinear(), ("N", 4)).seconds(1e11, 1e10) is None


# By hand --------------------------------------------------------------------------------------------------------------


def test_a_footprint_is_printed_as_the_table_of_its_graph():
    found = Footprint(linearReluLinear(), ("N", 3))
    assert str(found) == summary(linearReluLinear(), ("N", 3)) and repr(found).startswith("<Footprint of ")


def test_linear_relu_linear_by_hand():
    found = Footprint(linearReluLinear(), (5, 3))
    x, h, r, y = 5 * 3 * 4, 5 * 4 * 4, 5 * 4 * 4, 5 * 2 * 4
    W1, b1, W2, b2 = 12 * 4, 4 * 4, 8 * 4, 2 * 4
    assert (found.params, found.paramBytes, found.stateBytes) == (26, W1 + b1 + W2 + b2, 0)
    assert found.kept() == x + h + r  # both Linear read their x, Relu its own
    forward, last, middle = x + h + r + y + y, x + h + r + y + r + W2 + b2, x + h + r + h + W2 + b2
    assert last > max(forward, middle)
    assert found.peak() == found.paramBytes + last  # the gradient rule of the last Linear
    assert found.eager() == 2 * found.paramBytes + x + h + r + y + (r + h)  # and the gradients of both inputs
    assert found.flops == 5 * 4 * 7 + 20 + 5 * 2 * 9


def test_what_each_gradient_rule_keeps():
    x = 5 * 3 * 4
    assert kept(Relu()) == x
    assert kept(Tanh()) == 0, "Tanh reads its output, which the last Linear keeps anyway"
    assert kept(Tanh(), Identity(), Flatten()) == 0, "a view is the memory of its input"
    assert kept(Dropout()) == 5 * 3, "a mask of one byte a value"
    assert kept(BatchNorm(3)) == x + 2 * 3 * 4, "its input, and the two hidden moments"
    assert kept(Add()) == 0
    assert kept(Mul()) == x


def test_a_split_keeps_its_whole_input_alive():
    x = Input(name="x").node()
    parts = Split(axis=1, sections=(1, 3)).node(Linear(2, 4, name="fc")(x))
    found = Footprint(Graph(x, Relu()((parts, 0))), (5, 2))
    assert found.kept() == 5 * 2 * 4 + 5 * 4 * 4
    assert [line.nbytes for line in found.lines] == [80, 0, 20]


def test_pooling_keeps_indices_and_not_its_input():
    net = Sequential(Conv2D(1, 1, 1), MaxPool2D(2), Flatten(), Linear(4, 1))
    x, indices, pooled = 4 * 4 * 4, 4 * 4, 4 * 4
    assert Footprint(net, (1, 1, 4, 4)).kept() == x + indices + pooled


def test_what_no_gradient_goes_through_keeps_nothing():
    net = Sequential(Relu(), MaxPool2D(2), Flatten(), Linear(4, 1))
    assert Footprint(net, (1, 1, 4, 4)).kept() == 4 * 4, "what Linear reads"


def test_token_ids_are_whole_numbers_of_eight_bytes():
    found = Footprint(Sequential(Embedder(10, 3, name="words")), (2, 4))
    assert found.kept() == 2 * 4 * 8
    assert found.lines[0].gradShapes == [None]
    assert found.lines[0].params == 30


def test_a_module_at_two_nodes_counts_its_parameters_once():
    x, shared = Input(name="x").node(), Linear(3, 3)
    found = Footprint(Graph(x, shared.node(shared.node(x, name="one"), name="two")), (5, 3))
    assert [line.params for line in found.lines] == [12, 0]
    assert found.params == 12


def test_without_parameters_a_step_goes_back_to_the_inputs():
    found = Footprint(Sequential(Tanh()), (5,))
    assert found.kept() == 20
    assert found.peak() == 60  # y, its gradient, and that of x


def test_the_dtype_is_that_of_the_graph():
    assert (
        Footprint(linearReluLinear().calcMode("float64"), (5, 3)).peak()
        == 2 * Footprint(linearReluLinear(), (5, 3)).peak()
    )
    assert Footprint(linearReluLinear().calcMode(np.float16), (5, 3)).kept() == 110


def test_a_cost_is_part_of_the_graph_like_any_module():
    x, t = Input(name="x").node(), Input(name="t").node()
    found = Footprint(Graph([x, t], CrossEntropy()(Linear(3, 2)(x), t)), (5, 3), (5,))
    assert found.outshapes == [()]
    assert found.kept() >= 5 * 3 * 4 + 5 * 2 * 4


def test_a_rule_named_on_the_node_may_read_everything():
    @registerRule(Mean, "one that reads")
    def rule(module, grad, x, y):
        return x * grad

    def found(name):
        x = Input(name="x").node()
        return Footprint(Graph(x, Mean(axis=0).node(Linear(3, 3)(x), rule=name)), (5, 3))

    assert found("one that reads").kept() - found(None).kept() == 5 * 3 * 4 + 3 * 4


def test_a_graph_without_a_gradient_has_shapes_and_no_step():
    class NoGradient(Module):
        def dataShapeFrom(self, x):
            return x

        def updateData(self, x):
            return x

    found = Footprint(Sequential(Linear(3, 4), NoGradient()), ("N", 3))
    assert found.outshapes == [("N", 4)]
    assert (found.kept(N=1), found.peak(N=1), found.eager(N=1)) == (None, None, None)


# Symbols --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make, rest", [(lenet, (1, 28, 28)), (linearReluLinear, (3,)), (resnet20, (3, 32, 32))])
def test_a_symbolic_batch_gives_what_each_number_gives(make, rest):
    symbolic = Footprint(make(), ("N", *rest))
    assert symbolic.batch == "N"
    for n in (2, 7, 64):
        exact = Footprint(make(), (n, *rest))
        assert exact.batch is None
        assert symbolic.kept(N=n) == exact.kept()
        assert symbolic.peak(N=n) == exact.peak()
        assert symbolic.eager(N=n) == exact.eager()


def test_several_symbols_and_divided_ones_are_bound_too():
    net = Sequential(MaxPool2D(2), Relu())
    symbolic, exact = Footprint(net, ("N", 3, "H", "W")), Footprint(net, (2, 3, 9, 8))
    assert symbolic.batch is None
    assert symbolic.symbols == ("N", "H", "W")
    assert symbolic.peak(N=2, H=9, W=8) == exact.peak()
    with pytest.raises(ValueError, match=r"sizes for all symbols"):
        symbolic.peak(N=2)
    assert Footprint(net, (2, 3, "H", 8)).batch is None, "half of H is no multiple of H"


# Faults ---------------------------------------------------------------------------------------------------------------


def test_faults_are_all_listed_and_what_depends_on_them_is_unknown():
    x = Input(name="x").node()
    bad, other = Linear(7, 2, name="bad")(x), Linear(8, 2, name="other")(x)
    good = Linear(3, 2, name="good")(x)
    found = Footprint(Graph(x, [Add(name="sum")(bad, good), other]), ("N", 3))
    assert [fault.path for fault in found.faults] == ["bad", "other"]
    assert [line.path for line in found.lines if line.shapes is None] == ["bad", "sum", "other"]
    assert [line.path for line in found.lines if line.fault] == ["bad", "other"]
    assert (found.kept(), found.peak(), found.eager()) == (None, None, None)
    assert found.params == 16 + 18 + 8


def test_nothing_is_made():
    net = lenet(norm=True, dropout=0.5)
    found = Footprint(net, ("N", 1, 28, 28))
    assert found.peak(N=256) > found.peak(N=1) > found.paramBytes
    assert not any(p.made for p in (*net.params.values(), *net.states.values()))


# Against real arrays --------------------------------------------------------------------------------------------------


def randomNet(rng):
    """A random graph whose gradient rules make new arrays, hand on what they get, or give views of it."""
    x = Input(name="x").node()
    values = [x]
    for _ in range(rng.randint(1, 9)):
        a, b = rng.choice(values), rng.choice(values)
        values.append(
            rng.choice(
                [
                    lambda a=a: Linear(4, 4)(a),
                    lambda a=a: Relu()(a),
                    lambda a=a: Tanh()(a),
                    lambda a=a: Flatten()(a),
                    lambda a=a: BatchNorm(4)(a),
                    lambda a=a: Dropout()(a),
                    lambda a=a, b=b: Add()(a, b),
                    lambda a=a, b=b: Mul()(a, b),
                ]
            )()
        )
    ends = [v for v in values if not v.fwds and v is not x] or [values[-1]]
    outputs = [Linear(4, 2)(v) for v in ends]
    return Graph(x, [*outputs, *rng.sample(values[1:], min(1, len(values) - 1))])


def root(array):
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def start(array):
    """Where an array begins in memory: a parameter hands its own out as several arrays."""
    return array.__array_interface__["data"][0]


def simulate(graph, x):
    """kept and peak of a step that is really run: at each moment, the distinct buffers that are still to be read."""
    forward, back = graph.steps(1), graph.backwardGraph(updGrad=not graph.params)
    values, made, uses = {}, {}, {}

    def make(key, value, time):
        values[key], made[key] = value, time
        uses.setdefault(key, [time])

    def use(key, time):
        uses.setdefault(key, []).append(time)

    def names(module):
        inputs = [module.arguments[min(i, len(module.arguments) - 1)] for i in range(20)]
        return lambda count: [*inputs[:count], *module.ruleNames, *module.outputNames, *module.hidden]

    make(forward.inputs[0], x, 0)
    params = {}
    for number, module, name in forward.params:
        values[number] = getattr(module, name).data
        params[id(root(values[number]))] = values[number].nbytes
    for time, step in enumerate(forward.items, 1):
        result = step.call(*[values[n] for n in step.args])
        for number, value in zip(step.outs, result if isinstance(result, tuple) else (result,), strict=True):
            make(number, value, time)
        for number in step.args:
            use(number, time)
    cost = len(forward.items) + 1
    steps = back.steps()
    for place, (inner, number) in enumerate(zip(steps.inputs, [*forward.outputs, *back.numbers], strict=True)):
        if place < len(back.seeds):
            make(-inner, np.ones_like(values[number]), cost)
            use(number, cost)
        else:
            values[-inner] = number
    for time, step in enumerate(steps.items, cost + 1):
        keys = [values[-n] if isinstance(values[-n], int) else -n for n in step.args]
        result = step.call(*[values[key] for key in keys])
        for number, value in zip(step.outs, result if isinstance(result, tuple) else (result,), strict=True):
            make(-number, value, time)
        of = getattr(step.module, "of", None)
        labels = [None] * len(keys)
        if of is not None:
            labels[step.module.grads :] = names(of)(len(step.module.needed) - len(of.ruleNames))
        for key, label in zip(keys, labels, strict=True):
            if label is None or label in of.reads:
                use(key, time)
    end = cost + len(steps.items) + 1
    for number in steps.outputs:
        use(-number, end)

    def bytesAt(wanted):
        found = {id(root(values[key])): root(values[key]).nbytes for key in made if wanted(key)}
        return sum(nbytes for key, nbytes in found.items() if key not in params)

    peak = max(bytesAt(lambda k, t=t: made[k] <= t <= max(uses[k])) for t in range(end + 1))
    stored = graph.params.values(), graph.states.values()
    return (
        bytesAt(lambda k: made[k] < cost < max(uses[k])),
        peak + sum(s.nbytes for group in stored for s in group),
    )


@pytest.mark.parametrize("number", range(60))
def test_random_graphs_keep_and_reach_what_a_simulation_with_arrays_says(number, rng):
    graph = randomNet(random.Random(number))
    found = Footprint(graph, (3, 4))
    assert (found.kept(), found.peak()) == simulate(graph, rng.standard_normal((3, 4)).astype("float32"))


@pytest.mark.parametrize(
    "make, shape", [(lambda: lenet(norm=True, dropout=0.5), (2, 1, 28, 28)), (linearReluLinear, (5, 3))]
)
def test_known_networks_keep_and_reach_what_a_simulation_with_arrays_says(make, shape, rng):
    graph = make()
    found = Footprint(graph, shape)
    assert (found.kept(), found.peak()) == simulate(graph, rng.standard_normal(shape).astype("float32"))


def held(graph):
    """The bytes of all distinct buffers that a graph has after a step; parameters without what aligns them."""
    steps = graph.last.steps
    nodes = [step.node for step in steps.items] + [node for node, _ in steps.shown]
    params = graph.params.values()
    stack = [graph.last.values, [n.data for n in nodes], [n.grad for n in nodes], [p.grad for p in params]]
    found = {start(s.data): s.data.nbytes for s in (*params, *graph.states.values())}
    while stack:
        value = stack.pop()
        if isinstance(value, (list, tuple)):
            stack += value
        elif value is not None and start(value) not in found:
            found[start(root(value))] = root(value).nbytes
    return sum(found.values())


def residual():
    x = Input(name="x").node()
    h = Linear(4, 4)(x)
    return Graph(x, Add()(Relu()(h), h, x))


@pytest.mark.parametrize(
    "make, shape",
    [
        (linearReluLinear, (5, 3)),
        (residual, (3, 4)),
        (lenet, (2, 1, 28, 28)),
        (lambda: lenet(norm=True, dropout=0.5), (2, 1, 28, 28)),
        (lambda: vgg11(norm=True, classes=10, size=32, dropout=0.0), (2, 3, 32, 32)),
    ],
)
def test_eager_is_what_a_graph_holds_after_a_step(make, shape, rng):
    graph = make()
    y = graph(rng.standard_normal(shape).astype("float32"))
    graph.backward(np.ones_like(y), updGrad=False)
    assert Footprint(graph, shape).eager() == held(graph)


@pytest.mark.parametrize("number", range(20))
def test_eager_is_what_random_graphs_hold_after_a_step(number, rng):
    graph = randomNet(random.Random(number))
    outputs = graph(rng.standard_normal((3, 4)).astype("float32"))
    graph.backward([np.ones_like(y) for y in outputs], updGrad=False)
    found = Footprint(graph, (3, 4))
    assert found.eager() == held(graph)


def test_what_is_no_graph_is_refused():
    with pytest.raises(GraphError, match=r"wanted a Graph, got Linear\(3, 4\).*put modules into a Sequential"):
        Footprint(Linear(3, 4), ("N", 3))
    assert Footprint(Sequential(), ("N", 3)).outshapes == [("N", 3)]
    assert repr(Footprint(Sequential(Linear(3, 4)), ("N", 2))) == "<Footprint of Sequential: 16 parameters, 1 faults>"


def test_gradients_of_attention_take_a_workspace_on_a_gpu_which_is_larger_where_they_are_deterministic():
    net = transformer(1, 16, 2)
    found = Footprint(net, ("N", 1024, 16))
    assert found.attention(N=16) == (16 * 2 * (8 * 1024 * 8 + 1024) * 4 + 256, 16 * 2 * 1024 * (8 + 1) * 4 + 256)
    lines = summary(net, ("N", 1024, 16)).splitlines()
    assert "attention on a GPU, workspace" in "".join(lines) and "... where it is deterministic" in "".join(lines)
    assert Footprint(linearReluLinear(), (5, 3)).attention() is None
