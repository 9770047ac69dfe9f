"""A Checkpoint gives the values and gradients of what it holds, to the last bit, and keeps only its inputs."""

import copy
import gc
import weakref
from random import Random

import numpy as np
import pytest
import randomgraphs
from everyexample import everyExample
from everymodule import DERIVED, MODES, Cube, examplesOf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import puregraph
from puregraph.autodiff.checks.anomaly import AnomalyError, detect_anomaly
from puregraph.autodiff.checks.gradcheck import gradcheck
from puregraph.autodiff.forward.forwardmode import hvp, jvp
from puregraph.autodiff.joint.addbackward import add_backward_pass, make_backward_function
from puregraph.autodiff.tape.activationrecompute import Checkpoint, checkpoint
from puregraph.autodiff.tape.engine import grad
from puregraph.autodiff.tape.gradmode import no_grad
from puregraph.autodiff.tape.variable import Variable
from puregraph.core.errors import AutoDiffException, PuregraphError, ShapeError
from puregraph.graph import Graph
from puregraph.graph.analysis.footprint import Footprint
from puregraph.graph.function import Function, FunctionCall
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.sequential import Sequential
from puregraph.modules import (
    Add,
    BatchNorm,
    Conv2D,
    Dropout,
    Embedder,
    Flatten,
    Linear,
    Mul,
    Relu,
    Split,
    Tanh,
    costs,
)
from puregraph.testing.check import Case, checkModule


def block(maps, name):
    return Sequential(
        Conv2D(maps, maps, 3, pad=1, name="conv"),
        BatchNorm(maps, name="norm"),
        Relu(name="act"),
        Dropout(0.4, name="drop"),
        name=name,
    )


def net(wrap):
    """Two blocks with a shortcut around the second, and a head."""
    x = Input(name="x").node()
    a = wrap(block(2, "a")).node(x, name="a")
    b = wrap(block(2, "b")).node(a, name="b")
    h = Add(name="add")(a, b)
    return Graph(x, Linear(2 * 9, 3, name="fc")(Flatten(name="flat")(h)), name="net")


def twins(make):
    """The same graph without and with a Checkpoint, with equal parameters and states."""
    puregraph.seed(5)
    plain = make(lambda part: part)
    puregraph.seed(5)
    lean = make(Checkpoint)
    assert list(plain.params) == list(lean.params) and list(plain.states) == list(lean.states)
    for path, p in (*plain.params.items(), *plain.states.items()):
        (lean.params | lean.states)[path].data = p.data.copy()
    return plain, lean


def same(plain, lean, *data, passes=2, grad=None):
    """Values, gradients and states, over some passes."""
    for _ in range(passes):
        y, z = plain(*data), lean(*data)
        ys, zs = (y, z) if isinstance(y, list) else ([y], [z])
        assert all(np.array_equal(a, b) for a, b in zip(ys, zs, strict=True))
        grads = grad or [np.cos(np.arange(a.size)).astype(a.dtype).reshape(a.shape) for a in ys]
        for each in (plain, lean):
            each.backward(grads if len(grads) > 1 else grads[0])
        gx, gz = (g.grad if isinstance(g.grad, list) else [g.grad] for g in (plain, lean))
        for a, b in zip(gx, gz, strict=True):
            assert (a is None and b is None) or np.array_equal(a, b)
        for path, p in plain.params.items():
            g = lean.params[path].grad
            assert (g is None and p.grad is None) or np.array_equal(p.grad, g), path
        for path, s in plain.states.items():
            assert np.array_equal(s.data, lean.states[path].data), path


@pytest.mark.parametrize("mode", MODES)
def test_values_gradients_and_states_are_equal_to_the_last_bit(mode, rng):
    plain, lean = twins(net)
    plain.mode(MODES[mode])
    lean.mode(MODES[mode])
    assert lean["a"].isTraining is MODES[mode] and lean["a"].inner["norm"].isTraining is MODES[mode]
    same(plain, lean, rng.standard_normal((4, 2, 3, 3)).astype(np.float32))


