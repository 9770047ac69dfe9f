"""Booleans and integers within a network: what chooses has no derivative, what is chosen has its own."""

import numpy as np
import pytest

import puregraph
from puregraph import (
    Add,
    And,
    ArgMax,
    Cast,
    Clip,
    Embedder,
    Graph,
    Greater,
    Input,
    LessEqual,
    Linear,
    Mod,
    Mul,
    Not,
    OneHot,
    Sequential,
    Tanh,
    Where,
)
from puregraph.autodiff.forward.forwardmode import hvp, jvp, vjp
from puregraph.autodiff.forward.persample import per_sample_gradients
from puregraph.autodiff.tape.activationrecompute import Checkpoint

STEP = 1e-6


def ends(make):
    """A network between two linear layers."""
    x = Input(name="x").node()
    h = Linear(4, 5, name="fc").node(x)
    return Graph(x, Linear(5, 3, name="out").node(make(h)), name="net").calcMode(np.float64)


def larger(h):
    g = Tanh(name="g").node(h)
    return Where(name="pick").node(Greater(name="isMore").node(h, g), Mul(name="twice").node(h, g), g)


def between(h):
    low = Greater(name="low").node(h, Mul(name="m").node(h, h))
    both = And(name="both").node(low, Not(name="not").node(LessEqual(name="high").node(h, Tanh(name="t").node(h))))
    return Where(name="pick").node(both, h, Mul(name="square").node(h, h))


def looked(h):
    return Add(name="add").node(h, Embedder(5, 5, name="words").node(ArgMax(name="place").node(h)))


def hot(h):
    return Mul(name="only").node(h, OneHot(5, dtype="bool", name="hot").node(ArgMax(name="place").node(h)))


def counted(h):
    whole = Sequential(Clip(-9, 9, name="a"), Cast("int64", name="b"), name="whole").node(h)
    number = Cast("float64", name="number").node(Mod(name="mod").node(whole, whole))
    return Add(name="sum").node(number, Mul(name="times").node(h, Cast("float64", name="times1").node(whole)))


NETS = [larger, between, looked, hot, counted]
each = pytest.mark.parametrize("make", NETS, ids=lambda make: make.__name__)


def made(make):
    puregraph.seed(3)
    net = ends(make)
    return net, np.random.default_rng(4).standard_normal((6, 4))


@each
def test_forward_mode_moves_along_the_chosen_values_alone(make):
    net, x = made(make)
    v = np.random.default_rng(5).standard_normal(x.shape)
    _, dy = jvp(net, x, v)
    numeric = (net(x + STEP * v) - net(x - STEP * v)) / (2 * STEP)
    np.testing.assert_allclose(dy, numeric, atol=1e-7)


@each
def test_products_with_the_hessian_are_differences_of_gradients(make):
    net, x = made(make)
    cost = Graph([net.inputs[0]], puregraph.Sum().node(Mul().node(net.outputs[0][0], net.outputs[0][0])))
    v = np.random.default_rng(5).standard_normal(x.shape)
    found = hvp(cost, x, v).inputs
    plus, minus = (vjp(cost, x + s * v).inputs for s in (STEP, -STEP))
    np.testing.assert_allclose(found, (plus - minus) / (2 * STEP), atol=1e-6)


@each
def test_gradients_of_each_sample_are_those_of_a_loop(make):
    net, x = made(make)
    u = np.random.default_rng(6).standard_normal((6, 3))
    found = per_sample_gradients(net, x, u)
    for i in range(len(x)):
        alone = vjp(net, x[i : i + 1], u[i : i + 1], params=True)
        for path, g in alone.params.items():
            np.testing.assert_allclose(found.params[path][i], g, rtol=1e-12, atol=1e-14, err_msg=path)
        np.testing.assert_allclose(found.inputs[i], alone.inputs[0], rtol=1e-12)


@each
def test_recomputing_gives_the_same_gradients_to_the_last_bit(make):
    net, x = made(make)
    other, _ = made(make)
    lean = Sequential(Checkpoint(other))
    g = np.cos(net(x))
    assert np.array_equal(lean(x), net(x))
    net.backward(g)
    lean.backward(g)
    assert np.array_equal(net.grad, lean.grad)
    for p, q in zip(net.params.values(), lean.params.values(), strict=True):
        assert np.array_equal(p.grad, q.grad)
