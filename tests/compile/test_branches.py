"""A compiled step runs the graph that an If selects, or that a Loop repeats, as programs, forward and back."""

import pickle

import numpy as np
import pytest

import puregraph
from puregraph import (
    And,
    Constant,
    Dropout,
    Graph,
    Greater,
    Identity,
    If,
    Input,
    Less,
    Linear,
    Loop,
    Sequential,
    Sum,
    Tanh,
    load,
)
from puregraph.compile.program import Program
from puregraph.modules.control import innerprograms
from puregraph.modules.control.innerprograms import _InnerPrograms
from puregraph.ops.native.llvm import jit

pytestmark = pytest.mark.skipif(not jit.available(), reason="needs llvmlite")


def inputs(*names):
    return [Input(name=name).node() for name in names]


def branch(*modules):
    (x,) = inputs("x")
    return Graph(x, Sequential(*modules).node(x))


def either(first=None):
    """tanh(x U) if the sum of x is above 0, and (x V) W if it is not."""
    puregraph.seed(1)
    then = branch(*(first or [Linear(6, 6, name="u"), Tanh()]))
    otherwise = branch(Linear(6, 24, name="v"), Linear(24, 6, name="w"))
    (x,) = inputs("x")
    above = Greater(name="above").node(Sum(name="sum").node(x), Constant(np.float32(0)).node())
    return Graph(x, Linear(6, 2, name="head").node(If(then, otherwise, name="if").node(above, x)))


def ran(monkeypatch):
    """The number of runs by programs, in a list that grows."""
    return counted(monkeypatch, "outputs")


def counted(monkeypatch, name):
    """The results of a method of the programs, without None, in a list that grows."""
    results, method = [], getattr(_InnerPrograms, name)

    def noted(self, *arguments):
        result = method(self, *arguments)
        if result is not None:
            results.append(result)
        return result

    monkeypatch.setattr(_InnerPrograms, name, noted)
    return results


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype, near", [("float32", 1e-5), ("float64", 1e-12)])
def test_the_selected_branch(monkeypatch, sign, dtype, near):
    runs = ran(monkeypatch)
    net = either().calcMode(dtype).evalMode()
    x = sign * np.abs(np.random.default_rng(0).standard_normal((5, 6))).astype(dtype)
    program = net.compile(x.shape)
    for _ in range(3):
        np.testing.assert_allclose(program.run(x), net(x), near, near)
    assert len(runs) == 2  # the first run, which shows the types of the results, runs the nodes


def test_changed_parameters_are_read(monkeypatch):
    runs = ran(monkeypatch)
    net = either().evalMode()
    x = np.ones((2, 6), np.float32)
    program = net.compile(x.shape)
    before = program.run(x)
    for p in net.params.values():
        p.data[...] *= 2
    after = program.run(x)
    assert runs and not np.allclose(before, after)
    np.testing.assert_allclose(after, net(x), 1e-5, 1e-5)
    for path in net.params:
        if path.endswith("W"):
            net.params[path].data = np.ones_like(net.params[path].data)
    np.testing.assert_allclose(program.run(x), net(x), 1e-5, 1e-5)


@pytest.mark.parametrize("sign", [1, -1])
def test_training_runs_programs_forward_and_back(monkeypatch, sign):
    runs, passes = ran(monkeypatch), counted(monkeypatch, "passed")
    net = either()
    x, y = np.full((2, 6), sign, np.float32), np.zeros((2, 2), np.float32)
    step = net.compile(x.shape, y.shape, cost=puregraph.MSE())
    for _ in range(3):
        step.run(x, y)
    got = {path: p.grad.copy() for path, p in net.params.items()}
    cost = puregraph.MSE()
    cost(net(x), y)
    cost.backward()
    net.backward(cost.grad[0])
    assert not runs and len(passes) == 2
    for path, p in net.params.items():
        np.testing.assert_allclose(got[path], p.grad, 1e-5, 1e-6)


