"""MoE: the dense sum, dropped rows, the costs, gradients, compiled steps, shapes and files."""

import numpy as np
import pytest
from leftovers import leftToNumpy

import puregraph as pg
from puregraph import MSE, SGD, MoE, load
from puregraph.compile.trace.withcost import withCost
from puregraph.core.errors import ArgumentError
from puregraph.onnx import fromOnnx, toOnnx


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def defined(net, x, experts, k, capacity, activation):
    """The definition as loops: y, the pairs (row, expert) that are dropped, probabilities, fractions, logits."""
    w = {name: param.data.astype("f8") for name, param in net.params.items()}
    logits = x @ w["router.W"]
    p = softmax(logits)
    chosen = np.argsort(-p, axis=1, kind="stable")[:, :k]
    y, taken, dropped = np.zeros_like(x), [0] * experts, set()
    for choice in range(k):
        for row in range(len(x)):
            e = chosen[row, choice]
            if taken[e] == capacity:
                dropped.add((row, int(e)))
                continue
            taken[e] += 1
            h = activation(x[row] @ w["fc1.W"][e] + w["fc1b.W"][e, 0])
            y[row] += p[row, e] / p[row, chosen[row]].sum() * (h @ w["fc2.W"][e] + w["fc2b.W"][e, 0])
    f = np.bincount(chosen.ravel(), minlength=experts) / chosen.size
    return y, dropped, p, f, logits


def randomized(net, rng):
    for param in net.params.values():
        param.data = rng.normal(size=param.shape).astype(param.data.dtype)
    return net


def relu(x):
    return np.maximum(x, 0)


@pytest.mark.parametrize(("dtype", "atol"), [("float64", 1e-12), ("float32", 1e-6)])
@pytest.mark.parametrize("sizes", [{"capacity": 9}, {}, {"block": 1}, {"block": 4}])
def test_all_experts_are_the_dense_sum(dtype, atol, sizes, rng):
    net = randomized(MoE(5, 3, 3, 7, activation="silu", **sizes).calcMode(np.dtype(dtype)), rng)
    x = rng.normal(size=(9, 5)).astype(dtype)
    w = {name: param.data.astype("f8") for name, param in net.params.items()}
    h = np.einsum("ni,eio->neo", x, w["fc1.W"]) + w["fc1b.W"][:, 0]
    results = np.einsum("nei,eio->neo", h / (1 + np.exp(-h)), w["fc2.W"]) + w["fc2b.W"][:, 0]
    dense = np.einsum("ne,neo->no", softmax(x @ w["router.W"]), results)
    y = net(x)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, dense, atol=atol * max(1, np.abs(dense).max()), rtol=0)


@pytest.mark.parametrize("seed", range(8))
def test_the_choices_that_are_dropped_are_those_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    experts, n = int(rng.integers(2, 6)), int(rng.integers(5, 14))
    k, capacity = int(rng.integers(1, experts + 1)), int(rng.integers(1, 4))
    net = randomized(MoE(3, experts, k, 4, capacity).calcMode(np.float64), rng)
    x = rng.normal(size=(n, 3))
    y, dropped, *_ = defined(net, x, experts, k, capacity, relu)
    assert dropped or n * k <= experts * capacity
    np.testing.assert_allclose(net(x), y, atol=1e-12)
    slots = net.getNodeByName("slot").data.reshape(k, n)
    chosen = net.getNodeByName("chosen").data
    assert {(int(row), int(chosen[choice, row])) for choice, row in np.argwhere(slots < 0)} == dropped


@pytest.mark.parametrize("seed", range(20))
def test_without_a_capacity_nothing_is_dropped(seed):
    rng = np.random.default_rng(seed)
    experts, n, block, size, inner = (int(i) for i in rng.integers(1, (7, 40, 12, 6, 8)))
    k = int(rng.integers(1, experts + 1))
    x, target = rng.normal(size=(n, size)), rng.normal(size=(n, size))
    tight = randomized(MoE(size, experts, k, inner, block=block, activation="silu", zCost=0.1), rng)
    tight = tight.calcMode(np.float64)
    wide = MoE(size, experts, k, inner, n, activation="silu", zCost=0.1).calcMode(np.float64)
    for name, param in wide.params.items():
        param.data = tight.params[name].data
    y, dropped, *_ = defined(tight, x, experts, k, n, lambda h: h / (1 + np.exp(-h)))
    assert not dropped
    for net in (tight, wide):
        np.testing.assert_allclose(net(x), y, atol=1e-10 * max(1, np.abs(y).max()), rtol=0)
        net.backward(target)
    for name, param in wide.params.items():
        wanted = param.grad
        limit = 1e-10 * max(1, np.abs(wanted).max())
        np.testing.assert_allclose(tight.params[name].grad, wanted, atol=limit, rtol=0, err_msg=name)


def test_the_blocks_of_a_skewed_batch_are_enough(rng):
    net = randomized(MoE(3, 5, 1, 4, block=4).calcMode(np.float64), rng)
    net.params["router.W"].data = np.zeros((3, 5))
    net.params["router.W"].data[:, 3] = 9
    x = np.abs(rng.normal(size=(13, 3))) + 1
    y, *_ = defined(net, x, 5, 1, 13, relu)
    np.testing.assert_allclose(net(x), y, atol=1e-12)
    assert (net.getNodeByName("chosen").data == 3).all()


