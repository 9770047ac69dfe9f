"""Per-sample gradients are those of a loop over single samples, add up to the gradient of the batch, and are refused
where samples are mixed."""

import numpy as np
import pytest
from everyexample import everyExample
from everymodule import DERIVED, MODES, Cube, examplesOf, toStrict
from strict import Strict, useStrict

from puregraph.autodiff.forward import persample
from puregraph.autodiff.forward.forwardmode import jvp, vjp
from puregraph.autodiff.forward.persample import grad_norms, per_sample_gradients
from puregraph.autodiff.forward.vmap import Samples
from puregraph.autodiff.tape.activationrecompute import Checkpoint
from puregraph.core.errors import AutoDiffException, ShapeError
from puregraph.core.param import Param
from puregraph.graph import Graph
from puregraph.graph.function import FunctionCall
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.pointwise import Pointwise
from puregraph.graph.sequential import Sequential
from puregraph.models import cifarResnet, lenet, mlp
from puregraph.modules import (
    Add,
    BatchNorm,
    Conv2D,
    Deconv2D,
    Dropout,
    Embedder,
    LayerNorm,
    Linear,
    MatMul,
    Mean,
    Mul,
    Relu,
    Squeeze,
    Sub,
    Tanh,
    Transpose,
    costs,
)
from puregraph.ops.kernel import useFast
from puregraph.testing.check import Case


@pytest.fixture
def loops(monkeypatch):
    """The labels of the modules whose rule is run sample by sample."""
    found, atOnce = [], persample._Attribution.atOnce

    def watched(self, step, grads, needs):
        try:
            return atOnce(self, step, grads, needs)
        except Exception:
            found.append(step.label)
            raise

    monkeypatch.setattr(persample._Attribution, "atOnce", watched)
    return found


def oneByOne(net, xs, grads=None, shared=()):
    """The gradients of parameters by a loop over single samples: (n, *shape) by path."""
    n = next(x.shape[0] for i, x in enumerate(xs) if i not in shared)
    rows = []
    for i in range(n):
        inputs = [x if j in shared else x[i : i + 1] for j, x in enumerate(xs)]
        rows.append(vjp(net, inputs, None if grads is None else [g[i : i + 1] for g in grads], params=True).params)
    return {path: np.stack([row[path] for row in rows]) for path in rows[0]}


def agree(got, wanted, rtol=1e-9):
    assert list(got) == list(wanted)
    for path, g in wanted.items():
        assert got[path].shape == g.shape
        assert np.allclose(got[path], g, rtol=rtol, atol=rtol * np.abs(g).max(initial=0)), path


def sampled(found, index):
    """Whether all inputs of an example have the same number of samples first."""
    _, shapes = examplesOf(found)[index]
    return len({s[:1] for s in shapes}) == 1


COSTS = {found for found in vars(costs).values() if isinstance(found, type)}
MIXING = {
    costs.AdaptiveSoftmax,
    costs.ArcFace,
    costs.InfoNCE,
    costs.LinearCrossEntropy,
    costs.NTXent,
}  # by parameters, or in pairs
SAMPLED = [(found, index) for found, index in DERIVED if sampled(found, index)]


def mixes(case):
    """Whether what a sample changes is not at its own place in the output: by shapes, and derivatives along samples."""
    if not case.inputs[0].ndim:
        return True
    try:
        one = case.module.dataShapeFrom(*[(1, *x.shape[1:]) for x in case.inputs])
    except ShapeError:
        one = []  # made for so many samples and no others
    for shape, y in zip(one if isinstance(one, list) else [one], case.visible(case.run())):
        if y.ndim and shape != (1, *y.shape[1:]):
            return True
    for i in range(len(case.inputs[0])):
        here = np.arange(len(case.inputs[0])) == i
        vs = [np.cos(x) * here.reshape(-1, *(1,) * (x.ndim - 1)) if x.dtype.kind == "f" else None for x in case.inputs]
        _, dys = jvp(case.module, case.inputs, vs)
        for dy in dys if isinstance(dys, list) else [dys]:
            if dy is not None and dy.ndim and (len(dy) != len(here) or dy[~here].any()):
                return True
    return False