def test_a_parameter_that_is_frozen_later_keeps_its_value(monkeypatch):
    passes, net = counted(monkeypatch, "passed"), either()
    x, y = np.ones((2, 6), np.float32), np.zeros((2, 2), np.float32)
    step = net.compile(x.shape, y.shape, cost=puregraph.MSE(), optimizer=puregraph.SGD(0.1))
    for _ in range(3):
        step.run(x, y)
    paths = [path for path in net.params if ".u." in path]
    net.params[paths[0]].trainable = False
    before = {path: net.params[path].data.copy() for path in paths}
    for _ in range(3):
        step.run(x, y)
    assert paths and passes
    assert [np.array_equal(net.params[path].data, before[path]) for path in paths] == [True] + [False] * (
        len(paths) - 1
    )


def test_more_shapes_than_are_kept_run_nodes(monkeypatch):
    monkeypatch.setattr(innerprograms, "MAX_PASSES", 1)
    passes, net = counted(monkeypatch, "passed"), either()
    for n in (2, 3):
        x, y = np.ones((n, 6), np.float32), np.zeros((n, 2), np.float32)
        step = net.compile(x.shape, y.shape, cost=puregraph.MSE())
        for _ in range(3):
            step.run(x, y)
    assert len(passes) == 2


def test_gradients_in_evalMode(monkeypatch):
    runs = ran(monkeypatch)
    net = either().evalMode()
    x, g = np.ones((2, 6), np.float32), np.ones((2, 2), np.float32)
    net(x)
    net.backward(g)
    wanted = net.grad
    step = Program(net, [x.shape], grads=(True,))
    passes = counted(monkeypatch, "passed")
    step.run(x, g)
    step.run(x, g)
    assert runs and passes
    np.testing.assert_allclose(step.grad[0] if isinstance(step.grad, list) else step.grad, wanted, 1e-5, 1e-6)


def test_eager_passes_do_not_compile(monkeypatch):
    runs = ran(monkeypatch)
    net = either().evalMode()
    net(np.ones((2, 6), np.float32))
    assert not runs


def test_a_branch_with_a_state_runs_its_nodes(monkeypatch):
    runs = ran(monkeypatch)
    net = either([Dropout(0.5, name="drop"), Linear(6, 6, name="u")]).evalMode()
    x = np.ones((2, 6), np.float32)
    program = net.compile(x.shape)
    np.testing.assert_allclose(program.run(x), net(x), 1e-6)
    assert not runs


def test_a_loop_that_data_ends(monkeypatch):
    runs = ran(monkeypatch)
    t, goesOn, c = inputs("t", "goesOn", "c")
    less = Less(name="less").node(Sum(name="sum").node(c), Constant(np.float32(50)).node())
    fixed = [Constant(np.array(n)).node() for n in (100, True)]
    (x,) = inputs("x")
    body = Graph([t, goesOn, c], [And(name="and").node(goesOn, less), 2 * c, t])
    loop = Loop(body, 1, name="loop").node(*fixed, Identity(name="start").node(x))
    net = Graph(x, [Identity(name="last").node((loop, 0)), Identity(name="times").node((loop, 1))]).evalMode()
    x = np.ones(3, np.float32)
    program = net.compile(x.shape)
    last, times = program.run(x)
    wanted, steps = net(x)
    np.testing.assert_array_equal(last, wanted)
    np.testing.assert_array_equal(times, steps)
    assert len(runs) == len(times)


def test_programs_are_not_part_of_files_or_copies(tmp_path):
    net = either().evalMode()
    x = np.ones((2, 6), np.float32)
    program = net.compile(x.shape)
    program.run(x)
    program.run(x)
    again = pickle.loads(pickle.dumps(net))
    np.testing.assert_array_equal(again(x), net(x))
    net.save(tmp_path / "net.h5")
    np.testing.assert_array_equal(load(tmp_path / "net.h5")(x), net(x))


def test_a_net_in_evalMode_that_is_compiled_for_training_is_trained():
    net = either().evalMode()
    x, y = np.ones((2, 6), np.float32), np.zeros((2, 2), np.float32)
    before = {path: p.data.copy() for path, p in net.params.items()}
    step = net.compile(x.shape, y.shape, cost=puregraph.MSE(), optimizer=puregraph.SGD(0.1))
    for _ in range(3):
        step.run(x, y)
        step.run(-x, y)
    assert not [path for path, p in net.params.items() if np.array_equal(p.data, before[path])]