@pytest.mark.peers
@pytest.mark.parametrize("sizes", [{"capacity": 4}, {"block": 4}])
def test_onnxruntime_has_the_same_rows_at_any_batch(sizes, rng):
    onnxruntime = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    net = randomized(MoE(5, 4, 2, 6, **sizes), rng).evalMode()
    model = toOnnx(net, shapes=[("N", 5)])
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    again = fromOnnx(model)
    for n in (1, 9, 23):
        x = rng.normal(size=(n, 5)).astype("f4")
        wanted = net(x)
        limit = 1e-5 * max(1, np.abs(wanted).max())
        (y,) = session.run(None, {session.get_inputs()[0].name: x})
        np.testing.assert_allclose(y, wanted, atol=limit, rtol=0)
        np.testing.assert_allclose(again(x), wanted, atol=limit, rtol=0)


def test_both_costs_are_added_to_the_cost(rng):
    net = randomized(MoE(3, 4, 2, 5, 3, balance=0.3, zCost=0.2).calcMode(np.float64), rng)
    x, target = rng.normal(size=(7, 3)), rng.normal(size=(7, 3))
    graph = withCost(net, MSE(), 1, 1)
    total, *_ = graph(x, target)
    y, _, p, f, logits = defined(net, x, 4, 2, 3, relu)
    peak = np.log(np.exp(logits).sum(axis=1))
    wanted = MSE()(y, target) + 0.3 * 4 * (f * p.mean(axis=0)).sum() + 0.2 * (peak**2).mean()
    np.testing.assert_allclose(total, wanted, rtol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("sizes", [{"capacity": 3}, {"block": 2}])
def test_gradients_of_router_and_experts_are_central_differences(k, sizes, rng):
    net = randomized(MoE(3, 3, k, 4, **sizes, activation="silu", balance=0.3, zCost=0.2).calcMode(np.float64), rng)
    x, target = rng.normal(size=(6, 3)), rng.normal(size=(6, 3))
    graph = withCost(net, MSE(), 1, 1)
    outputs = graph(x, target)
    graph.backward([np.float64(1), *[None] * (len(outputs) - 1)])
    for name, param in net.params.items():
        direction, start, step = rng.normal(size=param.shape), param.data.copy(), 1e-6
        ends = []
        for sign in (1, -1):
            param.data = start + sign * step * direction
            ends.append(float(graph(x, target)[0]))
        param.data = start
        difference = (ends[0] - ends[1]) / (2 * step)
        assert np.sum(param.grad * direction) == pytest.approx(difference, rel=1e-6, abs=1e-8), name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [{"capacity": 5}, {"block": 3}])
def test_a_compiled_step_is_the_eager_one(dtype, sizes, rng):
    net = randomized(MoE(6, 4, 2, 8, **sizes, activation="gelu", balance=0.1, zCost=0.1).calcMode(np.dtype(dtype)), rng)
    x, target = (rng.normal(size=(13, 6)).astype(dtype) for _ in range(2))
    graph = withCost(net, MSE(), 1, 1)
    outputs = graph(x, target)
    graph.backward([np.dtype(dtype).type(1), *[None] * (len(outputs) - 1)])
    start = {name: (param.data.copy(), param.grad.copy()) for name, param in net.params.items()}
    step = net.compile([x.shape, target.shape], cost=MSE(), optimizer=SGD(1.0))
    tolerance = 1e-12 if dtype == "float64" else 2e-5
    assert leftToNumpy(step) == []
    result = step.run(x, target)
    np.testing.assert_allclose(result[0], outputs[0], rtol=tolerance)
    for name, (data, grad) in start.items():
        size = max(1, np.abs(data).max(), np.abs(grad).max())
        np.testing.assert_allclose(net.params[name].data, data - grad, atol=tolerance * size, rtol=0, err_msg=name)


@pytest.mark.parametrize("sizes", [{"capacity": 2}, {"block": 2}, {}])
def test_shapes_have_symbols_and_a_batch_may_be_empty(sizes):
    net = MoE(4, 3, 2, 5, **sizes)
    assert net.dataShapeFrom(("N", 4)) == ("N", 4)
    assert net(np.zeros((0, 4), "f4")).shape == (0, 4)
    net.backward(np.zeros((0, 4), "f4"))
    assert all((param.grad == 0).all() for param in net.params.values())


def test_a_file_has_all_of_it(tmp_path, rng):
    net = randomized(MoE(4, 3, 2, 5, 2), rng)
    x = rng.normal(size=(6, 4)).astype("f4")
    net.save(tmp_path / "net.h5")
    np.testing.assert_array_equal(load(tmp_path / "net.h5")(x), net(x))


def test_more_choices_than_experts_are_refused():
    with pytest.raises(ValueError, match="k of at most the 2 experts, got 3"):
        MoE(4, 2, 3, 5, 2)
    with pytest.raises(ArgumentError, match="capacity"):
        MoE(4, 2, 1, 5, 0)


def test_a_summary_names_the_parts():
    assert "router" in pg.summary(MoE(4, 3, 2, 5, 2), (6, 4))