@everyExample(SAMPLED)
def test_every_module_gives_what_a_loop_gives(found, index, rng, loops):
    module, shapes = examplesOf(found)[index]
    case = Case(module, shapes, train=False)
    outputs = case.visible(case.run())
    us = [rng.standard_normal(y.shape) for y in outputs]
    try:
        got = per_sample_gradients(case.module, case.inputs, us)
    except AutoDiffException as error:
        isNumber = not all(y.ndim for y in outputs) and found not in COSTS  # which may be no sum over samples
        assert mixes(case) or isNumber or found in MIXING or "cannot be run on one of them alone" in str(error)
        return
    assert not mixes(case) or found is Squeeze  # which may take the axis of the samples away
    whole = vjp(case.module, case.inputs, us, params=True)
    agree({path: g.sum(axis=0) for path, g in got.params.items()}, whole.params)
    inputs = got.inputs if isinstance(got.inputs, list) else [got.inputs]
    for a, b in zip(inputs, whole.inputs if isinstance(whole.inputs, list) else [whole.inputs], strict=True):
        assert (a is None and b is None) or np.allclose(a, b, rtol=1e-12, atol=1e-14)
    if all(y.ndim for y in outputs):
        try:
            wanted = oneByOne(case.module, case.inputs, us)
        except ShapeError:
            return  # it is made for so many samples and no others
        agree(got.params, wanted)
    assert not loops or found in (
        costs.AdaptiveSoftmax,
        costs.ArcFace,
        costs.LinearCrossEntropy,
    )  # all others of the library are vectorised


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: lenet(size=8, maps=(2, 3)), (3, 1, 8, 8)),
        (lambda: lenet(size=8, maps=(2, 3), norm=True, dropout=0.3), (3, 1, 8, 8)),
        (lambda: mlp(6, (5, 4), 3), (4, 6)),
        (lambda: cifarResnet(8), (2, 3, 8, 8)),
    ],
)
def test_models_give_what_a_loop_gives(make, shape, rng, loops):
    net = make().calcMode(np.float64).evalMode()
    for p in net.params.values():
        p.data = p.data + 0.1 * rng.standard_normal(p.shape)
    x = rng.standard_normal(shape)
    us = rng.standard_normal((shape[0], net.dataShapeFrom(shape)[1]))
    agree(per_sample_gradients(net, x, us).params, oneByOne(net, [x], [us]), 1e-8)
    assert not loops


def test_a_cost_that_takes_the_mean_divides_by_the_number(rng):
    x, t = Input(name="x").node(), Input(name="t").node()
    net = Graph([x, t], costs.CrossEntropy(name="cost")(Linear(4, 3, name="fc")(x), t)).calcMode("float64")
    xs = [rng.standard_normal((5, 4)), rng.integers(0, 3, 5)]
    got = per_sample_gradients(net, xs)
    agree({path: 5 * g for path, g in got.params.items()}, oneByOne(net, xs))
    net(*xs)
    net.backward()
    agree({path: g.sum(axis=0) for path, g in got.params.items()}, {p: a.grad for p, a in net.params.items()})
    assert got.inputs[1] is None and np.allclose(got.inputs[0], net.grad[0])


def test_single_precision(rng):
    net = lenet(size=8, maps=(2, 3)).evalMode()
    x, us = rng.standard_normal((6, 1, 8, 8)).astype(np.float32), rng.standard_normal((6, 10)).astype(np.float32)
    got = per_sample_gradients(net, x, us).params
    agree(got, oneByOne(net, [x], [us]), 1e-4)
    assert all(g.dtype == np.float32 for g in got.values())


def test_masks_are_those_of_the_pass(rng):
    net = Sequential(Linear(6, 5, name="a"), Dropout(0.5), Linear(5, 2, name="b")).calcMode("float64")
    x, us = rng.standard_normal((4, 6)), rng.standard_normal((4, 2))
    got = per_sample_gradients(net, x, us).params
    net(x)
    net.backward(us)
    agree({path: g.sum(axis=0) for path, g in got.items()}, {path: p.grad for path, p in net.params.items()})
    hidden = net.nodes[1].data
    agree({"b.W": got["b.W"]}, {"b.W": np.einsum("ni,no->nio", hidden, us)})