@everyExample(DERIVED, mode=MODES)
def test_every_module_may_stand_in_one(found, index, mode):
    module, shapes = examplesOf(found)[index]
    case = Case(module, shapes, train=MODES[mode])
    if not all(x.dtype.kind == "f" or n in case.module.indices for x, n in zip(case.inputs, case.names)):
        return
    plain, lean = case.module, Checkpoint(copy.deepcopy(case.module))
    same(plain, lean, *case.inputs)
    assert list(plain.params) == list(lean.params) and list(plain.states) == list(lean.states)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Checkpoint(Linear(3, 4)),
        lambda: Checkpoint(Sequential(Linear(3, 4), BatchNorm(4), Dropout(0.3))),
        lambda: Checkpoint(Sequential(Linear(3, 4), Checkpoint(Sequential(Tanh(), BatchNorm(4))))),
    ],
)
def test_it_keeps_every_promise_of_a_module(make):
    checkModule(make(), [(5, 3)])


def test_its_own_examples_keep_every_promise():
    for module, shapes in Checkpoint.examples():
        checkModule(module, shapes)


def test_several_inputs_and_outputs(rng):
    def make(wrap):
        a, b = Input(name="a").node(), Input(name="b").node()
        h = Mul(name="mul")(a, Tanh(name="tanh")(b))
        parts = Split(axis=1, sections=(1, 2), name="parts")(h)
        inner = Graph([a, b], [parts, Linear(3, 2, name="fc")(h)], name="inner")
        x, y = Input(name="x").node(), Input(name="y").node()
        node = wrap(inner).node(x, y, name="inner")
        return Graph([x, y], [(node, 0), (node, 2)]).calcMode("float64")

    plain, lean = twins(make)
    assert lean["inner"].outputNames == plain["inner"].outputNames
    same(plain, lean, rng.standard_normal((2, 3)), rng.standard_normal((2, 3)))
    same(plain, lean, rng.standard_normal((2, 3)), rng.standard_normal((2, 3)), grad=[np.ones((2, 1)), None])


def test_indices_and_costs(rng):
    def make(wrap):
        words = wrap(Sequential(Embedder(5, 4, name="words"), Linear(4, 3, name="fc"), name="body"))
        x, t = Input(name="x").node(), Input(name="t").node()
        return Graph([x, t], costs.CrossEntropy(name="cost")(words.node(x, name="body"), t))

    plain, lean = twins(make)
    assert lean["body"].indices == lean["body"].arguments
    same(plain, lean, rng.integers(0, 5, 6), rng.integers(0, 3, 6))


def test_shared_modules_and_nested_ones(rng):
    def make(wrap):
        fc = Linear(3, 3, name="fc")
        inner = wrap(Sequential(fc, Tanh(name="act"), name="in"))
        outer = wrap(Sequential(inner, Dropout(0.5, name="drop"), inner, name="out"))
        x = Input(name="x").node()
        return Graph(x, fc.node(outer.node(x, name="out"), name="last")).calcMode("float64")

    plain, lean = twins(make)
    assert len(lean.params) == 2
    x = rng.standard_normal((4, 3))
    assert np.array_equal(plain(x), lean(x))
    for each in (plain, lean):
        each.backward(np.ones((4, 3)))
    assert np.allclose(plain.grad, lean.grad, rtol=1e-14)
    for path, p in plain.params.items():  # inner uses are added up first
        assert np.allclose(p.grad, lean.params[path].grad, rtol=1e-13)


def test_one_at_two_nodes(rng):
    def make(wrap):
        part = wrap(block(2, "part"))
        x = Input(name="x").node()
        return Graph(x, part.node(part.node(x, name="one"), name="two"))

    plain, lean = twins(make)
    same(plain, lean, rng.standard_normal((4, 2, 3, 3)).astype(np.float32))


