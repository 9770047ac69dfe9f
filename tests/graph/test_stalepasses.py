"""A gradient is that of the pass that ran: of its modes, its rules, its parameters and its values, or it is refused."""

import copy

import numpy as np
import pytest

import puregraph
from puregraph import (
    SGD,
    Adam,
    BackwardGraph,
    BatchNorm,
    Concat,
    Dropout,
    Graph,
    GroupNorm,
    Input,
    LayerNorm,
    Linear,
    Module,
    MomentumSGD,
    Parallel,
    Param,
    PuregraphError,
    Sequential,
    Split,
    Sum,
    Tanh,
    autodiff,
    registerRule,
)
from puregraph.autodiff import Checkpoint, ForwardGraph, Variable, checkpoint, vjp
from puregraph.compile import Program
from puregraph.compile.updater import Updater
from puregraph.core.base.fingerprint import fingerprint

MODAL = {
    "Dropout": lambda: Dropout(0.5, name="m"),
    "BatchNorm": lambda: BatchNorm(6, name="m"),
    "LayerNorm": lambda: LayerNorm(6, name="m"),
    "GroupNorm": lambda: GroupNorm(2, 6, name="m"),
    "Linear": lambda: Linear(6, 6, name="m"),
}
CHANGED = "the forward pass was in {}Mode, the module is in {}Mode by now"


def single(module, x, change):
    """A module on its own."""
    y = module(x)
    change(module)
    module.backward(np.ones_like(y))


def node(module, x, change):
    """A node on its own."""
    n = module.node()
    n.updateData(x)
    change(module)
    n.updateGrad(np.ones_like(x))


def branch(module, x, change):
    """A branch of nodes without a graph."""
    n = module.node()
    n.forward(x)
    change(module)
    n.backward(np.ones_like(x))


def onTape(module, x, change):
    """A module on Variables."""
    y = module(Variable(x, requires_grad=True))
    change(module)
    y.backward(np.ones_like(x))


def graphOnTape(module, x, change):
    """A graph on Variables."""
    y = Sequential(module, name="net")(Variable(x, requires_grad=True))
    change(module)
    y.backward(np.ones_like(x))


def inGraph(module, x, change):
    """A graph."""
    net = Sequential(module, name="net")
    net(x)
    change(module)
    net.backward(np.ones_like(x))


def nested(module, x, change):
    """A graph in a graph."""
    net = Sequential(Sequential(module, name="inner"), name="net")
    net(x)
    change(module)
    net.backward(np.ones_like(x))


def asNode(module, x, change):
    """A graph that is run as one node."""
    n = Sequential(module, name="net").node()
    n.updateData(x)
    change(module)
    n.updateGrad(np.ones_like(x))


def backwardObject(module, x, change):
    """The backward graph as an object."""
    net = Sequential(module, name="net")
    back = BackwardGraph(net)
    net(x)
    change(module)
    back(np.ones_like(x))


def analog(module, x, change):
    """A graph of callables."""
    graph = ForwardGraph()
    graph.add_connection(graph.INPUT, module, graph.OUTPUT)
    graph.compile(is_static=True)
    back = autodiff.BackwardGraph().from_forward(graph)
    graph(x, is_training=True)
    change(module)
    back(np.ones_like(x))


def analogOfGraph(module, x, change):
    """An editable backward graph of a graph."""
    net = Sequential(module, name="net")
    back = autodiff.BackwardGraph().from_forward(net)
    net(x)
    change(module)
    back(np.ones_like(x))


def recomputed(module, x, change):
    """A part of a graph that is computed again."""
    net = Sequential(Checkpoint(Sequential(module, name="inner")), name="net")
    net(x)
    change(module)
    net.backward(np.ones_like(x))


def recomputedModule(module, x, change):
    """A module that is computed again."""
    net = Sequential(Checkpoint(module), name="net")
    net(x)
    change(module)
    net.backward(np.ones_like(x))


def recomputedFunction(module, x, change):
    """A function on Variables that is computed again."""
    y = checkpoint(lambda v: module(v), Variable(x, requires_grad=True))
    change(module)
    y.backward(np.ones_like(x))


WAYS = {
    f.__name__: f
    for f in (
        *(single, node, branch, onTape, graphOnTape, inGraph, nested, asNode, backwardObject, analog, analogOfGraph),
        *(recomputed, recomputedModule, recomputedFunction),
    )
}