def test_shared_modules_add_up(rng):
    fc = Linear(3, 3, name="fc")
    net = Sequential(fc, Tanh(), fc, Tanh(), fc).calcMode("float64")
    x, us = rng.standard_normal((4, 3)), rng.standard_normal((4, 3))
    agree(per_sample_gradients(net, x, us).params, oneByOne(net, [x], [us]))


def test_common_modules_in_one_net(rng, loops):
    x = Input(name="x").node()
    h = Deconv2D(2, 4, 2, stride=2, groups=2, name="up")(Conv2D(1, 2, 3, dilation=2, pad=2, name="conv")(x))
    h = LayerNorm((6, 8), name="norm")(Relu()(h))
    h = Add()(h, Conv2D(4, 4, 1, groups=2, name="point")(h))
    h = Linear(8, 3, name="fc")(BatchNorm(4, name="bn")(h))
    net = Graph(x, Mean(axis=(1, 2))(h)).calcMode("float64").evalMode()
    for p in net.params.values():
        p.data = p.data + 0.1 * rng.standard_normal(p.shape)
    x, us = rng.standard_normal((3, 1, 3, 4)), rng.standard_normal((3, 3))
    agree(per_sample_gradients(net, x, us).params, oneByOne(net, [x], [us]))
    assert not loops


def words():
    """Words and their places, which all samples have in common, through a mask of all samples."""
    x, places, scores = Input(name="x").node(), Input(name="places").node(), Input(name="scores").node()
    h = Add(name="sum")(Embedder(7, 4, name="words")(x), Embedder(5, 4, name="at")(places))
    h = MatMul(name="mixed")(scores, h)
    return Graph([x, places, scores], Linear(4, 2, name="fc")(h)).calcMode("float64")


def test_what_all_samples_have_in_common_is_divided_too(rng):
    net = words()
    xs = [rng.integers(-1, 7, (3, 5)), np.arange(5), rng.standard_normal((5, 5))]
    us = rng.standard_normal((3, 5, 2))
    got = per_sample_gradients(net, xs, us, shared=("places", "scores"))
    agree(got.params, oneByOne(net, xs, [us], shared=(1, 2)))
    whole = vjp(net, xs, us)
    assert got.inputs[0] is got.inputs[1] is None and got.inputs[2].shape == (3, 5, 5)
    assert np.allclose(got.inputs[2].sum(axis=0), whole.inputs[2])


def test_frozen_parameters_have_none(rng):
    net = Sequential(Linear(3, 4, name="a"), Tanh(), Linear(4, 2, name="b")).calcMode("float64")
    net.params["a.W"].trainable = False
    got = per_sample_gradients(net, rng.standard_normal((3, 3)), np.ones((3, 2))).params
    assert list(got) == ["a.b", "b.W", "b.b"]


def test_lone_modules_and_learned_pointwise_ones(rng):
    class Scaled(Pointwise):
        formula = "w * sin(x) + b"

        def __init__(self, name=None):
            super().__init__(name)
            self.w, self.b = Param((3,), "ones"), Param((4, 1), "ones")

    module = Scaled().calcMode("float64")
    x, us = rng.standard_normal((5, 4, 3)), rng.standard_normal((5, 4, 3))
    got = per_sample_gradients(module, x, us)
    assert set(got.params) == {"w", "b"}
    agree(got.params, oneByOne(module, [x], [us]))


class Odd(Module):
    """y = sort(x) w along the last axis

    Shapes    x (..., i), w (i,) -> y as x
    Source    none
    """

    def __init__(self, size, name=None):
        super().__init__(name)
        self.w = Param((size,), "ones")

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x, w):
        return np.sort(x, axis=-1) * w

    def updateGrad(self, grad, x, w, y):
        back = np.argsort(np.argsort(x, axis=-1), axis=-1)
        rows = (grad * np.sort(x, axis=-1)).reshape(-1, x.shape[-1])
        return np.take_along_axis(grad * w, back, axis=-1), rows.sum(axis=0)


