"""What a pass keeps is freed when its last user lets go, without waiting for Python's cycle collector."""

import gc
import weakref

import numpy as np
import pytest

from puregraph import (
    MSE,
    SGD,
    Add,
    BackwardGraph,
    BatchNorm,
    Calculator,
    Conv2D,
    CrossEntropy,
    Dropout,
    Function,
    GlobalAvgPool,
    Graph,
    GraphError,
    Input,
    Linear,
    Node,
    Relu,
    Sequential,
    ShapeError,
    Trainer,
    Validator,
)
from puregraph.autodiff import Variable, add_backward_pass, grad, jvp, make_backward_function, vjp
from puregraph.autodiff.tape.tapenode import get_gradient_edge


@pytest.fixture(autouse=True)
def withoutCollector():
    """No test of this file may be saved by the collector."""
    gc.disable()
    yield
    gc.enable()


class Cube(Function):
    """x^3, which keeps its input and its output."""

    @staticmethod
    def forward(ctx, x):
        y = Variable(x.data**3)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, _ = ctx.saved_variables
        return g * 3 * x * x


class Fails(Function):
    """A Function whose gradient raises."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Variable(x.data * 2)

    @staticmethod
    def backward(ctx, g):
        raise ValueError("no gradient today")


def backwardOf(loss):
    """A pass to the leaves."""
    loss.sum().backward()


def kept(loss):
    """A pass whose graph is kept for another."""
    loss.sum().backward(retain_graph=True)


def forwardOnly(loss):
    """No pass at all."""
    loss.sum()


def failing(loss):
    """A pass that raises."""
    with pytest.raises(ValueError, match="no gradient today"):
        Fails.apply(loss).sum().backward()


def hooked(loss):
    """A pass with hooks on a leaf, on what an operation made and on its node."""
    y = loss.sum()
    loss.register_hook(lambda g: g * 2)
    y.grad_fn.register_hook(lambda given, taken: None)
    y.backward()


def retained(loss):
    """A pass that tells a Variable that is no leaf its gradient."""
    y = loss * 2
    y.retain_grad()
    y.sum().backward(retain_graph=True)
    assert y.grad is not None


NETS = {
    "Linear": lambda: Sequential(Linear(8, 8, name="a"), Relu(name="r"), name="n").calcMode(np.float64),
    "Dropout": lambda: Sequential(Dropout(0.5, name="d"), BatchNorm(8, name="b"), name="n").calcMode(np.float64),
}
OPERATIONS = {
    "operators": lambda v: (v * v + v) / (v * v + 2) - v,
    "functions": lambda v: np.exp(v) + np.sin(v) ** 2 + np.concatenate([v, v])[:4],
    "options": lambda v: np.sum(v, axis=0, keepdims=True) + np.max(v, axis=0),
    "a Function": lambda v: Cube.apply(v),
    "a module": lambda v: Relu()(v),
    "a graph": lambda v: NETS["Linear"]()(v),
    "masks": lambda v: NETS["Dropout"]()(v),
    "out=": lambda v: np.multiply(v, v, out=Variable(np.zeros((4, 8)))),
}
PASSES = {f.__name__: f for f in (backwardOf, kept, forwardOnly, failing, hooked, retained)}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("passed", PASSES)
def test_a_leaf_and_its_gradient_are_freed_with_their_last_user(operation, passed):
    data = np.ones((4, 8))
    alive = weakref.ref(data)
    v = Variable(data, requires_grad=True)
    PASSES[passed](OPERATIONS[operation](v))
    held = weakref.ref(v)
    del data, v
    assert held() is None and alive() is None


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_was_differentiated_by_grad_is_freed(operation):
    v = Variable(np.ones((4, 8)), requires_grad=True)
    (g,) = grad(OPERATIONS[operation](v).sum(), v)
    held = weakref.ref(v)
    del v
    assert held() is None and g.shape == (4, 8)


def test_a_graph_of_gradients_is_freed():
    v = Variable(np.ones((4, 8)), requires_grad=True)
    y = (v * v * v).sum()
    (g,) = grad(y, v, create_graph=True)
    (h,) = grad(g.sum(), v)
    held = weakref.ref(v)
    del v, y, g
    assert held() is None and np.allclose(h, 6)


def test_derivatives_along_a_direction_are_freed():
    x = np.ones((4, 8))
    alive = weakref.ref(x)
    jvp(lambda a: np.exp(a) * a, x, np.ones((4, 8)))
    vjp(lambda a: np.exp(a) * a, x, np.ones((4, 8)))
    net = NETS["Linear"]()
    jvp(net, x, np.ones((4, 8)))
    vjp(net, x, np.ones((4, 8)))
    del x
    assert alive() is None


def test_a_leaf_keeps_its_hooks_when_the_graph_is_gone():
    v = Variable(np.ones(3), requires_grad=True)
    handle = v.register_hook(lambda g: g * 10)
    for _ in range(2):
        v.zero_grad()
        (v * 2).sum().backward()
        assert v.grad.tolist() == [20, 20, 20]
    handle.remove()
    v.zero_grad()
    (v * 2).sum().backward()
    assert v.grad.tolist() == [2, 2, 2]


def test_an_edge_of_a_leaf_keeps_it():
    v = Variable(np.ones(3), requires_grad=True)
    edge = get_gradient_edge(v)
    held = weakref.ref(v)
    del v
    assert held() is edge.node.variable
    (edge.node.variable * 3).sum().backward()
    assert held().grad.tolist() == [3, 3, 3]


@pytest.mark.parametrize("build", [lambda: Relu(), lambda: Dropout(0.5), lambda: Linear(8, 8), lambda: BatchNorm(8)])
@pytest.mark.parametrize("goesBack", [False, True])
def test_a_module_that_was_called_on_arrays_is_freed_with_its_data(build, goesBack):
    x = np.ones((4, 8), np.float32)
    alive = weakref.ref(x)
    module = build()
    y = module(x)
    if goesBack:
        module.backward(np.ones_like(y))
        assert module.grad.shape == (4, 8)
    held = weakref.ref(module)
    del x, y, module
    assert held() is None and alive() is None


def test_one_pass_of_a_graph_frees_the_one_before():
    net = Sequential(Linear(8, 8, name="a"), Dropout(0.5, name="d"), name="n")
    alive = []
    for _ in range(3):
        x = np.ones((4, 8), np.float32)
        alive.append(weakref.ref(x))
        y = net(x)
        net.backward(np.ones_like(y))
        del x, y
    assert [a() is None for a in alive] == [True, True, False]


def test_a_pass_that_fails_keeps_nothing():
    net = Sequential(Linear(8, 8, name="a"), name="n")
    x = np.ones((4, 9), np.float32)
    alive = weakref.ref(x)
    for call in (net, net["a"], Linear(8, 8)):
        with pytest.raises(ShapeError):
            call(x)
    with pytest.raises(GraphError):
        net(x, x)
    del x
    assert alive() is None


def test_a_cost_on_variables_frees_its_batch():
    net = Sequential(Linear(8, 3, name="a"), name="n")
    cost = CrossEntropy()
    x = np.ones((4, 8), np.float32)
    alive = weakref.ref(x)
    cost(net(Variable(x)), np.zeros(4, int)).backward()
    del x
    assert alive() is None and net["a"].W.grad.shape == (8, 3)


def test_three_hundred_steps_with_two_megabytes_stay_flat():
    x = np.zeros(250_000)
    before = resident()
    for _ in range(300):
        v = Variable(x, requires_grad=True)
        (v * v).sum().backward()
    assert resident() - before < 50e6, "600 MB if each step's leaf and gradient stayed"


def test_graphs_that_are_made_anew_are_freed_by_the_collector():
    i = Input(name="x").node()
    net = Graph(i, Relu(name="r").node(i), name="n")
    x = np.ones((4, 8), np.float32)
    alive = weakref.ref(x)
    net(x)
    del i, net, x
    gc.collect()
    assert alive() is None


def convolutional():
    """Conv, BatchNorm, shared values and pooling before a linear layer."""
    i = Input(name="x").node()
    h = Relu(name="r")(BatchNorm(4, name="n")(Conv2D(3, 4, 3, name="c")(i)))
    return Graph(i, Linear(4, 2, name="l")(GlobalAvgPool(name="p")(Add(name="a")(h, h))), name="net")


@pytest.mark.parametrize(
    "build",
    [
        make_backward_function,
        lambda net: make_backward_function(net, data_forwarding_strategy="recompute_all"),
        lambda net: add_backward_pass(net, ["l"], ["c.W", "l.b"]),
        lambda net: add_backward_pass(net, ["l"], ["c.W"], budget=50_000, shapes=[(2, 3, 8, 8)]),
        BackwardGraph,
    ],
    ids=["apart", "recomputed", "joint", "budget", "graph"],
)
def test_graphs_of_gradients_leave_nothing_to_the_collector(build):
    net = convolutional()
    for _ in range(3):
        build(net)
    gc.collect()
    for _ in range(200 if build is make_backward_function else 5):
        build(net)
    assert gc.collect() == 0


def test_a_dropped_graph_of_gradients_keeps_the_nodes_behind_the_one_that_is_held():
    joint = add_backward_pass(convolutional(), ["l"], ["c.W"])
    last, first = joint.outputs[-1][0], joint.inputs[0]
    assert first.fwds and joint.nodes[-1].module is not None
    del joint
    seen = []
    Node.traverseBackward(last, seen.append)
    assert first in seen and all(link.node in seen for node in seen for link in node.fwds)
    forward = []
    Node.traverseForward(first, forward.append)
    assert last in forward
    del last, seen, forward
    assert not first.fwds


def test_a_chain_of_many_gradients_is_freed_without_recursion():
    i = node = Input(name="x").node()
    relu = Relu(name="r")
    for _ in range(20_000):
        node = relu.node(node)
    held = weakref.ref(BackwardGraph(Graph(i, node)).seeds[0])
    assert held() is None


@pytest.mark.parametrize("isCompiled", [True, False])
@pytest.mark.parametrize("kind", ["Trainer", "Validator", "Calculator"])
def test_what_runs_a_network_is_freed_with_its_programs(kind, isCompiled):
    net, x, t = convolutional(), np.ones((4, 3, 8, 8), np.float32), np.zeros((4, 2), np.float32)
    if kind == "Trainer":
        runner = Trainer(net, MSE(), SGD(0.1), compile=isCompiled, callbacks=[])
        runner.train(x, t, epochs=1)
    elif kind == "Validator":
        runner = Validator(net, MSE(), compile=isCompiled)
        runner.validate(x, t)
    else:
        runner = Calculator(net, compile=isCompiled)
        runner.calculate(x)
    programs = [weakref.ref(program) for program in runner.objective.programs.kept.values()]
    held = [weakref.ref(runner), weakref.ref(runner.objective), weakref.ref(runner.objective.programs), *programs]
    assert len(programs) == isCompiled
    del runner
    assert [one() for one in held] == [None] * len(held)


def resident() -> float:
    """The bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
