"""Products of pairs of vectors in native code, and their gradients, are those of numpy."""

import numpy as np
import pytest
from natively import compiledFor, needsNative, run

import puregraph as pg
from puregraph.compile import Program
from puregraph.ops.product.native import pairwisedot
from puregraph.ops.product.pairwisedot import pairDots, pairDotsGrad

pytestmark = needsNative

SIZES = [(1, 2, 1), (5, 2, 3), (7, 3, 16), (300, 5, 8), (9, 16, 16), (6, 17, 33), (64, 27, 16), (3, 40, 5)]


REALS = {"f4": ("f32", 1e-5), "f8": ("f64", 1e-13)}


def vectors(samples, count, size, gap=0, dtype="f4"):
    rng = np.random.default_rng(count)
    return [rng.standard_normal((samples, size + gap)).astype(dtype)[:, :size] for _ in range(count)]


def rowOf(x):
    return x.strides[0] // x.itemsize


@pytest.mark.parametrize("cpu", ["", "x86-64-v3"])
@pytest.mark.parametrize("samples, count, size", SIZES)
@pytest.mark.parametrize("dtype", REALS)
def test_dots_are_those_of_numpy(samples, count, size, cpu, dtype):
    real, tolerance = REALS[dtype]
    with compiledFor(cpu):
        xs = vectors(samples, count, size, 3, dtype)
        y = np.full((samples, count * (count - 1) // 2 + 5), 7, dtype)
        wanted = pairDots(*xs)
        run(pairwisedot.pairDots(xs, list(map(rowOf, xs)), size, samples, y, y.shape[1], real), 2)
        np.testing.assert_allclose(y[:, :-5], wanted, rtol=tolerance, atol=tolerance)
        assert (y[:, -5:] == 7).all()


@pytest.mark.parametrize("cpu", ["", "x86-64-v3"])
@pytest.mark.parametrize("samples, count, size", SIZES)
@pytest.mark.parametrize("dtype", REALS)
def test_gradients_are_those_of_numpy(samples, count, size, cpu, dtype):
    real, tolerance = REALS[dtype]
    with compiledFor(cpu):
        xs = vectors(samples, count, size, 1, dtype)
        grad = np.random.default_rng(0).standard_normal((samples, count * (count - 1) // 2 + 2)).astype(dtype)
        dx = np.full((samples, count, size), 7, dtype)
        run(pairwisedot.pairDotsGrad(grad, grad.shape[1], xs, list(map(rowOf, xs)), size, samples, dx, real), 2)
        np.testing.assert_allclose(dx, pairDotsGrad(grad[:, :-2].copy(), *xs), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_vectors_may_lie_as_they_like(axes):
    a, b = pg.Input(name="a").node(), pg.Input(name="b").node()
    turn = [pg.Transpose(axes, name=f"turn{i}").node(x) for i, x in enumerate((a, b))]
    net = pg.Graph([a, b], pg.PairDot().node(turn[0], turn[1], turn[0])).trainMode()
    rng = np.random.default_rng(0)
    x, z = (rng.standard_normal((6, 4)).astype(np.float32) for _ in range(2))
    program = Program(net, [(6, 4)] * 2, ["f4"] * 2, grads=(True,), poison=True)
    grad = rng.standard_normal((6 if axes == (0, 1) else 4, 3)).astype(np.float32)
    wanted = net(x, z)
    net.backward(grad)
    np.testing.assert_allclose(program.run(x, z, grad), wanted, rtol=1e-5, atol=1e-5)
    for found, other in zip(program.grad, net.grad, strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-5, atol=1e-5)
    assert not [c for c in program.executable.schedule.calls if c.kind.name not in ("native", "view")]