@pytest.mark.parametrize("kind", MODAL)
@pytest.mark.parametrize("way", WAYS)
def test_a_mode_that_changed_between_forward_and_backward_is_refused(way, kind):
    x = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    with pytest.raises(PuregraphError, match="mode|Mode"):
        WAYS[way](MODAL[kind](), x, lambda module: module.evalMode())
    with pytest.raises(PuregraphError, match="mode|Mode"):
        WAYS[way](MODAL[kind]().evalMode(), x, lambda module: module.trainMode())


@pytest.mark.parametrize("way", WAYS)
def test_a_mode_that_was_set_to_what_it_was_changes_nothing(way):
    x = np.ones((5, 6), np.float32)
    WAYS[way](Dropout(0.5, name="m"), x, lambda module: module.trainMode())
    WAYS[way](Dropout(0.5, name="m"), x, lambda module: module.evalMode().trainMode())
    WAYS[way](Dropout(0.5, name="m"), x, lambda module: None)


def test_the_refusal_says_which_module_and_what_to_do():
    module = Dropout(0.5, name="drop")
    y = module(np.ones((1, 6), np.float32))
    module.evalMode()
    with pytest.raises(PuregraphError) as error:
        module.backward(np.ones_like(y))
    assert str(error.value) == (
        "at 'drop' (Dropout), backward: the forward pass was in trainMode, the module is in evalMode by now; "
        "go backward before the mode is changed, or run the forward pass again"
    )


# Rules ----------------------------------------------------------------------------------------------------------------


class Doubling(Module):
    """y = 2 x."""

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return 2 * x

    def updateGrad(self, grad, x, y):
        return 2 * grad


@pytest.fixture
def registry(monkeypatch):
    """Rules that are registered in a test are gone after it."""
    monkeypatch.setattr(puregraph.core.rules, "REGISTRY", {})


def hundredfold(module, grad, x, y):
    """Not the derivative, so that one can tell it apart."""
    return (grad * 100,)


def graphOf(module):
    """A graph of one module."""
    return Sequential(module, name="net")


def graphInGraph(module):
    """A graph in a graph."""
    return Sequential(Sequential(module, name="inner"), name="net")


def gradOf(net, module, x):
    """A pass of a graph."""
    net(x)
    net.backward(np.ones_like(x))
    return net.grad


def editableGradOf(net, module, x):
    """A pass of an editable backward graph, made once."""
    back = vars(net).setdefault("back", autodiff.BackwardGraph().from_forward(net))
    net(x)
    return back(np.ones_like(x))


def vjpOf(net, module, x):
    """The gradients without a trace."""
    return vjp(net, x, np.ones_like(x)).inputs


def tapeOf(net, module, x):
    """A pass on Variables."""
    v = Variable(x, requires_grad=True)
    net(v).backward(np.ones_like(x))
    return v.grad


def compiledGradOf(net, module, x):
    """A pass of one compiled program."""
    program = vars(net).setdefault("program", Program(net, [x.shape], [x.dtype], None, grads=(True,)))
    program.run(x, np.ones_like(x))
    return program.grad


PASSES = {f.__name__: f for f in (gradOf, editableGradOf, vjpOf, tapeOf, compiledGradOf)}


@pytest.mark.parametrize("passed", PASSES)
@pytest.mark.parametrize("build", [graphOf, graphInGraph])
def test_a_rule_that_is_registered_after_the_first_pass_counts_from_then_on(registry, build, passed):
    module, x = Doubling(name="m"), np.ones(3, np.float32)
    net = build(module)
    assert PASSES[passed](net, module, x).tolist() == [2, 2, 2]
    registerRule(Doubling)(hundredfold)
    assert PASSES[passed](net, module, x).tolist() == [100, 100, 100]


@pytest.mark.parametrize("passed", PASSES)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_rule_that_a_node_is_told_after_the_first_pass_counts_from_then_on(registry, depth, passed):
    module, x = Doubling(name="m"), np.ones(3, np.float32)
    registerRule(Doubling, name="hundred")(hundredfold)
    net = inner = Sequential(module, name="net1")
    for level in range(2, depth + 1):
        net = Sequential(net, name=f"net{level}")
    assert PASSES[passed](net, module, x).tolist() == [2, 2, 2]
    inner.nodes[-1].rule = "hundred"
    assert PASSES[passed](net, module, x).tolist() == [100, 100, 100]
    inner.nodes[-1].rule = None
    assert PASSES[passed](net, module, x).tolist() == [2, 2, 2]