def test_a_rule_that_is_not_known_for_all_is_run_sample_by_sample(rng, loops):
    net = Sequential(Odd(3, name="odd"), Linear(3, 2, name="fc")).calcMode("float64")
    x, us = rng.standard_normal((4, 3)), rng.standard_normal((4, 2))
    agree(per_sample_gradients(net, x, us).params, oneByOne(net, [x], [us]))
    assert loops == ["Odd"]


def test_functions_and_checkpoints_may_stand_in_between(rng):
    inner = Sequential(Linear(3, 3, name="fc"), Tanh(name="act"), name="part")
    net = Sequential(Linear(3, 3, name="a"), FunctionCall(Cube), Checkpoint(inner), Linear(3, 2, name="b")).calcMode(
        "float64"
    )
    x, us = rng.standard_normal((4, 3)), rng.standard_normal((4, 2))
    agree(per_sample_gradients(net, x, us).params, oneByOne(net, [x], [us]))


@pytest.mark.parametrize("mode", MODES)
def test_one_sample_alone(mode, rng):
    net = Sequential(Linear(3, 4), Tanh()).calcMode("float64")
    net.mode(MODES[mode])
    x, u = rng.standard_normal((1, 3)), rng.standard_normal((1, 4))
    agree(per_sample_gradients(net, x, u).params, oneByOne(net, [x], [u]))


def test_norms(rng):
    net = Sequential(Linear(3, 4), Tanh(), Linear(4, 2)).calcMode("float64")
    found = per_sample_gradients(net, rng.standard_normal((5, 3)), np.ones((5, 2)))
    rows = np.concatenate([g.reshape(5, -1) for g in found.params.values()], axis=1)
    assert np.allclose(grad_norms(found), np.linalg.norm(rows, axis=1))
    assert np.allclose(grad_norms(found.params), grad_norms(found))


def test_nothing_moves(rng):
    net = Sequential(Linear(3, 4), Dropout(0.5), Linear(4, 2)).calcMode("float64")
    x = rng.standard_normal((5, 3))
    net(x)
    net.backward(np.ones((5, 2)))
    count, grads = net[1].count.data.copy(), {n: p.grad for n, p in net.params.items()}
    per_sample_gradients(net, x, np.ones((5, 2)))
    assert np.array_equal(net[1].count.data, count) and all(p.grad is grads[n] for n, p in net.params.items())


# ---- what is refused ----------------------------------------------------------------------------------------


def refused(net, xs, words, **options):
    with pytest.raises(AutoDiffException, match=words) as found:
        per_sample_gradients(net, xs, **options)
    return str(found.value)


def test_statistics_of_the_batch_are_refused(rng):
    net = Sequential(Linear(3, 4, name="fc"), BatchNorm(4, name="norm"), Tanh(), Linear(4, 2)).calcMode("float64")
    x, us = rng.standard_normal((5, 3)), np.ones((5, 2))
    text = refused(net, x, r"at 'norm' \(BatchNorm\): it mixes the samples", grad=us)
    assert "the gradient of a sample depends on the others" in text and "call evalMode()" in text
    assert per_sample_gradients(net.evalMode(), x, us)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda h: Sub(name="less")(h, Mean(axis=0, keepdims=True, name="mean")(h)), r"at 'less' \(Sub\).*'mean'"),
        (lambda h: Transpose((1, 0), name="turn")(h), r"at 'turn' \(Transpose\).*for N samples it returns \(4, N\)"),
        (lambda h: MatMul(name="gram")(h, Transpose((1, 0), name="turn")(h)), r"it mixes the samples"),
        (lambda h: h[::-1], r"at 'slice' \(Slice\).*it mixes the samples"),
        (lambda h: h[:2], r"at 'slice' \(Slice\).*it mixes the samples"),
    ],
)
def test_what_moves_or_joins_samples_is_refused(build, words, rng):
    x = Input(name="x").node()
    net = Graph(x, build(Linear(3, 4, name="fc")(x))).calcMode("float64")
    xs = rng.standard_normal((4, 3))
    refused(net, xs, words, grad=np.ones(net.dataShapeFrom((4, 3))))