def test_frozen_parameters_and_first_layers_are_spared(rng):
    plain, lean = twins(net)
    x = rng.standard_normal((4, 2, 3, 3)).astype(np.float32)
    for each in (plain, lean):
        each.params["a.conv.W"].trainable = False
        each["b"].evalMode()
        each(x)
        each.backward(np.ones((4, 3), np.float32), updGrad=False)
    assert plain.grad is None and lean.grad is None
    assert lean.params["a.conv.W"].grad is None and lean.params["b.conv.W"].grad is None
    for path, p in plain.params.items():
        if path.startswith("b."):
            continue
        assert (p.grad is None) == (lean.params[path].grad is None), path
        assert p.grad is None or np.array_equal(p.grad, lean.params[path].grad), path


class Big(Module):
    """y = x, remembering which arrays went through

    Shapes    x (any) -> y as x
    Source    none
    """

    made = []

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        y = x * 1
        Big.made.append(weakref.ref(y))
        return y

    def updateGrad(self, grad, x, y):
        return grad * (y == x)


def test_inner_values_are_not_kept():
    Big.made = []
    lean = Sequential(Checkpoint(Sequential(Big(), Big(), Big())), Tanh())
    plain = Sequential(Big(), Big(), Big(), Tanh())
    x = np.ones((2, 2), np.float32)
    lean(x)
    gc.collect()
    assert sum(ref() is not None for ref in Big.made) == 1  # its output
    lean.backward(x)
    assert len(Big.made) == 6
    Big.made = []
    plain(x)
    gc.collect()
    assert sum(ref() is not None for ref in Big.made) == 3


def test_the_footprint_knows_it():
    def deep(wrap):
        parts = [
            wrap(Sequential(Linear(64, 64, name="fc"), Tanh(name="act"), Linear(64, 64, name="gc"), name=f"part{i}"))
            for i in range(8)
        ]
        return Sequential(*parts)

    kept = [Footprint(deep(wrap), (32, 64)).kept() for wrap in (lambda part: part, Checkpoint)]
    assert kept[1] < 0.6 * kept[0]


def test_files_of_either_kind_go_into_the_other(tmp_path, rng):
    plain, lean = twins(net)
    x = rng.standard_normal((4, 2, 3, 3)).astype(np.float32)
    plain(x)
    plain.save(tmp_path / "plain.h5")
    lean.load(tmp_path / "plain.h5")
    assert all(np.array_equal(s.data, lean.states[path].data) for path, s in plain.states.items())
    assert np.array_equal(plain(x), lean(x))
    lean.save(tmp_path / "lean.h5")
    again = puregraph.load(tmp_path / "lean.h5")
    assert isinstance(again["a"], Checkpoint) and list(again.params) == list(lean.params)
    assert np.array_equal(again.trainMode()(x), lean(x))


def test_a_lone_module_is_saved_and_loaded(tmp_path, rng):
    lean = Sequential(Checkpoint(Linear(3, 2, name="fc")), Tanh())
    assert list(lean.params) == ["fc.W", "fc.b"]
    lean.params["fc.W"].trainable = False
    lean.save(tmp_path / "lone.h5")
    again = puregraph.load(tmp_path / "lone.h5")
    x = rng.standard_normal((2, 3)).astype(np.float32)
    assert np.array_equal(again(x), lean(x)) and not again.params["fc.W"].trainable


def test_copies_are_independent(rng):
    _, lean = twins(net)
    twin = copy.deepcopy(lean)
    x = rng.standard_normal((4, 2, 3, 3)).astype(np.float32)
    assert np.array_equal(lean(x), twin(x))
    twin.params["a.conv.W"].data = twin.params["a.conv.W"].data * 0
    twin.evalMode()
    assert lean["a"].isTraining and lean.params["a.conv.W"].data.any()


