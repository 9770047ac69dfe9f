"""GroupedMatMul: the products of each group by a loop, gradients, compiled programs, counts beyond the blocks, shapes."""

import numpy as np
import pytest
from leftovers import leftToNumpy

from puregraph import MSE, SGD, Graph, GroupedMatMul, Input, Relu, Weight
from puregraph.core.errors import ShapeError


def byLoop(x, W, counts):
    """The definition: blocks in order, the rest for the last group; y and the group of each block."""
    groups = np.repeat(np.arange(len(counts)), counts)[: len(x)]
    groups = np.append(groups, np.full(len(x) - len(groups), len(counts) - 1)).astype(int)
    return np.stack([a @ W[g] for a, g in zip(x, groups)]), groups


def problem(seed, dtype="f8"):
    """Blocks, matrices and counts of odd sizes; some groups are empty, some blocks are beyond all of them."""
    rng = np.random.default_rng(seed)
    blocks, m, k, n, groups = (int(i) for i in rng.integers(1, (12, 9, 40, 40, 6)))
    counts = rng.multinomial(rng.integers(0, blocks + 1), np.ones(groups) / groups)
    x, W = (rng.normal(size=shape).astype(dtype) for shape in ((blocks, m, k), (groups, k, n)))
    return x, W, counts


@pytest.mark.parametrize("seed", range(20))
def test_values_and_gradients_are_those_of_a_loop_over_blocks(seed):
    x, W, counts = problem(seed)
    module = GroupedMatMul()
    wanted, groups = byLoop(x, W, counts)
    np.testing.assert_allclose(module(x, W, counts), wanted, rtol=1e-10, atol=1e-10)
    grad = np.random.default_rng(seed).normal(size=wanted.shape)
    module.backward(grad)
    dx, dW, _ = module.grad
    dWanted = np.zeros_like(W)
    for a, g, group in zip(x, grad, groups):
        dWanted[group] += a.T @ g
    np.testing.assert_allclose(dx, np.stack([g @ W[e].T for g, e in zip(grad, groups)]), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(dW, dWanted, rtol=1e-10, atol=1e-10)


def layer(W, k):
    x, counts = Input(name="x").node(), Input(name="counts").node()
    weight = Weight(W.shape, name="W")
    weight.W.data = W.copy()
    return Graph([x, counts], Relu(name="y")(GroupedMatMul(name="product").node(x, weight.node(), counts)))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("seed", range(10))
def test_a_compiled_step_is_that_of_a_loop(seed, dtype):
    x, W, counts = problem(seed + 100, dtype)
    net = layer(W, x.shape[2]).calcMode(np.dtype(dtype))
    net.params["W.W"].data = W.copy()
    y, groups = byLoop(x, W, counts)
    target = np.random.default_rng(seed).normal(size=y.shape).astype(dtype)
    step = net.compile(
        [x.shape, counts.shape, target.shape], cost=MSE(), optimizer=SGD(1.0), dtypes=[x.dtype, counts.dtype, x.dtype]
    )
    assert leftToNumpy(step) == []
    step.run(x, counts, target)
    g = 2 * (np.maximum(y, 0) - target) * (y > 0) / y.size
    wanted = W.astype("f8")
    for a, grad, group in zip(x, g, groups):
        wanted[group] -= a.T.astype("f8") @ grad
    np.testing.assert_allclose(net.params["W.W"].data, wanted, atol=2e-5 if dtype == "f4" else 1e-12, rtol=0)


@pytest.mark.parametrize("counts", [[9, 0, 0], [0, 0, 0], [2, 9, 9]])
def test_compiled_counts_beyond_the_blocks_stay_within_the_arrays(counts):
    rng = np.random.default_rng(0)
    x, W, counts = rng.normal(size=(4, 3, 5)), rng.normal(size=(3, 5, 6)), np.array(counts)
    net = layer(W, 5).calcMode(np.float64)
    net.params["W.W"].data = W.copy()
    program = net.evalMode().compile([x.shape, counts.shape], train=False, dtypes=[x.dtype, counts.dtype])
    np.testing.assert_allclose(program.run(x, counts), np.maximum(byLoop(x, W, counts)[0], 0), rtol=1e-12, atol=1e-12)


def test_inputs_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match="counts of shape"):
        GroupedMatMul().dataShapeFrom((4, 2, 3), (3, 3, 5), (2,))
    with pytest.raises(ShapeError, match="blocks, m, k"):
        GroupedMatMul().dataShapeFrom((4, 2, 3), (3, 4, 5), (3,))
