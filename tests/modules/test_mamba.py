"""Mamba: next to a plain loop over time steps and to torch's gradients, compiled, stored."""

import numpy as np
import pytest
from leftovers import leftToNumpy

import puregraph
from puregraph import ShapeError
from puregraph.block import Mamba
from puregraph.compile import Program
from puregraph.ops.native.llvm import jit

OPTIONS = [
    {},
    {"states": 3, "expand": 1, "kernel": 1, "rank": 2},
    {"states": 1, "expand": 3, "kernel": 3, "useBias": True},
]
NAMES = ["in.W", "conv.W", "conv.b", "x-proj.W", "dt.W", "dt.b", "logA.W", "D.W", "out.W"]


def network(options):
    """A Mamba of size 5 in float64, its biases random."""
    net = Mamba(5, **options).calcMode(np.float64)
    for path, p in net.params.items():
        if path in ("in.b", "out.b", "conv.b", "D.W"):
            p.data = np.random.default_rng(5).standard_normal(p.shape)
    return net


def looped(np, x, weights, states, silu, softplus):
    """The definition, one time step, channel and tap after another; `np` is numpy or torch."""
    get = {name: weights.get(name, 0) for name in [*NAMES, "in.b", "out.b"]}
    n, t, _ = x.shape
    both = x @ get["in.W"] + get["in.b"]
    inner = both.shape[-1] // 2
    u, z = both[..., :inner], both[..., inner:]
    taps, rank = get["conv.W"].shape[2], get["dt.W"].shape[0]
    rows = [
        sum(u[:, s - taps + 1 + k] * get["conv.W"][:, 0, k] for k in range(taps) if s - taps + 1 + k >= 0)
        for s in range(t)
    ]
    u = silu(np.stack(rows, 1) + get["conv.b"])
    chosen = u @ get["x-proj.W"]
    d = softplus(chosen[..., :rank] @ get["dt.W"] + get["dt.b"])
    b, c = chosen[..., rank : rank + states], chosen[..., rank + states :]
    h, ys = 0, []
    for s in range(t):
        decay = np.exp(-d[:, s, :, None] * np.exp(get["logA.W"]))
        h = decay * h + (d[:, s] * u[:, s])[:, :, None] * b[:, s, None, :]
        ys.append((h * c[:, s, None, :]).sum(-1) + get["D.W"] * u[:, s])
    return (np.stack(ys, 1) * silu(z)) @ get["out.W"] + get["out.b"]


@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize("options", OPTIONS)
def test_values_are_those_of_a_plain_loop(options, length):
    net, x = network(options), np.random.default_rng(length).standard_normal((3, length, 5))
    weights = {path: p.data for path, p in net.params.items()}
    y = looped(np, x, weights, options.get("states", 16), lambda a: a / (1 + np.exp(-a)), lambda a: np.log1p(np.exp(a)))
    np.testing.assert_allclose(net(x), y, 1e-10, 1e-12)


@pytest.mark.peers
@pytest.mark.parametrize("options", OPTIONS)
def test_gradients_are_those_of_the_same_loop_in_torch(options):
    torch = pytest.importorskip("torch")
    net, rng = network(options), np.random.default_rng(1)
    x, grad = rng.standard_normal((2, 4, 5)), rng.standard_normal((2, 4, 5))
    net(x)
    net.backward(grad)
    leaves = {path: torch.tensor(p.data, requires_grad=True) for path, p in net.params.items()}
    start, functions = torch.tensor(x, requires_grad=True), torch.nn.functional
    looped(torch, start, leaves, options.get("states", 16), functions.silu, functions.softplus).backward(
        torch.tensor(grad)
    )
    np.testing.assert_allclose(net.grad, start.grad.numpy(), 1e-9, 1e-11)
    for path, p in net.params.items():
        np.testing.assert_allclose(p.grad, leaves[path].grad.numpy(), 1e-9, 1e-11, err_msg=path)


@pytest.mark.skipif(not jit.available(), reason=str(jit.missing()))
def test_a_compiled_step_runs_the_loop_without_numpy():
    net, x = Mamba(6, states=4), np.random.default_rng(2).standard_normal((3, 9, 6)).astype("f")
    y = net(x)
    net.backward(np.ones_like(y))
    grads = {path: p.grad for path, p in net.params.items()}
    program = Program(net, [x.shape], grads=[True])
    np.testing.assert_allclose(program.run(x, np.ones_like(y)), y, 1e-4, 1e-5)
    np.testing.assert_allclose(program.grad, net.grad, 1e-4, 1e-5)
    for path, p in net.params.items():
        np.testing.assert_allclose(p.grad, grads[path], 1e-3, 1e-5, err_msg=path)
    assert not leftToNumpy(program)


def test_a_later_time_step_changes_no_earlier_output():
    net, x = network({}), np.random.default_rng(3).standard_normal((2, 6, 5))
    other = x.copy()
    other[:, 4:] += 1
    assert np.array_equal(net(x)[:, :4], net(other)[:, :4])


def test_starting_values_are_those_of_the_paper():
    net = Mamba(40, states=3)
    assert net.params["dt.W"].shape == (3, 80)
    assert np.allclose(-np.exp(net.params["logA.W"].data), [[-1, -2, -3]] * 80)
    steps = np.log1p(np.exp(net.params["dt.b"].data))
    assert 0.00099 < steps.min() < 0.005 and 0.02 < steps.max() < 0.101


def test_it_is_stored_and_empty_batches_stay_empty(tmp_path):
    net, x = Mamba(5, states=2), np.random.default_rng(4).standard_normal((2, 3, 5)).astype("f")
    net.save(tmp_path / "mamba.h5")
    assert np.array_equal(puregraph.load(tmp_path / "mamba.h5")(x), net(x))
    assert net(x[:0]).shape == (0, 3, 5) and net.dataShapeFrom(("N", "T", 5)) == ("N", "T", 5)
    with pytest.raises(ShapeError, match="at 'in'"):
        net.dataShapeFrom((2, 3, 4))
