"""ConvLSTM: next to loops of numpy and of torch, compiled, stored, and with states that enter and leave."""

from itertools import product

import numpy as np
import pytest
from leftovers import leftToNumpy

from puregraph import MSE, ShapeError
from puregraph.block import ConvLSTM
from puregraph.ops.native.llvm import jit
from puregraph.serialize.checkpoint import loadGraph

OPTIONS = [
    ({"size": (3,), "pad": 1}, (6,)),
    ({"size": (2,), "stride": 2, "useBias": False}, (7,)),
    ({"size": (3, 2), "stride": (2, 1), "pad": "same"}, (5, 4)),
    ({"size": (3, 3), "dilation": 2, "pad": (1, 2)}, (6, 5)),
    ({"size": (2, 3, 1), "pad": 1}, (3, 4, 2)),
]


def network(options, outputs=("y", "h", "c"), starts=False):
    """A ConvLSTM of 2 and 3 channels in float64, with random biases."""
    net = ConvLSTM(2, 3, outputs=outputs, starts=starts, **options).calcMode(np.float64)
    for path, param in net.params.items():
        if path.endswith(".b"):
            param.data = np.random.default_rng(5).standard_normal(param.shape)
    return net


def weights(net):
    """W, b or None, and U."""
    return [
        net.params[path].data if path in net.params else None for path in ("x-conv.W", "x-conv.b", "scan.body.h-conv.W")
    ]


def correlated(x, W):
    """Sums over windows of 3 x 3 of x, with zeros around it."""
    padded, (height, width) = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), x.shape[2:]
    return sum(
        np.einsum("nchw,oc->nohw", padded[:, :, i : i + height, j : j + width], W[:, :, i, j])
        for i, j in product(range(3), range(3))
    )


@pytest.mark.parametrize("length", range(1, 8))
def test_values_are_those_of_a_loop_over_time_steps(length):
    net = network({"size": (3, 3), "pad": "same"})
    W, b, U = weights(net)
    x = np.random.default_rng(length).standard_normal((2, length, 2, 4, 5))
    h = c = np.zeros((2, 3, 4, 5))
    ys = []
    for t in range(length):
        a = correlated(x[:, t], W) + b[:, None, None] + correlated(h, U)
        i, f, o = (1 / (1 + np.exp(-a[:, 3 * k : 3 * k + 3])) for k in (0, 1, 3))
        c = f * c + i * np.tanh(a[:, 6:9])
        h = o * np.tanh(c)
        ys.append(h)
    for ours, wanted in zip(net(x), (np.stack(ys, 1), h, c)):
        np.testing.assert_allclose(ours, wanted, 1e-10, 1e-12)


@pytest.mark.peers
@pytest.mark.parametrize("starts", [False, True])
@pytest.mark.parametrize("options, spatial", OPTIONS)
def test_values_and_gradients_are_those_of_convolutions_of_torch(options, spatial, starts):
    torch = pytest.importorskip("torch")
    rng, net = np.random.default_rng(1), network(options, starts=starts)
    x = rng.standard_normal((2, 4, 2, *spatial))
    count = network(options).dataShapeFrom(x.shape)[1]
    data = [x, *(rng.standard_normal(count) for _ in range(2 * starts))]
    outs = net(data if starts else x)
    seeds = [rng.standard_normal(y.shape) for y in outs]
    net.backward(seeds)

    tensors = [torch.tensor(v, requires_grad=True) for v in data]
    W, b, U = [v if v is None else torch.tensor(v, requires_grad=True) for v in weights(net)]
    wanted = looped(torch, options, tensors, (W, b, U))
    sum((y * torch.tensor(seed)).sum() for y, seed in zip(wanted, seeds)).backward()
    for ours, y in zip(outs, wanted):
        np.testing.assert_allclose(ours, y.detach().numpy(), 1e-10, 1e-12)
    for ours, tensor in zip(net.grad if starts else [net.grad], tensors):
        np.testing.assert_allclose(ours, tensor.grad.numpy(), 1e-9, 1e-11)
    for path, tensor in zip(("x-conv.W", "x-conv.b", "scan.body.h-conv.W"), (W, b, U)):
        if tensor is not None:
            np.testing.assert_allclose(net.params[path].grad, tensor.grad.numpy(), 1e-9, 1e-11)