def test_other_derivatives_go_through(rng):
    plain, lean = twins(lambda wrap: Sequential(wrap(Sequential(Linear(3, 4, name="fc"), BatchNorm(4, name="n"), Tanh(name="a"), name="p")), Flatten(), name="s").calcMode("float64"))  # fmt: skip
    x, v = rng.standard_normal((5, 3)), rng.standard_normal((5, 3))
    vs = {path: rng.standard_normal(p.shape) for path, p in plain.params.items()}
    for a, b in zip(jvp(plain, x, v, vs), jvp(lean, x, v, vs)):
        assert np.array_equal(a, b)
    ends = []
    for each in (plain, lean):
        a, t = Input(name="a").node(), Input(name="t").node()
        whole = Graph([a, t], costs.MSE(name="cost")(each.node(a, name="s"), t))
        ends.append(hvp(whole, [x, np.ones((5, 4))], [v, None], {f"s.{path}": w for path, w in vs.items()}))
    assert np.array_equal(ends[0].inputs[0], ends[1].inputs[0])
    assert all(np.array_equal(g, ends[1].params[path]) for path, g in ends[0].params.items())
    assert gradcheck(lean, x)


def test_a_function_may_stand_inside(rng):
    def make(wrap):
        return Sequential(wrap(Sequential(Linear(3, 3, name="fc"), FunctionCall(Cube), name="p"))).calcMode("float64")

    same(*twins(make), rng.standard_normal((2, 3)))


def test_errors_name_the_place_inside(rng):
    lean = Sequential(
        Checkpoint(Sequential(Linear(3, 4, name="fc"), BatchNorm(5, name="norm"), name="part")), name="net"
    )
    with pytest.raises(ShapeError, match=r"at 'part\.norm' \(BatchNorm\)"):
        lean.dataShapeFrom((2, 3))
    with pytest.raises(ShapeError, match=r"at 'part\.norm' \(BatchNorm\)"):
        lean(np.ones((2, 3), np.float32))
    good = Sequential(Checkpoint(Sequential(Linear(3, 4, name="fc"), name="part")))
    with pytest.raises(AnomalyError, match="at 'fc'") as found, detect_anomaly():
        good(np.full((1, 3), np.nan, np.float32))
    if hasattr(found.value, "__notes__"):
        assert any("at 'part'" in note for note in found.value.__notes__)
    with pytest.raises(AttributeError, match="Checkpoint has no 'fc.w'"):
        getattr(good[0], "fc.w")


def test_changing_the_mode_between_passes_is_noticed(rng):
    _, lean = twins(net)
    lean(rng.standard_normal((4, 2, 3, 3)).astype(np.float32))
    lean["a"].inner.evalMode()
    with pytest.raises(PuregraphError, match=r"at 'a' \(Checkpoint\), backward: the forward pass was in trainMode"):
        lean.backward(np.ones((4, 3), np.float32))


def test_it_is_made_on_nodes_and_runs_on_arrays(rng):
    part = Sequential(Linear(3, 2, name="fc"), Tanh(name="act"), name="part")
    x = rng.standard_normal((4, 3)).astype(np.float32)
    a = Input(name="x").node()
    graph = Graph(a, checkpoint(part, a))
    assert isinstance(graph["part"], Checkpoint) and list(graph.params) == ["part.fc.W", "part.fc.b"]
    assert np.array_equal(checkpoint(part, x), part(x)) and np.array_equal(graph(x), part(x))


