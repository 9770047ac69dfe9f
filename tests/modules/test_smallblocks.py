"""Blocks of a few nodes, next to PyTorch in odd settings: values and gradients, eager and compiled, ONNX, blueprints."""

import numpy as np
import pytest

from puregraph import AdditiveAttention, Average, GlobalMaxPool, Maximum, Minimum, RepeatVector, SeparableConv
from puregraph.compile import Program
from puregraph.onnx import fromOnnx, toOnnx
from puregraph.serialize.blueprintreader import fromBlueprint
from puregraph.serialize.blueprintwriter import toBlueprint

RELATIVE = {np.float64: 1e-10, np.float32: 2e-4}


def separable(rng):
    rank, inmaps, multiplier, outmaps = (int(k) for k in rng.integers(1, (4, 4, 4, 5)))
    size, stride, pad = ([int(k) for k in rng.integers(low, 4, rank)] for low in (1, 1, 0))
    options = {"stride": stride, "pad": pad, "multiplier": multiplier, "useBias": bool(rng.integers(2))}
    shape = (int(rng.integers(1, 4)), inmaps, *[int(k) for k in rng.integers(3, 8, rank)])

    def peer(torch, x, depth, point, bias=None):
        conv = getattr(torch.nn.functional, f"conv{rank}d")
        return conv(conv(x, depth, None, stride, pad, 1, inmaps), point, bias)

    return SeparableConv(inmaps, outmaps, tuple(size), **options), [shape], peer


def additive(rng):
    n, t, s, size, o = (int(k) for k in rng.integers(1, 6, 5))
    isScaled = bool(rng.integers(2))

    def peer(torch, q, k, v, w=None):
        h = torch.tanh(q[:, :, None] + k[:, None])
        return torch.softmax((h if w is None else h * w[:, 0]).sum(-1), -1) @ v

    return AdditiveAttention(size, isScaled), [(n, t, size), (n, s, size), (n, s, o)], peer


def shapesThatBroadcast(rng, count):
    full = [int(k) for k in rng.integers(1, 5, int(rng.integers(1, 4)))]
    return [tuple(full), *(tuple(1 if rng.integers(3) == 0 else k for k in full) for _ in range(count - 1))]


def merging(make, name):
    def setting(rng):
        count = int(rng.integers(1, 5))

        def peer(torch, *xs):
            xs = torch.stack(torch.broadcast_tensors(*xs))
            return xs.mean(0) if name == "mean" else getattr(torch, name)(xs, 0)

        return make(count), shapesThatBroadcast(rng, count), peer

    return setting


def globalMax(rng):
    shape = tuple(int(k) for k in rng.integers(1, 6, int(rng.integers(3, 6))))
    return GlobalMaxPool(), [shape], lambda torch, x: x.flatten(2).amax(2)


def repeated(rng):
    n, c, count = (int(k) for k in rng.integers(1, 6, 3))
    return RepeatVector(count), [(n, c)], lambda torch, x: x[:, None].expand(n, count, c)


SETTINGS = {
    "SeparableConv": separable,
    "AdditiveAttention": additive,
    "Average": merging(Average, "mean"),
    "Maximum": merging(Maximum, "amax"),
    "Minimum": merging(Minimum, "amin"),
    "GlobalMaxPool": globalMax,
    "RepeatVector": repeated,
}


def gradients(net):
    """The gradients of inputs and parameters, in order."""
    inputs = net.grad if isinstance(net.grad, list) else [net.grad]
    return [*inputs, *(p.grad for p in net.params.values())]


@pytest.mark.peers
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("seed", range(20))
def test_values_and_gradients_are_those_of_torch_eager_and_compiled(name, seed):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    net, shapes, peer = SETTINGS[name](rng)
    data = [rng.standard_normal(shape) for shape in shapes]
    weights = [rng.standard_normal(p.shape) for p in net.params.values()]
    tensors = [torch.from_numpy(x).requires_grad_() for x in (*data, *weights)]
    y = peer(torch, *tensors)
    seeds = rng.standard_normal(tuple(y.shape))
    y.backward(torch.from_numpy(seeds))
    wanted = [y.detach().numpy(), *(t.grad.numpy() for t in tensors)]
    for dtype, near in RELATIVE.items():
        net.calcMode(dtype)
        for p, w in zip(net.params.values(), weights, strict=True):
            p.data = w.astype(dtype)
        xs, g = [x.astype(dtype) for x in data], seeds.astype(dtype)
        values = net(xs if len(xs) > 1 else xs[0])
        net.backward(g)
        got = [values, *gradients(net)]
        assert net.dataShapeFrom(*shapes) == values.shape
        for a, b in zip(got, wanted, strict=True):
            assert a.shape == b.shape and np.allclose(a, b, rtol=near, atol=near)
        program = Program(net, shapes, grads=[True])
        assert np.allclose(program.run(*xs, g), values, rtol=near, atol=near)
        slopes = program.grad if isinstance(program.grad, list) else [program.grad]
        for a, b in zip([*slopes, *(p.grad for p in net.params.values())], wanted[1:], strict=True):
            assert np.allclose(a, b, rtol=near, atol=near)


@pytest.mark.parametrize("name", SETTINGS)
def test_blueprints_and_onnx_files_give_the_same(name):
    for seed in range(3):
        net, shapes, _ = SETTINGS[name](np.random.default_rng(seed))
        rng = np.random.default_rng(seed)
        xs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        given = xs if len(xs) > 1 else xs[0]
        y = net(given)
        again = fromBlueprint(toBlueprint(net))
        again.load({path: p.data for path, p in net.params.items()}) if net.params else None
        assert np.array_equal(again(given), y)
        assert np.allclose(fromOnnx(toOnnx(net, shapes=shapes))(given), y, rtol=1e-5, atol=1e-6)


def test_a_mask_hides_keys_and_its_gradients():
    net = AdditiveAttention(3, masked=True).calcMode(np.float64)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape) for shape in ((2, 4, 3), (2, 5, 3), (2, 5, 2)))
    mask = np.arange(5) < np.array([3, 5])[:, None, None]
    y = net([q, k, v, mask])
    net.backward(np.ones_like(y))
    plain = AdditiveAttention(3).calcMode(np.float64)
    plain.load({path: p.data for path, p in net.params.items()})
    assert np.allclose(y[:1], plain([q[:1], k[:1, :3], v[:1, :3]]), rtol=1e-12)
    assert (net.grad[1][0, 3:] == 0).all() and (net.grad[2][0, 3:] == 0).all()
