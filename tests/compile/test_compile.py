"""Programs: what a run gives, when it is compiled anew, its errors and its tables."""

import copy
import pickle
import threading

import numpy as np
import pytest
from smallsteps import batch, classifier, same
from smallsteps import plain as plain

from puregraph import (
    MSE,
    SGD,
    Adam,
    BatchNorm,
    CrossEntropy,
    Dropout,
    Embedder,
    Graph,
    Identity,
    Input,
    Linear,
    MomentumSGD,
    Relu,
    Sequential,
    Split,
    Sum,
    Tanh,
    Transpose,
)
from puregraph.compile import Program
from puregraph.compile.trace.withcost import withCost
from puregraph.core.errors import DataError, DtypeError, GraphError, GraphWarning, PuregraphError, ShapeError

pytestmark = pytest.mark.usefixtures("numpyOnly")


# A run ----------------------------------------------------------------------------------------------------------------


def test_a_program_gives_what_its_graph_gives(rng):
    net, (x, _) = classifier(), batch(rng)
    program = net.compile(x.shape, train=False)
    assert same(program.run(x), net.evalMode()(x))
    assert program.why == "" and program.grad is None and "Program of Sequential" in repr(program)


def test_outputs_stay_as_they_are_after_the_next_run(rng):
    net, (x, _) = classifier(), batch(rng)
    program = net.compile(x.shape)
    first = program.run(x)
    kept = first.copy()
    lent = program.run(x, copy=False)
    assert np.shares_memory(lent, program.executable.memory.arena) and not np.shares_memory(
        first, program.executable.memory.arena
    )
    program.run(x + 1)
    assert same(first, kept) and not same(lent, kept)


def test_several_inputs_and_outputs(rng):
    a, b = Input(name="a").node(), Input(name="b").node()
    parts = Split(1, (2, 3), name="parts").node(a)
    net = Graph([a, b], [(parts, 1), Identity().node(b), Tanh().node((parts, 0))]).calcMode("float64")
    x, y = rng.standard_normal((2, 5)), rng.standard_normal(3)
    found = net.compile([(2, 5), (3,)]).run(x, y)
    assert [same(u, v) for u, v in zip(found, net([x, y]), strict=True)] == [True] * 3
    assert not np.shares_memory(found[1], y)


def test_a_step_with_cost_and_optimizer_is_that_of_the_graph(rng):
    net, (x, t) = classifier(BatchNorm(6), Dropout(0.3)), batch(rng)
    twin = copy.deepcopy(net)
    program = net.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=Adam(0.01))
    task, optimizer = withCost(twin, CrossEntropy(), 1, 1), Adam(0.01).setupOn(twin)
    for _ in range(3):
        cost, output = program.run(x, t)
        optimizer.zeroGradParams()
        wanted = task([x, t])
        task.backward([np.ones_like(wanted[0]), None], updGrad=False)
        optimizer.update()
        assert same(cost, wanted[0]) and same(output, wanted[1])
        for path, p in net.params.items():
            assert same(p.data, twin.params[path].data) and same(p.grad, twin.params[path].grad), path
        for path, s in net.states.items():
            assert same(s.data, twin.states[path].data), path


def test_gradients_are_left_where_a_user_looks_for_them(rng):
    net, (x, t) = classifier(), batch(rng)
    program = net.compile([x.shape, t.shape], cost=CrossEntropy())
    program.run(x, t)
    first = net.params["linear.W"].grad
    kept = first.copy()
    program.run(-x, t)
    assert net.params["linear.W"].grad is first and not same(first, kept)
    alone = net.compile([x.shape, t.shape], cost=CrossEntropy(), keepGrads=False, updGrad=True)
    for p in net.params.values():
        p.grad = None
    alone.run(x, t)
    assert all(p.grad is None for p in net.params.values())
    assert alone.grad[0].shape == x.shape and alone.grad[1] is None