def test_a_change_of_the_list_inside_is_seen(rng):
    part = Sequential(Linear(3, 3, name="fc"), name="part")
    graph = Sequential(Checkpoint(part), name="net")
    x = rng.standard_normal((2, 3)).astype(np.float32)
    graph(x)
    part.append(Tanh(name="act"))
    assert np.array_equal(graph(x), part(x))
    graph.backward(np.ones((2, 3), np.float32))
    assert graph.params["part.fc.W"].grad is not None


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**63))
def test_random_graphs_with_nested_parts(seed):
    ends = []
    for wrap in (lambda part: part, Checkpoint):
        puregraph.seed(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                randomgraphs, "Sequential", lambda *parts, wrap=wrap, **name: wrap(Sequential(*parts, **name))
            )
            graph, shapes, _ = randomgraphs.randomGraph(Random(seed))
        xs = [np.random.default_rng(i).standard_normal(s) for i, s in enumerate(shapes)]
        ys = graph(xs)
        graph.backward([np.cos(y) for y in ys] if isinstance(ys, list) else np.cos(ys))
        grads = graph.grad if isinstance(graph.grad, list) else [graph.grad]
        ends.append(
            (
                ys if isinstance(ys, list) else [ys],
                [*grads, *(p.grad for p in graph.params.values())],
                list(graph.params),
            )
        )
    (ys, grads, paths), (zs, others, again) = ends
    assert paths == again and all(np.array_equal(a, b) for a, b in zip(ys, zs, strict=True))
    for a, b in zip(grads, others, strict=True):  # a module at several nodes may add up in another order
        assert (a is None and b is None) or np.allclose(a, b, rtol=1e-13, atol=1e-14)


# ---- functions of Variables ---------------------------------------------------------------------------------


def twice(f, *data):
    """What a function gives and the gradients of its inputs, without and with recomputation."""
    ends = []
    for call in (f, lambda *vs: checkpoint(f, *vs)):
        vs = [Variable(x, requires_grad=x.dtype.kind == "f") for x in data]
        y = call(*vs)
        (np.sum(np.sin(y)) * 2).backward()
        ends.append([y.data, *(v.grad for v in vs if v.requires_grad)])
    return ends


def test_a_function_of_variables(rng):
    def f(x, w, n):
        h = np.tanh(x @ w)
        return h[n] * np.exp(-h[n]) + x[n].sum()

    plain, lean = twice(f, rng.standard_normal((4, 3)), rng.standard_normal((3, 2)), np.array([3, 0, 0]))
    assert all(np.array_equal(a, b) for a, b in zip(plain, lean, strict=True))


def test_leaves_from_elsewhere_get_their_gradients(rng):
    w = Variable(rng.standard_normal((4, 2)), requires_grad=True)
    x, ends = rng.standard_normal((5, 3)), []
    for wrap in (False, True):
        puregraph.seed(4)
        net = Sequential(Linear(3, 4, name="fc"), BatchNorm(4, name="norm"), Dropout(0.5, name="drop")).calcMode(
            "float64"
        )
        w.zero_grad()
        v = Variable(x, requires_grad=True)
        y = checkpoint(lambda v, net=net: np.sin(net(v) @ w), v) if wrap else np.sin(net(v) @ w)
        np.sum(y * y).backward()
        ends.append(
            [y.data, v.grad, w.grad, *(p.grad for p in net.params.values()), *(s.data for s in net.states.values())]
        )
    assert all(np.array_equal(a, b) for a, b in zip(*ends, strict=True))


def test_parameters_alone_are_reason_enough(rng):
    net = Linear(3, 2).calcMode("float64")
    x = rng.standard_normal((4, 3))
    np.sum(checkpoint(lambda x: np.tanh(net(x)), Variable(x))).backward()
    assert np.allclose(net.W.grad, x.T @ (1 - np.tanh(net(x)) ** 2))


def test_inner_values_of_a_function_are_not_kept():
    made = []

    class Spy(Function):
        @staticmethod
        def forward(ctx, x):
            y = np.array(x.data) * 2
            made.append(weakref.ref(y))
            return Variable(y)

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    v = Variable(np.ones(3), requires_grad=True)
    y = checkpoint(lambda v: Spy.apply(Spy.apply(Spy.apply(v))), v)
    gc.collect()
    assert sum(ref() is not None for ref in made) == 1
    y.backward(np.ones(3))
    assert np.array_equal(v.grad, [8.0] * 3) and len(made) == 6


