"""Parameters that modules compute, and parameters that nodes are handed."""

import copy

import numpy as np
import pytest

from puregraph import MSE, SGD, Adam, Conv2D, Graph, Input, Linear, Relu, Sequential, Tanh, Trainer, load, seed, summary
from puregraph.autodiff import jvp, per_sample_gradients, vjp
from puregraph.core.errors import ArgumentError, GraphError, ShapeError
from puregraph.core.param import Param
from puregraph.modules import (
    FakeQuantise,
    LoRA,
    Masked,
    Orthogonal,
    SpectralNorm,
    Standardised,
    StopGradient,
    WeightNorm,
)

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((16, 5)), RNG.standard_normal((16, 3))
KINDS = {
    "WeightNorm": WeightNorm,
    "axis 0": lambda w: WeightNorm(w, axis=0),
    "SpectralNorm": SpectralNorm,
    "Orthogonal": Orthogonal,
    "LoRA": lambda w: LoRA(w, rank=2, alpha=3),
    "FakeQuantise": lambda w: FakeQuantise(w, bits=4),
    "Masked": lambda w: Masked(w, keep=0.6),
    "Standardised": Standardised,
}


def network(kind=None):
    seed(0)
    net = Sequential(Linear(5, 8, name="a"), Tanh(), Linear(8, 3, name="b")).calcMode("float64")
    if kind is not None:
        net["a"].W = KINDS[kind](net["a"].W)
    return net


def trained(net, epochs=3, **options):
    trainer = Trainer(net, MSE(), SGD(0.1), batchsize=8, progress="none", shuffle=False, **options)
    trainer.train(X, Y, epochs=epochs)
    return trainer