def test_gradients_of_outputs_are_given_where_there_is_no_cost(rng):
    net, (x, _) = classifier(), batch(rng)
    g = rng.standard_normal((8, 3))
    program = net.compile(x.shape, train=True)
    found = program.run(x, g)
    net.trainMode()
    assert same(found, net(x))
    net.backward(g)
    assert same(program.grad, net.grad)
    number = Sequential(Linear(4, 1), Sum()).calcMode("float64")
    program = number.compile(x.shape, train=True)
    program.run(x)
    number(x)
    number.backward()
    assert same(program.grad, number.grad)


def test_an_optimizer_wants_a_number(rng):
    with pytest.raises(GraphError, match="an optimizer needs one number to minimize: give a cost"):
        classifier().compile((8, 4), optimizer=SGD())


@pytest.mark.parametrize("train", [True, False])
def test_a_mode_may_be_given(train, rng):
    net, (x, _) = classifier(Dropout(0.5)), batch(rng)
    _ = net.evalMode() if train else net.trainMode()
    program = Program(net, [x.shape], train=train)
    a, b = program.run(x), program.run(x)
    assert same(a, b) != train
    assert all(m.isTraining is not train for m in net.modules().values())


def test_whole_numbers_get_their_dtype(rng):
    net = Sequential(Embedder(7, 4), Linear(4, 2))
    program = net.compile((3, 5))
    x = rng.integers(0, 7, (3, 5))
    assert program.dtypes == [np.dtype(np.int64)] and same(program.run(x.astype("int32")), net(x))


def test_large_inputs_are_read_where_they_lie(rng):
    net = Sequential(Linear(300, 4), Relu()).calcMode("float64")
    program = net.compile((20, 300))
    x, y = rng.standard_normal((2, 20, 300))
    assert same(program.run(x), net(x)) and same(program.run(y), net(y))
    (entry,) = program.executable.inputs
    assert not entry.fixed and entry.readers and any(a is y for reader in entry.readers for a in reader[0])
    turned = np.asfortranarray(x)
    assert same(program.run(turned), net(x))