def test_second_derivatives_go_through(rng):
    x = rng.standard_normal((2, 3))
    ends = []
    for call in (lambda f, v: f(v), checkpoint):
        v = Variable(x, requires_grad=True)
        (g,) = grad(np.sum(call(lambda v: np.sin(v) * v, v)), v, create_graph=True)
        (h,) = grad(np.sum(g * g), v)
        ends.append((g.data, h))
    assert all(np.allclose(a, b, rtol=1e-14) for a, b in zip(*ends))


def test_several_outputs_nesting_and_passing_twice(rng):
    x = rng.standard_normal((2, 3))
    v = Variable(x, requires_grad=True)
    a, b, n = checkpoint(lambda v: (checkpoint(np.sin, v) * v, v.sum(), 3), v)
    assert n == 3
    total = np.sum(a) * b
    total.backward(retain_graph=True)
    first = v.grad
    total.backward()
    assert np.allclose(v.grad, 2 * first, rtol=1e-15)
    w = Variable(x, requires_grad=True)
    (np.sum(np.sin(w) * w) * w.sum()).backward()
    assert np.allclose(first, w.grad, rtol=1e-14)
    with pytest.raises(AutoDiffException, match="CheckpointBackward.*a second time"):
        b.backward()


def test_without_recording_nothing_is_kept(rng):
    v = Variable(rng.standard_normal(3), requires_grad=True)
    with no_grad():
        assert checkpoint(np.sin, v).is_leaf
    assert checkpoint(np.sin, v.detach()).is_leaf


def test_what_an_operation_made_elsewhere_is_refused(rng):
    v = Variable(rng.standard_normal(3), requires_grad=True)
    h = v * 2
    with pytest.raises(AutoDiffException, match="reads the result of MulBackward0, which is not an input: make it one"):
        checkpoint(lambda v: v * h, v)


def test_graphs_on_variables(rng):
    plain, lean = twins(net)
    x = rng.standard_normal((4, 2, 3, 3)).astype(np.float32)
    ends = []
    for each in (plain, lean):
        v = Variable(x, requires_grad=True)
        each(v).backward(np.ones((4, 3), np.float32))
        ends.append([v.grad, *(p.grad for p in each.params.values()), *(s.data for s in each.states.values())])
    assert all(np.array_equal(a, b) for a, b in zip(*ends, strict=True))


def test_second_derivatives_of_graphs_go_through(rng):
    def make(wrap):
        part = Sequential(Linear(3, 4, name="fc"), BatchNorm(4, name="norm"), Tanh(name="act"), name="part")
        return Sequential(wrap(part), Linear(4, 2, name="end")).calcMode("float64")

    x, ends = rng.standard_normal((5, 3)), []
    for each in twins(make):
        v = Variable(x, requires_grad=True)
        (g,) = grad(np.sum(np.sin(each(v))), v, create_graph=True)
        (h,) = grad(np.sum(g * g), v)
        ends.append((g.data, h, each.states["part.norm.mean"].data))
    assert all(np.allclose(a, b, rtol=1e-12) for a, b in zip(*ends))


def test_backward_passes_ahead_of_time_hold_it(rng):
    _, lean = twins(net)
    x, g = rng.standard_normal((4, 2, 3, 3)).astype(np.float32), np.ones((4, 3), np.float32)
    states = {path: s.data.copy() for path, s in lean.states.items()}

    def again():
        for path, s in lean.states.items():
            s.data = states[path].copy()

    lean(x)
    lean.backward(g)
    again()
    _, found = add_backward_pass(lean, ["fc"], ["x"])(x, g)
    assert np.array_equal(found, lean.grad)
    again()
    forward, backward, result, _ = make_backward_function(lean)
    values = dict(zip(forward.outputNames, forward(x)))
    grads = dict(zip(backward.outputNames, backward([values.get(n, g) for n in backward.arguments])))
    assert np.array_equal(grads[result.required_grad_names["x"]], lean.grad)