def assertSame(one, other, **tolerance):
    assert list(one) == list(other)
    for path, param in one.items():
        np.testing.assert_allclose(
            param.data, other[path].data, err_msg=path, **{"rtol": 1e-12, "atol": 1e-13, **tolerance}
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(5, 8), (7, 3), (4, 4), (6, 2, 3, 3), (2, 3, 2, 2)])
def test_the_gradient_of_what_is_derived_is_that_of_differences(kind, shape):
    """Straight through, FakeQuantise has that of V itself."""
    if kind == "axis 0" and len(shape) > 2:
        pytest.skip("the same as by default")
    rng = np.random.default_rng(3)
    derived = KINDS[kind](Param(shape, lambda _, s: rng.standard_normal(s), np.float64)).evalMode()
    for param in derived.params.values():
        param.data = param.data + 0.1 * rng.standard_normal(param.shape)
        param.trainable = True
    up = rng.standard_normal(shape)
    derived.trainMode().isTraining = kind != "SpectralNorm"
    derived.store(up)
    for name, param in derived.params.items():
        found = param.grad.reshape(-1)
        for i in rng.choice(param.size, min(6, param.size), replace=False):
            if kind == "FakeQuantise":
                assert found[i] == up.reshape(-1)[i]
                continue
            ends = []
            for step in (1e-6, -1e-6):
                moved = param.data.copy()
                moved.reshape(-1)[i] += step
                before, param.data = param.data.copy(), moved
                ends.append((derived.data * up).sum())
                param.data = before
            assert found[i] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-7), name


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_eager_and_alone_train_alike(kind):
    nets = [network(kind), network(kind)]
    trained(nets[0], compile=False)
    trained(nets[1], compile=True)
    assertSame(nets[0].params, nets[1].params)
    lone, whole = network(kind).trainMode(), network(kind).trainMode()
    grad = RNG.standard_normal((16, 8))
    lone["a"](X)
    lone["a"].backward(grad)
    part = Sequential(whole["a"])
    part(X)
    part.backward(grad)
    for path, param in lone["a"].params.items():
        if param.trainable:
            np.testing.assert_allclose(param.grad, whole["a"].params[path].grad, rtol=1e-9, atol=1e-12, err_msg=path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_brings_it_back(kind, tmp_path):
    net = network(kind)
    trainer = trained(net)
    net.save(tmp_path / "net.h5")
    again = load(tmp_path / "net.h5")
    assertSame(net.params, again.params, rtol=0, atol=0)
    assert type(vars(again["a"])["W"]) is type(net["a"].W) and vars(again["a"])["W"].settings == net["a"].W.settings
    np.testing.assert_array_equal(net.evalMode()(X), again.evalMode()(X))
    other = network(kind)
    other.load(tmp_path / "net.h5")
    assertSame(net.params, other.params, rtol=0, atol=0)
    trainer.save(tmp_path / "run.h5")
    resumed = Trainer(network(kind), MSE(), SGD(0.1), batchsize=8, progress="none", shuffle=False)
    resumed.resume(tmp_path / "run.h5").train(X, Y, epochs=2)
    trainer.train(X, Y, epochs=2)
    assertSame(trainer.net.params, resumed.net.params, rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_baking_leaves_the_outputs(kind):
    net = trained(network(kind)).net.evalMode()
    before = net(X)
    assert net.bake() is net and list(net.params) == ["a.W", "a.b", "b.W", "b.b"]
    np.testing.assert_allclose(net(X), before, rtol=1e-12)
    trained(net)


@pytest.mark.parametrize("kind", KINDS)
def test_onnx_gets_the_array(kind, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    from puregraph.onnx import toOnnx

    net = network(kind).calcMode("float32").evalMode()
    toOnnx(net, tmp_path / "net.onnx", shapes=[("N", 5)])
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    x = X.astype("f4")
    np.testing.assert_allclose(session.run(None, {session.get_inputs()[0].name: x})[0], net(x), rtol=1e-4, atol=1e-5)
    assert "a.W" not in net.params


def test_two_readers_share_one_step():
    net = Sequential(Linear(4, 4, name="a"), Tanh(), Linear(4, 4, name="b"), Tanh(), Linear(4, 4, name="c"))
    net["b"].W = net["a"].W
    assert WeightNorm.on(net, "*.W") == 3
    assert net["a"].W is net["b"].W is not net["c"].W
    assert list(net.params) == ["a.W.v", "a.W.g", "a.b", "b.b", "c.W.v", "c.W.g", "c.b"]
    assert [step.path for step in net.steps().items if step.label == "WeightNorm"] == ["a.W", "c.W"]
    table = net.compile((2, 4), train=True).table()
    assert table.count("= sqrt(sum(v ** 2") == 2 and "  b.W " not in table
    inner = Sequential(Sequential(net["a"], Tanh(), name="left"), Sequential(net["b"], name="right"))
    assert sum(step.label == "WeightNorm" for step in inner.steps().items) == 1
    np.testing.assert_allclose(
        inner(np.eye(4, dtype="f4")), net["b"](np.tanh(net["a"](np.eye(4, dtype="f4")))), rtol=1e-6
    )


def test_the_gradient_of_a_shared_one_is_that_of_all_its_readers():
    def build():
        seed(0)
        net = Sequential(Linear(4, 4, name="a"), Tanh(), Linear(4, 4, name="b")).calcMode("float64")
        net["b"].W = net["a"].W
        return net

    plain, normed = build(), build()
    WeightNorm.on(normed)
    x, up = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 4))
    for net in (plain, normed):
        net.trainMode()(x)
        net.backward(up)
    derived = normed["a"].W
    one = derived.v.grad.copy(), derived.g.grad.copy()
    derived.store(plain["a"].W.grad)
    np.testing.assert_allclose(one[0], derived.v.grad, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one[1], derived.g.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.peers
@pytest.mark.parametrize("shape", [(6, 6), (6, 4), (4, 6)])
@pytest.mark.parametrize("kind", ["WeightNorm", "SpectralNorm", "Orthogonal"])
def test_twenty_steps_are_those_of_pytorchs_parametrizations(kind, shape):
    """PyTorch's orthogonal has the map "cayley" and our Q for its base."""
    import torch
    from torch.nn.utils import parametrizations

    seed(0)
    fc = Linear(*shape, name="fc").calcMode("float64")
    start = fc.W.data.copy()
    fc.W = KINDS[kind](fc.W)
    theirs = torch.nn.Linear(*shape, dtype=torch.float64)
    with torch.no_grad():
        theirs.weight.copy_(torch.tensor(start.T.copy()))
        theirs.bias.copy_(torch.tensor(fc.b.data.copy()))
    if kind == "Orthogonal":
        parametrizations.orthogonal(theirs, orthogonal_map="cayley")
        theirs.parametrizations.weight.original.data.zero_()
        base = fc.W.Q.data.T if shape[0] == shape[1] else fc.W.Q.data
        theirs.parametrizations.weight[0].base = torch.tensor(base.copy())
    elif kind == "WeightNorm":
        parametrizations.weight_norm(theirs)
    else:
        parametrizations.spectral_norm(theirs)
        fc.W.u.data = theirs.parametrizations.weight[0]._u.numpy().copy()
        fc.W.v.data = theirs.parametrizations.weight[0]._v.numpy().copy()
    net = Sequential(fc)
    trainer = Trainer(net, MSE(), SGD(0.1), batchsize=8, progress="none", shuffle=False)
    x, y = RNG.standard_normal((8, shape[0])), RNG.standard_normal((8, shape[1]))
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for _ in range(20):
        trainer.train(x, y, epochs=1)
        theirs.train()
        optimizer.zero_grad()
        ((theirs(torch.tensor(x)) - torch.tensor(y)) ** 2).mean().backward()
        optimizer.step()
        other = theirs.eval().weight.detach().numpy().T
        np.testing.assert_allclose(fc.W.data, other, rtol=1e-9, atol=1e-10)
    assert np.abs(fc.W.data - start).max() > 1e-2


@pytest.mark.parametrize("kind", KINDS)
def test_forward_mode_takes_what_is_derived(kind):
    """Also along directions of its parameters, against differences; straight through, against gradients."""
    net, rng = network(kind).evalMode(), np.random.default_rng(1)
    directions = {path: rng.standard_normal(p.shape) for path, p in net.params.items()}
    v = rng.standard_normal(X.shape)

    def moved(step):
        other = copy.deepcopy(net)
        for path, p in other.params.items():
            p.data = p.data + step * directions[path]
        return other(X + step * v)

    y, dy = jvp(net, X, v, directions)
    np.testing.assert_allclose(y, net(X), rtol=1e-12)
    if kind == "FakeQuantise":
        up = rng.standard_normal(dy.shape)
        back = vjp(net, X, up, params=True)
        wanted = (back.inputs * v).sum() + sum((g * directions[path]).sum() for path, g in back.params.items())
        assert (dy * up).sum() == pytest.approx(wanted, rel=1e-12)
        return
    np.testing.assert_allclose(dy, (moved(1e-6) - moved(-1e-6)) / 2e-6, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_samples_are_those_of_each_alone(kind):
    net, up = network(kind), RNG.standard_normal((16, 3))
    rows = per_sample_gradients(net, X, up).params
    for i in range(16):
        alone = per_sample_gradients(net, X[i : i + 1], up[i : i + 1]).params
        for path, grad in alone.items():
            np.testing.assert_allclose(rows[path][i], grad[0], rtol=1e-9, atol=1e-12, err_msg=path)
    trained = vjp(net, X, up, params=True).params
    for path, grad in trained.items():
        np.testing.assert_allclose(rows[path].sum(0), grad, rtol=1e-9, atol=1e-11, err_msg=path)
    assert any(path.startswith("a.W.") for path in rows)


def test_lora_merged_is_lora_unmerged():
    net = network()
    before = net(X)
    assert LoRA.on(net, "*.W", rank=2, alpha=4) == 2
    np.testing.assert_allclose(net(X), before, rtol=1e-12)
    frozen = {path: net.states[path].data.copy() for path in ("a.W.W0", "b.W.W0")}
    trained(net)
    for path, array in frozen.items():
        np.testing.assert_array_equal(net.states[path].data, array)
    learned = net.evalMode()(X)
    assert np.abs(learned - before).max() > 1e-3
    for name in "ab":
        net[name].W.merge()
    np.testing.assert_allclose(net(X), learned, atol=1e-6)
    for name in "ab":
        net[name].W.unmerge()
    np.testing.assert_allclose(net(X), learned, atol=1e-6)
    with pytest.raises(ArgumentError, match=r"LoRA: no parameter matches 'conv\*'; there are a\.W"):
        LoRA.on(net, "conv*")


def test_a_node_may_be_handed_a_parameter():
    """A network whose weights another one computes, against the same product by matrices."""
    x, z = Input(name="x").node(), Input(name="z").node()
    made = Linear(2, 15, name="hyper")(z)
    from puregraph import Reshape

    weights = Reshape((5, 3), name="shaped")(made)
    out = Linear(5, 3, name="fc").node(x, W=weights)
    net = Graph([x, z], out).calcMode("float64")
    assert "fc.W" not in net.params and "fc.b" in net.params
    assert net.dataShapeFrom([("N", 5), (1, 2)]) == ("N", 3)
    zs, up = RNG.standard_normal((1, 2)), RNG.standard_normal((16, 3))
    W = (zs @ net["hyper"].W.data + net["hyper"].b.data).reshape(5, 3)
    np.testing.assert_allclose(net.trainMode()([X, zs]), X @ W + net["fc"].b.data, rtol=1e-12)
    net.backward(up)
    dW = (X.T @ up).reshape(1, 15)
    np.testing.assert_allclose(net["hyper"].W.grad, zs.T @ dW, rtol=1e-10)
    np.testing.assert_allclose(net["hyper"].b.grad, dW[0], rtol=1e-10)
    program = net.compile((16, 5), (1, 2), train=True)
    program.run(X, zs, up)
    np.testing.assert_allclose(net["hyper"].W.grad, zs.T @ dW, rtol=1e-10)


def test_a_handed_parameter_that_does_not_fit_is_named():
    x, z = Input(name="x").node(), Input(name="z").node()
    net = Graph([x, z], Linear(5, 3, name="fc").node(x, W=z))
    with pytest.raises(ShapeError, match=r"fc.*W .*\(5, 3\).*\(5, 4\)"):
        net.dataShapeFrom([("N", 5), (5, 4)])
    with pytest.raises(GraphError, match="no input is named 'V'"):
        Linear(5, 3).node(x, V=z)
    with pytest.raises(AttributeError, match="W is a parameter, which nodes"):
        Linear(5, 3).W = z


def test_a_file_keeps_what_is_handed(tmp_path):
    x, z = Input(name="x").node(), Input(name="z").node()
    net = Graph([x, z], Linear(5, 3, name="fc").node(x, W=z))
    net.save(tmp_path / "net.h5")
    again = load(tmp_path / "net.h5")
    W = RNG.standard_normal((5, 3)).astype("f4")
    np.testing.assert_array_equal(net([X.astype("f4"), W]), again([X.astype("f4"), W]))


def test_what_cannot_be_derived_is_refused():
    fc = Linear(3, 4)
    for wrong in (None, np.zeros((3, 4)), fc):
        with pytest.raises(ArgumentError, match=r"WeightNorm: wanted the parameter that it replaces, as in fc\.W = "):
            WeightNorm(wrong)
    with pytest.raises(ArgumentError, match="two axes"):
        LoRA(fc.b)
    with pytest.raises(ShapeError):
        fc.W = WeightNorm(fc.b)
    with pytest.raises(AttributeError, match="it is computed from v, g: set .data of those, or call bake"):
        fc.W = WeightNorm(fc.W)
        fc.W.data = np.zeros((3, 4))


def test_a_summary_lists_it_and_adam_keeps_state_of_its_parts():
    net = Sequential(Conv2D(2, 4, 3, name="conv"), Relu())
    WeightNorm.on(net)
    assert "conv.W" in str(summary(net, ("N", 2, 5, 5)))
    optimizer = Adam().setupOn(net)
    assert [slot.path for slot in optimizer.slots] == ["conv.W.v", "conv.W.g", "conv.b"]


def test_stages_and_tensors_of_a_computed_parameter_are_refused():
    from puregraph.core.errors import DataError

    for way, words in (({"stages": 2}, "stages=2"), ({"tensor": 2}, "tensor=2")):
        trainer = Trainer(network("WeightNorm"), MSE(), SGD(0.1), batchsize=8, progress="none", grains=2, **way)
        with pytest.raises(DataError, match=words + r": .*a\.W.* computed by another node.* bake\(\)"):
            trainer.train(X, Y, epochs=1)


def test_what_takes_no_gradient_has_no_tangent_either():
    x = Input(name="x").node()
    stopped = Graph(x, StopGradient()(x) * x).calcMode(np.float64)
    at, along = np.array([2.0, -3.0]), np.array([1.0, 0.5])
    y, change = jvp(stopped, [at], [along])
    np.testing.assert_array_equal(y, at * at)
    np.testing.assert_array_equal(change, at * along)  # not 2 at along
    np.testing.assert_array_equal(jvp(lambda v: jvp(stopped, [v], [along])[1], [at], [along])[1], 0 * along)


def test_a_tangent_passes_straight_through_what_is_quantised():
    fc = Linear(3, 2, name="fc")
    fc.W = FakeQuantise(fc.W, bits=3)
    net = Sequential(fc).calcMode(np.float64)
    x, direction = np.arange(6.0).reshape(2, 3), np.ones((3, 2))
    y, change = jvp(net, [x], None, {"fc.W.V": direction})
    np.testing.assert_array_equal(y, net(x))
    np.testing.assert_allclose(change, x @ direction)