@pytest.mark.parametrize(
    ("inputs", "error", "words"),
    [
        (
            [np.ones((8, 5))],
            ShapeError,
            r"wanted 'linear.x' of shape \(8, 4\), got \(8, 5\); compile for that shape as well",
        ),
        ([np.ones((8, 4), "f4")], DtypeError, "wanted float64 for 'linear.x', got float32; convert with"),
        ([np.ones((8, 4), int)], DtypeError, "wanted float64 for 'linear.x', got int64"),
        ([], DataError, "wanted 1 input, got 0"),
        ([[[1.0] * 4] * 8], DataError, "wanted an array for 'linear.x', got list"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, error, words):
    with pytest.raises(error, match=words):
        classifier().compile((8, 4)).run(*inputs)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match=r"at 'linear' \(Linear\): wanted \(..., 4\), got \(8, 5\)"):
        classifier().compile((8, 5))


@pytest.mark.parametrize(
    ("count", "options", "words"),
    [
        (2, {}, "expected 1 dtype, one for each of its shapes, got 2; leave dtypes out"),
        (0, {}, "expected 1 dtype, one for each of its shapes, got 0"),
        (1, {"cost": MSE()}, "expected 2 dtypes, one for each of its shapes, got 1"),
        (2, {"cost": MSE(), "sampleWeight": (2,)}, "expected 3 dtypes, one for each of its shapes, got 2"),
    ],
)
def test_another_number_of_dtypes_than_of_shapes_is_refused(count, options, words):
    shapes = [(2, 3), (2, 4)] if "cost" in options else [(2, 3)]
    with pytest.raises(GraphError, match=words):
        Sequential(Linear(3, 4)).compile(shapes, dtypes=["f4"] * count, **options)


def test_two_threads_may_use_one_program(rng):
    net, (x, _) = classifier(), batch(rng)
    program = net.compile(x.shape)
    data = [x + i for i in range(8)]
    wanted, found = [net(each) for each in data], [None] * 8

    def work(i):
        for _ in range(20):
            found[i] = program.run(data[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(same(a, b) for a, b in zip(found, wanted, strict=True))


def test_a_program_can_be_copied_and_pickled(rng):
    net, (x, t) = classifier(), batch(rng)
    program = net.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=SGD(0.1))
    for other in (copy.deepcopy(program), pickle.loads(pickle.dumps(program))):
        a, b = other.run(x, t), other.run(x, t)
        assert b[0] < a[0]
    assert same(program.run(x, t)[0], a[0])


# What changes ---------------------------------------------------------------------------------------------------------


def change(name):
    def keep(function):
        COUNTER[name] = function
        return function

    return keep


COUNTER = {}


@change("the graph is edited")
def edited(net):
    net.append(Tanh())


@change("the array of a parameter is another")
def replaced(net):
    net.params["linear.W"].data = net.params["linear.W"].data * 2


@change("the mode is another")
def otherMode(net):
    net.evalMode()


@change("a module is set otherwise")
def setOtherwise(net):
    net["dropout"].p = 0.1


@change("a module has another parameter")
def otherParam(net):
    net["linear"].b = None


@change("a parameter is frozen")
def frozen(net):
    net.params["linear2.W"].trainable = False


@pytest.mark.parametrize("name", COUNTER)
def test_it_is_compiled_anew_when(name, rng):
    net, (x, _) = classifier(Dropout(0.5)), batch(rng)
    twin = copy.deepcopy(net)
    program = Program(net, [x.shape], ["f8"], grads=(True,), poison=True)
    g = rng.standard_normal((8, 3))
    before = program.executable
    program.run(x, g)
    assert program.executable is before
    twin(x)
    twin.backward(g)
    for each in (net, twin):
        COUNTER[name](each)
        for p in each.params.values():
            p.grad = None
    found = program.run(x, g)
    assert program.executable is not before
    assert same(found, twin(x))
    twin.backward(g)
    assert same(program.grad, twin.grad)
    for path, p in net.params.items():
        wanted = twin.params[path].grad
        assert (p.grad is None and wanted is None) or same(p.grad, wanted), path
    after = program.executable
    program.run(x, g)
    assert program.executable is after


def test_another_dtype_is_compiled_anew(rng):
    net, (x, _) = classifier(), batch(rng)
    program = Program(net, [x.shape])
    program.run(x)
    net.calcMode("float32")
    assert program.run(x.astype("f4")).dtype == np.float32


def test_an_attribute_that_is_set_to_what_it_was_changes_nothing(rng):
    net, (x, _) = classifier(Dropout(0.25)), batch(rng)
    program = net.compile(x.shape)
    before = program.executable
    net["dropout"].p = 0.5 * 0.5
    program.run(x)
    assert program.executable is before


OPTIONS = {
    "decay": lambda o, p: setattr(o, "decay", 0.1),
    "clipNorm": lambda o, p: setattr(o, "clipNorm", 0.01),
    "momRate": lambda o, p: setattr(o, "momRate", 0.5),
    "rate": lambda o, p: setattr(p, "rate", 0.25),
    "no decay": lambda o, p: (setattr(o, "decay", 0.2), setattr(p, "decay", False)),
    "learnRate": lambda o, p: setattr(o, "learnRate", 0.5),
    "restored": lambda o, p: o.restore(7, o.state),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_optimizer_may_be_changed_between_steps(name, rng):
    net, (x, t) = classifier(), batch(rng)
    twin = copy.deepcopy(net)
    optimizers = MomentumSGD(0.1), MomentumSGD(0.1)
    programs = [
        n.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=o) for n, o in zip((net, twin), optimizers)
    ]
    for step in range(4):
        if step == 2:
            for n, o in zip((net, twin), optimizers):
                OPTIONS[name](o, n.params["linear.W"])
        programs[0].run(x, t)
        with np.errstate(all="raise", under="warn"):  # so that the graph itself runs
            programs[1].run(x, t)
        for path, p in net.params.items():
            assert same(p.data, twin.params[path].data), path
    assert optimizers[0].step == optimizers[1].step


# Errors ---------------------------------------------------------------------------------------------------------------


def told(call):
    with pytest.raises(PuregraphError) as caught:
        call()
    return str(caught.value), getattr(caught.value, "__notes__", [])


def test_an_error_is_that_of_the_graph_and_nothing_has_changed(rng):
    net, (x, t) = classifier(BatchNorm(6), Dropout(0.5)), batch(rng)
    optimizer = SGD(0.1)
    program = net.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=optimizer)
    t[3] = 7
    params = {path: p.data.copy() for path, p in net.params.items()}
    found = told(lambda: program.run(x, t))
    task = withCost(copy.deepcopy(net), CrossEntropy(), 1, 1)
    assert found == told(lambda: task([x, t])) and "got label 7" in found[0]
    assert optimizer.step == 0 and all(same(p.data, params[path]) for path, p in net.params.items())
    assert net.states["dropout.count"].data == 1  # the graph ran once, to say what is wrong
    t[3] = 2
    assert np.isfinite(program.run(x, t)[0]) and program.executable is not None


def test_a_call_that_fails_alone_is_told_and_the_graph_goes_on(rng):
    net, (x, _) = classifier(), batch(rng)
    program = net.compile(x.shape)

    def fail(*arguments, **options):
        raise FloatingPointError("no such number")

    program.executable.parts[0].steps[1].function = fail
    with pytest.warns(GraphWarning, match="failed, its graph runs instead: at 'linear': no such number"):
        found = program.run(x)
    assert same(found, net(x)) and same(program.run(x), net(x))


# Looking --------------------------------------------------------------------------------------------------------------


def test_a_table_has_a_line_for_every_call(rng):
    net, (x, t) = classifier(BatchNorm(6)), batch(rng)
    program = net.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=Adam(clipNorm=1.0))
    lines = program.table().splitlines()
    calls = [c for c in program.executable.schedule.calls if not c.kind.isView]
    assert lines[0].split() == ["node", "step", "by", "makes", "bytes", "offset", "flops"]
    assert max(map(len, lines)) <= 120
    numbered = [line.split()[0] for line in lines[:-1] if line[:2].strip().isdigit()]
    assert numbered == [str(i + 1) for i in range(len(calls))]
    assert f"{len(calls)} steps, {program.bytes:,} bytes of memory" in lines[-1]
    text = "\n".join(lines)
    wanted = (
        "relu = relu(",
        "data @ W",
        "float64 8,6",
        "gradient",
        "in place",
        "norm(",
        "grad:",
        " numpy ",
        "Python",
    )
    for words in (*wanted, "m, v, param = Adam(", "Adam: m = 0.9 * m + 0.1 * (shrink * grad)"):
        assert words in text, words
    row = next(line for line in lines if "data @ W" in line)
    assert row.rstrip().endswith(f"{2 * 8 * 4 * 6}")


def test_layouts_are_told_by_their_axes(plain):
    x = Input(name="x").node()
    net = Graph(x, Tanh().node(Transpose((0, 2, 1)).node(x)))
    row = net.compile((2, 5, 8)).table().splitlines()[2]
    assert row.split() == "1 tanh tanh = tanh(transpose) numpy 2,8,5 as 021 320 0 80".split()


def test_a_drawing_has_boxes_and_edges(rng):
    text = classifier().compile((8, 4)).draw()
    assert text.startswith("digraph {") and text.rstrip().endswith("}")
    assert "linear\\nt1 = x @ W\\n" in text and 'label="linear.x", shape=ellipse' in text and "peripheries=2" in text
    assert text.count("{") == text.count("}")