@pytest.mark.parametrize("passed", PASSES)
def test_a_gradient_rule_that_is_set_on_a_module_counts_from_then_on(passed):
    module, x = Doubling(name="m"), np.ones(3, np.float32)
    net = graphOf(module)
    assert PASSES[passed](net, module, x).tolist() == [2, 2, 2]
    module.updateGrad = lambda grad, x, y: 100 * grad
    assert PASSES[passed](net, module, x).tolist() == [100, 100, 100]


def test_a_forward_rule_that_is_set_on_a_module_counts_from_then_on():
    module, x = Doubling(name="m"), np.ones(3, np.float32)
    net = graphOf(module)
    assert net(x).tolist() == module(x).tolist() == [2, 2, 2]
    module.updateData = lambda x: 5 * x
    assert net(x).tolist() == module(x).tolist() == [5, 5, 5]


# Gradients of an earlier pass -----------------------------------------------------------------------------------------


def twoHeads():
    """A net with two outputs that share one layer."""
    i = Input(name="x").node()
    h = Linear(2, 3, name="h").node(i)
    return Graph(i, [Linear(3, 1, name="a").node(h), Linear(3, 1, name="b").node(h)], name="n")


OPTIMIZERS = {"SGD": lambda: SGD(0.1), "MomentumSGD": lambda: MomentumSGD(0.1, 0.9), "Adam": lambda: Adam(0.1)}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_parameter_that_a_pass_does_not_reach_has_no_gradient_after_it(optimizer):
    net = twoHeads()
    opt = OPTIMIZERS[optimizer]().setupOn(net)
    x, g = np.ones((1, 2), np.float32), np.ones((1, 1), np.float32)
    net(x)
    net.backward([g, g])
    opt.update()
    before = {path: p.data.copy() for path, p in net.params.items()}
    net(x)
    net.backward([g, None])
    assert net["b"].W.grad is None and net["b"].b.grad is None and net["a"].W.grad is not None
    opt.update()
    moved = {path for path, p in net.params.items() if not np.array_equal(p.data, before[path])}
    assert moved == {"h.W", "h.b", "a.W", "a.b"}


def test_momentum_keeps_its_part_of_a_gradient_that_a_pass_does_not_reach():
    net = twoHeads()
    x, g = np.ones((1, 2), np.float32), np.ones((1, 1), np.float32)
    net(x)
    net.backward([g, g])
    whole = net["b"].W.grad.copy()
    net.backward([g, None], momentum=1.0)
    assert np.array_equal(net["b"].W.grad, whole)
    net.backward([g, None], momentum=0.5)
    assert np.array_equal(net["b"].W.grad, whole / 2)
    net.backward([g, None], scale=3.0)
    assert net["b"].W.grad is None


def test_what_a_pass_is_told_to_leave_alone_it_leaves_alone():
    net = twoHeads()
    x, g = np.ones((1, 2), np.float32), np.ones((1, 1), np.float32)
    net(x)
    net.backward([g, g])
    whole = net["b"].W.grad
    net.backward([g, None], updParamGrads=False)
    assert net["b"].W.grad is whole
    net["b"].W.trainable = False
    net.backward([g, None])
    assert net["b"].W.grad is whole and net["b"].b.grad is None


def test_a_branch_of_nodes_leaves_no_gradient_of_an_earlier_pass():
    i = Input(name="x").node()
    split = Split(axis=1, sections=(1, 1), name="s").node(Linear(2, 2, name="h").node(i))
    end = Linear(1, 1, name="a").node((split, 0))
    other = Linear(1, 1, name="b").node((split, 1))
    last = Concat(axis=1, name="c").node(end, other)
    x, g = np.ones((1, 2), np.float32), np.ones((1, 2), np.float32)
    i.forward(x)
    last.backward(g)
    first = {n.name: n.module.W.grad.copy() for n in (end, other)}
    last.backward(g, momentum=1.0)
    assert all(np.allclose(n.module.W.grad, 2 * first[n.name]) for n in (end, other))
    last.backward(g, momentum=0.5, scale=2.0)
    assert all(np.allclose(n.module.W.grad, 3 * first[n.name]) for n in (end, other))


