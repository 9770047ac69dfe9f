"""SoftMax and MatMul: known values, extremes, PyTorch's values, and what they refuse."""

import numpy as np
import pytest
from peers import compare, ours

from puregraph import Linear, Sequential
from puregraph.core.errors import ShapeError
from puregraph.core.shape import asShape
from puregraph.modules import Entmax, GumbelSoftMax, MatMul, SoftMax, SparseMax
from puregraph.modules.costs import MSE


def test_probabilities_of_known_scores():
    y, gx = ours(SoftMax(), [np.log([[1.0, 2.0, 5.0]])], np.array([[1.0, 0.0, 0.0]]))
    assert np.allclose(y, [[1 / 8, 2 / 8, 5 / 8]], rtol=1e-14)
    assert np.allclose(gx, [[7 / 64, -2 / 64, -5 / 64]], rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_extreme_scores_stay_finite(dtype):
    largest = np.finfo(dtype).max
    x = np.array([[largest, 0, -largest], [-largest, -largest, -largest], [0, -np.inf, 0]], dtype=dtype)
    with np.errstate(over="ignore"):  # the largest number twice is infinite, and exp(-inf) is 0
        assert SoftMax()(x).tolist()[::2] == [[1, 0, 0], [0.5, 0, 0.5]]
    assert np.allclose(SoftMax()(x[1:2]), 1 / 3, rtol=1e-3)


def test_large_offsets_change_nothing():
    x = np.array([[1.0, 2.0, 3.0]])
    assert np.allclose(SoftMax()(x), SoftMax()(x + 1e4), rtol=1e-11)


def test_halves_are_summed_in_float32():
    y = SoftMax()(np.zeros((1, 100000), dtype=np.float16))
    assert y.dtype == np.float16 and (y == np.float16(1e-5)).all()


def test_softmax_needs_its_axis():
    with pytest.raises(ShapeError, match="wanted axis from -1 to 0, got 1"):
        SoftMax().dataShapeFrom((3,))
    with pytest.raises(ShapeError, match="at least one score along axis -1"):
        SoftMax(axis=-1).dataShapeFrom((3, 0))
    assert SoftMax().dataShapeFrom(asShape(("N", "C"))) == ("N", "C")


@pytest.mark.peers
@pytest.mark.parametrize("shape, axis", [((4, 7), 1), ((2, 3, 4), 1), ((2, 3, 4), -1), ((3, 2), 0), ((2, 5, 1, 2), -3)])
def test_softmax_is_pytorch_s(shape, axis, rng):
    x = rng.standard_normal(shape) * 5
    compare(SoftMax() if axis == 1 else SoftMax(axis=axis), lambda x: x.softmax(dim=axis), rng, x)


def test_a_product_of_known_matrices():
    a, b = np.array([[1.0, 2.0]]), np.array([[3.0], [5.0]])
    y, ga, gb = ours(MatMul(), [a, b], np.array([[2.0]]))
    assert y.tolist() == [[13]] and ga.tolist() == [[6, 10]] and gb.tolist() == [[2], [4]]


@pytest.mark.parametrize(
    "shapes, words",
    [
        (
            ((2, 3), (4, 5)),
            r"\(..., 2, 3\) times \(..., 3, 5\), got \[\(2, 3\), \(4, 5\)\]; the inner sizes 3 and 4 differ",
        ),
        (((4,), (3, 5)), r"the inner sizes 4 and 3 differ"),
        (((2, 4, 3), (3, 3, 5)), "shapes that broadcast"),
        ((("N", 2, "K"), ("N", "L", 3)), "the inner sizes K and L differ"),
    ],
)
def test_matrices_that_do_not_fit_are_refused(shapes, words):
    with pytest.raises(ShapeError, match=words):
        MatMul().dataShapeFrom(*map(asShape, shapes))


def test_shapes_and_operations_of_symbols():
    q, k = asShape(("N", 8, "T", 64)), asShape(("N", 8, "S", 64))
    assert MatMul(transpB=True).dataShapeFrom(q, k) == ("N", 8, "T", "S")
    assert MatMul(transpA=True).flopsFrom((3, 2), (3, 5)) == 2 * 3 * 2 * 5
    assert MatMul(transpB=True).flopsFrom(q, k) == "1024*N*S*T"


@pytest.mark.peers
@pytest.mark.parametrize("transpA", [False, True])
@pytest.mark.parametrize("transpB", [False, True])
@pytest.mark.parametrize("lead", [((), ()), ((2,), (2,)), ((3, 1), (4,)), ((), (2, 3))])
def test_the_product_is_pytorch_s(lead, transpA, transpB, rng):
    a = rng.standard_normal((*lead[0], *((4, 3) if transpA else (3, 4))))
    b = rng.standard_normal((*lead[1], *((5, 4) if transpB else (4, 5))))

    def rule(a, b):
        return (a.mT if transpA else a) @ (b.mT if transpB else b)

    compare(MatMul(transpA, transpB), rule, rng, a, b)


def test_sparse_probabilities_are_the_nearest_point_of_the_simplex():
    y, gx = ours(SparseMax(), [np.array([[1.0, 0.5, -1.0], [3.0, 0.0, 0.0]])], np.array([[1.0, 0.0, 5.0]] * 2))
    assert np.allclose(y, [[0.75, 0.25, 0.0], [1.0, 0.0, 0.0]], rtol=1e-14)
    assert np.allclose(gx, [[0.5, -0.5, 0.0], [0.0, 0.0, 0.0]], atol=1e-14)
    assert np.allclose(SparseMax(0)(np.array([[1e4], [0.0]])), [[1.0], [0.0]])


@pytest.mark.parametrize("hard", [False, True])
def test_samples_of_a_class_are_as_frequent_as_its_probability(hard):
    x = np.log(np.broadcast_to([0.1, 0.2, 0.7], (40000, 3)))
    module = GumbelSoftMax(0.5, hard)
    y = module(x)
    assert np.allclose(y.sum(1), 1) and (not hard or set(np.unique(y)) == {0.0, 1.0})
    assert np.allclose(np.bincount(y.argmax(1), minlength=3) / 40000, [0.1, 0.2, 0.7], atol=0.01)
    assert not np.array_equal(y, module.evalMode()(x))


def test_a_hard_sample_has_the_gradient_of_the_soft_one():
    x, g = np.random.default_rng(0).standard_normal((2, 5, 4))
    soft, hard = GumbelSoftMax(0.7), GumbelSoftMax(0.7, hard=True)
    hard.key.data = soft.key.data
    (_, gradient), (y, straight) = ours(soft, [x], g), ours(hard, [x], g)
    assert np.array_equal(gradient, straight) and np.array_equal(y.max(1), np.ones(5))


def byBisection(x):
    """The 1.5-entmax of a vector: max(x / 2 - t, 0)^2 with the t between which its sum is above and below 1."""
    low, high = x.max() / 2 - 1, x.max() / 2
    for _ in range(200):
        t = (low + high) / 2
        isAbove = (np.maximum(x / 2 - t, 0) ** 2).sum() > 1
        low, high = (t, high) if isAbove else (low, t)
    return np.maximum(x / 2 - low, 0) ** 2


@pytest.mark.parametrize("seed", range(20))
def test_entmax_sums_to_one_at_the_threshold_that_bisection_finds(seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((3, int(rng.integers(1, 12)))) * (0.1, 1, 10, 100)[seed % 4]
    y = Entmax()(x)
    assert np.allclose(y, [byBisection(row) for row in x], atol=1e-12) and np.allclose(y.sum(axis=1), 1)
    g, step = rng.standard_normal(x.shape), 1e-6
    module = Entmax()
    module(x)
    module.backward(g)
    d = rng.standard_normal(x.shape)
    slope = ((Entmax()(x + step * d) - Entmax()(x - step * d)) * g).sum() / (2 * step)
    assert np.isclose((module.grad * d).sum(), slope, atol=1e-6)


def test_entmax_of_equals_is_even_and_far_ones_are_zero():
    assert np.allclose(Entmax()(np.full((1, 4), 1e4)), 0.25)
    assert Entmax()(np.array([[0.0, 3.0, -1e4]])).tolist() == [[0.0, 1.0, 0.0]]


@pytest.mark.parametrize("seed", range(20))
def test_entmax_compiled_has_the_gradients_of_float64(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(k) for k in rng.integers(1, 7, int(rng.integers(1, 4))))
    axis, width = int(rng.integers(-1 - len(shape), 1 + len(shape))), int(rng.integers(2, 9))
    x, target = rng.standard_normal((*shape, 3)), rng.standard_normal((*shape, width))
    net = Sequential(Linear(3, width), Entmax(axis=axis)).calcMode(np.float64)
    y = net(x)
    net.backward(2 * (y - target) / y.size)
    wanted = {path: param.grad.copy() for path, param in net.params.items()}
    net.calcMode(np.float32)
    for param in net.params.values():
        param.grad = np.full(param.shape, np.nan, np.float32)
    net.compile([x.shape, target.shape], cost=MSE()).run(x.astype(np.float32), target.astype(np.float32))
    for path, param in net.params.items():
        assert np.allclose(param.grad, wanted[path], rtol=2e-4, atol=2e-4), path