def test_a_cost_in_the_middle_is_refused(rng):
    x, t = Input(name="x").node(), Input(name="t").node()
    cost = costs.MSE(name="cost")(Linear(3, 2, name="fc")(x), t)
    scale = Learned(name="scale")(cost)
    net = Graph([x, t], scale).calcMode("float64")
    refused(net, [rng.standard_normal((4, 3)), np.ones((4, 2))], r"at 'scale'.*cannot be divided among the samples")


class Learned(Module):
    """y = w x

    Shapes    x () -> y ()
    Source    none
    """

    def __init__(self, name=None):
        super().__init__(name)
        self.w = Param((), "ones")

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x, w):
        return x * w

    def updateGrad(self, grad, x, w, y):
        return grad * w, grad * x


def test_costs_may_be_added_and_scaled(rng):
    x, t = Input(name="x").node(), Input(name="t").node()
    h = Linear(3, 2, name="fc")(x)
    net = Graph([x, t], 0.5 * costs.MSE(name="a")(h, t) + costs.Abs(name="b")(h, t)).calcMode("float64")
    xs = [rng.standard_normal((4, 3)), rng.standard_normal((4, 2))]
    agree({path: 4 * g for path, g in per_sample_gradients(net, xs).params.items()}, oneByOne(net, xs))


class Spread(Module):
    """y = the variance of all values, which is no sum over samples

    Shapes    x (any) -> y ()
    Source    none
    """

    def dataShapeFrom(self, x):
        return ()

    def updateData(self, x):
        return ((x - x.mean()) ** 2).mean()

    def updateGrad(self, grad, x, y):
        return grad * 2 * (x - x.mean()) / x.size


def test_a_number_that_is_no_sum_over_samples_is_refused(rng):
    net = Sequential(Linear(3, 2, name="fc"), Spread(name="var")).calcMode("float64")
    refused(net, rng.standard_normal((4, 3)), r"at 'var' \(Spread\): it mixes the samples")


def test_inputs_are_checked(rng):
    net = words()
    xs = [rng.integers(0, 7, (3, 5)), np.arange(5), rng.standard_normal((5, 5))]
    us = np.ones((3, 5, 2))
    refused(net, xs, r"wanted 3 samples first in input 'places', got \(5,\).*shared=\('places',\)", grad=us)
    refused(net, xs, r"has no input 'place'; it has x, places, scores", grad=us, shared=("place",))
    with pytest.raises(ShapeError, match="a gradient of shape"):
        per_sample_gradients(net, xs, us[:2], shared=("places", "scores"))


def test_a_product_of_samples_at_their_own_places_passes(rng):
    a, b = Input(name="a").node(), Input(name="b").node()
    net = Graph([a, b], Linear(3, 2, name="fc")(Mul(name="mul")(a, b))).calcMode("float64")
    xs = [rng.standard_normal((4, 3)), rng.standard_normal((4, 3))]
    us = rng.standard_normal((4, 2))
    agree(per_sample_gradients(net, xs, us).params, oneByOne(net, xs, [us]))


@everyExample(SAMPLED)
def test_it_runs_on_device_arrays(found, index, monkeypatch):
    module, shapes = examplesOf(found)[index]
    case = Case(module, shapes, train=False)
    if mixes(case) or found in MIXING or not module.params:
        return
    us = [np.cos(y) for y in case.visible(case.run())]
    with useFast(False), monkeypatch.context() as patched:
        wanted = per_sample_gradients(case.module, case.inputs, us).params
        useStrict(patched)
        for stored in (*case.module.params.values(), *case.module.states.values()):
            stored.data = toStrict(stored.data)
        got = per_sample_gradients(case.module, [*map(toStrict, case.inputs)], [*map(toStrict, us)]).params
    for path, g in wanted.items():
        assert isinstance(got[path], Strict) and np.array_equal(got[path].values, g)


def test_the_array_of_samples_has_its_old_name_for_one_release():
    samples = Samples(np.ones((3, 2)))
    with pytest.warns(DeprecationWarning, match="Samples.batch"):
        assert samples.all is samples.batch