def test_a_module_with_a_gradient_for_nothing_keeps_none():
    i = Input(name="x").node()
    shared = Linear(2, 2, name="h")
    first, second = shared.node(i, name="one"), shared.node(i, name="two")
    last = Concat(axis=1, name="c").node(first, second)
    x, g = np.ones((1, 2), np.float32), np.ones((1, 4), np.float32)
    i.forward(x)
    last.backward(g)
    once = shared.W.grad.copy()
    last.backward(g, momentum=0.5)
    assert np.allclose(shared.W.grad, 1.5 * once)
    alone = shared.node(i, name="three")  # which has no readers
    alone.updateData(None)
    alone.updateGrad(None)
    assert shared.W.grad is None


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_one_optimizer_of_two_graphs_applies_each_gradient_once(optimizer):
    nets = [Sequential(Linear(2, 1, name=name), name=name * 2) for name in "ab"]
    both = Parallel(*nets, name="both")
    opt = OPTIMIZERS[optimizer]().setupOn(both)
    x, g = np.ones((1, 2), np.float32), np.ones((1, 1), np.float32)
    for net in nets:
        net(x)
        net.backward(g)
    opt.update()
    for net, other in (nets, nets[::-1]):
        before = [p.data.copy() for p in other.params.values()]
        net(x)
        net.backward(g)
        opt.update()
        assert all(np.array_equal(p.data, b) for p, b in zip(other.params.values(), before))
        assert all(slot.step >= 1 for slot in opt.slots)


def test_a_gradient_is_applied_again_where_none_is_new():
    net = Sequential(Linear(2, 1, name="a"), name="n")
    opt = SGD(0.5).setupOn(net)
    net["a"].W.grad = np.ones((2, 1), np.float32)
    net["a"].b.grad = np.ones(1, np.float32)
    start = net["a"].W.data.copy()
    opt.update()
    opt.update()
    assert np.allclose(net["a"].W.data, start - 1)


def test_two_optimizers_of_one_parameter_each_apply_its_gradient():
    net = Sequential(Linear(2, 1, name="a"), name="n")
    first, second = SGD(0.5).setupOn(net), SGD(0.25).setupOn(net)
    x, g = np.zeros((1, 2), np.float32), np.ones((1, 1), np.float32)
    start = net["a"].b.data.copy()
    net(x)
    net.backward(g)
    first.update()
    second.update()
    assert np.allclose(net["a"].b.data, start - 0.75)


def test_a_compiled_update_leaves_gradients_that_were_applied_alone():
    nets = [Sequential(Linear(2, 1, name=name), name=name * 2) for name in "ab"]
    both = Parallel(*nets, name="both")
    opt = SGD(0.1).setupOn(both)
    x, g = np.ones((1, 2), np.float32), np.ones((1, 1), np.float32)
    for net in nets:
        net(x)
        net.backward(g)
    update = Updater(both, opt)
    update.run()
    before = nets[1]["b"].W.data.copy(), nets[0]["a"].W.data.copy()
    nets[0](x)
    nets[0].backward(g)
    update.run()
    assert np.array_equal(nets[1]["b"].W.data, before[0]) and not np.array_equal(nets[0]["a"].W.data, before[1])


def test_a_compiled_step_counts_its_gradients_as_applied():
    nets = [Sequential(Linear(2, 1, name=name), Sum(name="s"), name=name * 2) for name in "ab"]
    opt = SGD(0.1).setupOn(Parallel(*nets, name="both"))
    x, g = np.ones((1, 2), np.float32), np.ones((), np.float32)
    Program(nets[0], [x.shape], [x.dtype], True, grads="one", optimizer=opt).run(x)
    before = nets[0]["a"].W.data.copy()
    nets[1](x)
    nets[1].backward(g)
    opt.update()
    assert np.array_equal(nets[0]["a"].W.data, before)