def looped(torch, options, tensors, params):
    """(all h, the last h, the last c) of a loop of convolutions of torch."""
    (x, *states), (W, b, U) = tensors, params
    rank = len(options["size"])
    convolve = [torch.conv1d, torch.conv2d, torch.conv3d][rank - 1]
    pad, stride, dilation = (
        options.get(name, default) for name, default in (("pad", 0), ("stride", 1), ("dilation", 1))
    )
    if pad == "same":  # for lengths 5 and 4, size (3, 2), stride (2, 1)
        x, pad = torch.nn.functional.pad(x, (0, 1, 1, 1)), 0
    around = [side for n in reversed(options["size"]) for side in ((n - 1) // 2, n // 2)]
    ys, (h, c) = [], states or (None, None)
    for t in range(x.shape[1]):
        a = convolve(x[:, t], W, b, stride, pad, dilation)
        h, c = (torch.zeros_like(a[:, :3]),) * 2 if h is None else (h, c)
        i, f, g, o = (a + convolve(torch.nn.functional.pad(h, around), U)).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        ys.append(h)
    return torch.stack(ys, 1), h, c


@pytest.mark.skipif(not jit.available(), reason="needs llvmlite")
@pytest.mark.parametrize("options, spatial", OPTIONS)
def test_a_compiled_step_has_the_gradients_of_float64_and_leaves_nothing_to_numpy(options, spatial):
    rng, net = np.random.default_rng(2), network(options, outputs="y")
    x = rng.standard_normal((2, 5, 2, *spatial))
    y = net(x)
    target = rng.standard_normal(y.shape)
    net.backward(2 * (y - target) / target.size)
    wanted = {path: param.grad.copy() for path, param in net.params.items()}
    net.calcMode(np.float32)
    step = net.compile(x.shape, target.shape, cost=MSE())
    step.run(x.astype("f4"), target.astype("f4"))
    assert not leftToNumpy(step)
    for path, param in net.params.items():
        np.testing.assert_allclose(param.grad, wanted[path], 2e-4, 2e-4 * np.abs(wanted[path]).max(), err_msg=path)


def test_a_stored_network_has_the_same_values():
    net = network(OPTIONS[2][0])
    x = np.random.default_rng(3).standard_normal((2, 3, 2, 5, 4))
    for ours, wanted in zip(loadGraph(net.save(None))(x), net(x)):
        assert np.array_equal(ours, wanted)


@pytest.mark.parametrize("shape", [(0, 3, 2, 4), (2, 0, 2, 4)])
def test_no_samples_or_no_time_steps_give_empty_outputs_and_zero_states(shape):
    y, h, c = network({"size": (3,), "pad": 1})(np.zeros(shape))
    assert y.shape == (*shape[:2], 3, 4) and h.shape == c.shape == (shape[0], 3, 4)
    assert not h.any() and not c.any()


def test_shapes_with_symbols_start_and_outputs():
    net = ConvLSTM(2, 3, size=(3, 3), stride=2, pad="same", starts=True, outputs=("c", "y"))
    shapes = net.dataShapeFrom([("N", "T", 2, 8, 6), *[("N", 3, 4, 3)] * 2])
    assert shapes == [("N", 3, 4, 3), ("N", "T", 3, 4, 3)]
    assert ConvLSTM(2, 3, size=(3,)).params["x-conv.b"].data.tolist() == [0.0] * 3 + [1.0] * 3 + [0.0] * 6
    with pytest.raises(ShapeError, match="outputs among"):
        ConvLSTM(2, 3, size=(3,), outputs=("y", "y"))
    with pytest.raises(ShapeError):
        ConvLSTM(2, 3, size=(3, 3), outputs="y").dataShapeFrom(("N", "T", 2, 8))