def test_a_compiled_pass_leaves_no_gradient_of_an_earlier_one():
    net = twoHeads()
    x, g = np.ones((1, 2), np.float32), np.ones((1, 1), np.float32)
    net(x)
    net.backward([g, g])
    program = Program(net, [x.shape], [x.dtype], None, grads=(True, False))
    program.run(x, g)
    assert net["b"].W.grad is None and net["a"].W.grad is not None


# Values that are modified in place ------------------------------------------------------------------------------------

SHAPE = (6, 40)


def readsAll():
    """A module whose gradient rule reads its input, its parameter and its output."""
    return Reader(name="m")


class Reader(Module):
    """y = tanh(x W)."""

    def __init__(self, name=None):
        super().__init__(name)
        self.W = Param((40,), "ones")

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x, W):
        return np.tanh(x * W)

    def updateGrad(self, grad, x, W, y):
        slope = grad * (1 - y * y)
        return slope * W, (slope * x).sum(axis=0)


def byData(module, x, y):
    module.W.data[3] += 0.5


def byItem(module, x, y):
    module.W.data[7:8] = 2.0


def byOut(module, x, y):
    np.add(module.W.data, 1, out=module.W.data)


def byOrder(module, x, y):
    module.W.data[:2] = module.W.data[1::-1] + [0.25, -0.25]


def byOptimizer(module, x, y):
    module.W.grad = np.ones(40, np.float32)
    SGD(0.1).setupOn(module).update()


def byProgram(module, x, y):
    net = Sequential(module, Sum(name="s"), name="other")
    Program(net, [x.shape], [x.dtype], True, grads="one", optimizer=SGD(0.1).setupOn(net)).run(x)


WRITERS = {f.__name__: f for f in (byData, byItem, byOut, byOrder, byOptimizer, byProgram)}
LATER = "was modified in place since the forward pass"


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("way", WAYS)
def test_a_parameter_that_is_modified_between_forward_and_backward_is_refused(way, writer):
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    with pytest.raises(PuregraphError, match=LATER):
        WAYS[way](readsAll(), x, lambda module: WRITERS[writer](module, x, None))


@pytest.mark.parametrize("way", WAYS)
def test_a_parameter_that_somebody_holds_may_be_read_and_not_written(way):
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    module = readsAll()
    held = module.W.data
    WAYS[way](module, x, lambda module, held=held: held.sum() + module.W.data.sum())
    with pytest.raises(PuregraphError, match=LATER):
        WAYS[way](module, x, lambda module, held=held: held.__setitem__(5, 3.0))
    del held
    WAYS[way](module, x, lambda module: [float(np.linalg.norm(module.W.data)) for _ in range(9)])
    WAYS[way](module, x, lambda module: setattr(module.W, "trainable", False))


@pytest.mark.parametrize("way", [w for w in WAYS if not w.startswith("recomputed")])
def test_a_parameter_with_another_array_leaves_the_gradient_of_the_pass_that_ran(way):
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    module, same = readsAll(), readsAll()
    WAYS[way](same, x, lambda module: None)
    WAYS[way](module, x, lambda module: setattr(module.W, "data", np.full(40, 9.0, np.float32)))
    assert np.array_equal(module.W.grad, same.W.grad)


def test_a_parameter_that_no_rule_reads_may_be_modified():
    net = Sequential(Linear(6, 6, name="a"), Linear(6, 3, name="b"), name="n")
    x, g = np.ones((2, 6), np.float32), np.ones((2, 3), np.float32)
    net(x)
    net["a"].b.data[0] += 1
    net["b"].b.data[0] += 1
    net.backward(g)
    net["b"].W.data[0] += 1
    with pytest.raises(PuregraphError, match=r"at 'b', backward: 'b.W' was modified in place since the forward pass"):
        net.backward(g)


def test_another_pass_forward_makes_a_modified_parameter_right_again():
    net = Sequential(readsAll(), name="n")
    x = np.ones(SHAPE, np.float32)
    for _ in range(3):
        y = net(x)
        net.backward(np.ones_like(y))
        net["m"].W.data[0] += 1


ARRAYS = {f.__name__: f for f in (single, node, branch, inGraph, nested, asNode, backwardObject, analogOfGraph)}
COUNTER = {
    "one element": lambda a: a.__setitem__((2, 3), 7.0),
    "all": lambda a: a.__imul__(0.5),
    "rows in another order": lambda a: a.__setitem__(slice(None), a[::-1].copy()),
    "two elements exchanged": lambda a: a.__setitem__(([0, 1], [0, 0]), a[[1, 0], 0]),
    "the last bit": lambda a: a.view(np.uint32).__ixor__(np.uint32(1)),
    "the last element": lambda a: a.__setitem__((-1, -1), 0.0),
    "nan": lambda a: a.__setitem__((0, 0), np.nan),
}


@pytest.mark.parametrize("rows", [3, 300])
@pytest.mark.parametrize("change", COUNTER)
@pytest.mark.parametrize("way", ARRAYS)
def test_an_input_that_is_modified_between_forward_and_backward_is_refused(way, change, rows):
    x = np.random.default_rng(0).standard_normal((rows, 40)).astype(np.float32)
    with pytest.raises(PuregraphError, match=LATER):
        ARRAYS[way](readsAll(), x, lambda module: COUNTER[change](x))


@pytest.mark.parametrize("rows", [3, 300])
@pytest.mark.parametrize("change", COUNTER)
def test_an_output_that_is_modified_between_forward_and_backward_is_refused(change, rows):
    x = np.random.default_rng(0).standard_normal((rows, 40)).astype(np.float32)
    module, net = readsAll(), Sequential(readsAll(), name="n")
    for each in (module, net):
        y = each(x)
        COUNTER[change](y)
        with pytest.raises(PuregraphError, match=LATER):
            each.backward(np.ones_like(y))


def test_what_no_rule_reads_may_be_modified(registry):
    net = Sequential(readsAll(), Linear(40, 3, name="out"), name="n")
    x = np.ones(SHAPE, np.float32)
    y = net(x)
    y -= 1  # the gradient of a squared error, in the output's own memory
    net.backward(y)
    tanh = Tanh()
    y = tanh(x)
    x[:] = 5  # its gradient is that of its output
    tanh.backward(np.ones_like(y))


@pytest.mark.parametrize("seed", range(20))
def test_a_fingerprint_tells_any_two_arrays_apart(seed):
    rng = np.random.default_rng(seed)
    dtype = rng.choice([np.float32, np.float64, np.float16, np.int64, np.uint8, bool])
    shape = tuple(rng.integers(1, 90, rng.integers(0, 4)))
    a = np.array(rng.standard_normal(shape) * 50).astype(dtype)
    before = fingerprint(a)
    assert before == fingerprint(a.copy()) == fingerprint(np.asfortranarray(a))
    for _ in range(20):
        b = a.copy()
        if rng.integers(2):
            b.reshape(-1)[:] = rng.permutation(b.reshape(-1))
        else:
            b.reshape(-1).view(np.uint8)[rng.integers(b.nbytes)] ^= 1
        assert (fingerprint(b) == before) == (a.tobytes() == b.tobytes())


def test_a_list_of_modules_keeps_the_rules_of_its_nodes(registry):
    registerRule(Doubling, name="hundred")(hundredfold)
    x = np.ones(3, np.float32)
    net = Sequential(Doubling(name="a"), Doubling(name="b"), name="net")
    net.nodes[-1].rule = "hundred"
    edited = copy.deepcopy(net).append(Doubling(name="c"))
    del edited["a"]
    for each in (net, copy.deepcopy(net), edited):
        assert gradOf(each, None, x).tolist() == [200, 200, 200]
    del edited["b"]
    assert gradOf(edited, None, x).tolist() == [2, 2, 2]


def test_what_a_node_has_made_can_be_read_but_not_written_to():
    net = Sequential(Linear(3, 4, name="a"), Tanh(name="t"), Split(1, (2, 2), name="s"), name="net")
    x = np.random.default_rng(0).standard_normal((2, 3)).astype("f4")
    ys = net(x)
    inner = net.getNodeByName("t").data
    with pytest.raises(ValueError, match="read-only"):
        inner[0, 0] = 5
    with pytest.raises(ValueError, match="read-only"):
        net.getNodeByName("s").data[1][...] = 0
    net.backward([np.ones_like(y) for y in ys])
    np.testing.assert_array_equal(inner, np.concatenate(ys, axis=1))
    assert ys[0].flags.writeable, "a result is its user's"
    y = Tanh()(x)
    y[0] = 0
