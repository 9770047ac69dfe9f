"""The shared array operations: known values, PyTorch's answers on odd parameters, adjoints, and corner cases."""

import math
from functools import partial

import numpy as np
import pytest

import puregraph.ops.kernels as kernels
from puregraph.ops.convolution import reference as convolution
from puregraph.ops.random.reference import circle, logarithm

FLOATS = (np.float16, np.float32, np.float64)
SEEDS = range(12)
DROPPED = {  # how each kernel is called, on what; for the properties that all of them share
    "convolve": (lambda x, W: kernels.convolve(x, W, 1, 1, 1, 1), [(2, 3, 5, 4), (4, 3, 3, 2)]),
    "convolveData": (
        lambda g, W: kernels.convolveData(g, W, (2, 3, 7, 5), 2, 1, 1, 1),
        [(2, 4, 4, 3), (4, 3, 3, 3)],
    ),
    "convolveWeight": (
        lambda g, x: kernels.convolveWeight(g, x, 3, 2, 1, 1, 1),
        [(2, 4, 4, 3), (2, 3, 7, 5)],
    ),
    "maxPool": (lambda x: kernels.maxPool(x, 2, 1, 1)[0], [(2, 3, 5, 4)]),
    "meanPool": (lambda x: kernels.meanPool(x, 2, 1, 1, False), [(2, 3, 5, 4)]),
    "meanPoolGrad": (lambda g: kernels.meanPoolGrad(g, (2, 3, 5, 4), 2, 2, 0, True), [(2, 3, 2, 2)]),
    "gather": (lambda table: kernels.gather(table, np.array([[1, -1], [0, 1]])), [(3, 4)]),
    "scatterAdd": (lambda grad: kernels.scatterAdd(grad, np.array([1, -1, 0, 1]), 3), [(4, 5)]),
    "takeClass": (lambda x: kernels.takeClass(x, np.array([[1, -1], [0, 2]])), [(2, 3, 2)]),
    "putClass": (lambda v: kernels.putClass(v, np.array([[1, -1], [0, 2]]), 3), [(2, 2)]),
    "softmax": (partial(kernels.softmax, axis=1), [(3, 4, 2)]),
    "logSoftmax": (partial(kernels.logSoftmax, axis=1), [(3, 4, 2)]),
    "logSumExp": (partial(kernels.logSumExp, axis=1), [(3, 4, 2)]),
    "unbroadcast": (lambda grad: kernels.unbroadcast(grad, (4, 1)), [(3, 4, 2)]),
}
UNIFORM = [
    0.26997457910808254,
    0.8120389486073295,
    0.8293686379421528,
    0.32840016859833887,
    0.2031151782590228,
    0.19209055862866675,
]
NORMAL = [0.9010204615486304, 1.3442533539502002, 0.5249471954563173, -0.3140247309451319, -1.0132696744015783]


def lessons(rng):
    """Random odd parameters of a convolution: rank 1 to 3, everything different along each axis."""
    rank, groups = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 3]))
    size, stride, dilation = (tuple(rng.integers(1, top, rank).tolist()) for top in (4, 4, 3))
    pad = tuple((int(a), int(b)) for a, b in rng.integers(0, 4, (rank, 2)))
    spatial = tuple(max(int(rng.integers(3, 9)), d * (k - 1) + 1) for k, d in zip(size, dilation))
    c, o, n = (int(i) for i in rng.integers(1, 4, 3))
    depthwise = rng.random() < 0.25
    groups, c, o = (3, 1, 1) if depthwise else (groups, c, o)
    return (n, groups * c, *spatial), (groups * o, c, *size), stride, pad, dilation, groups


def pads(pad):
    """Paddings as PyTorch's `pad` wants them: the last axis first, flat."""
    return [side for both in reversed(pad) for side in both]


def close(value, wanted):
    """Equal to 1e-10 in float64, to 1e-5 of the greatest in float32."""
    wanted = wanted.detach().numpy()
    assert value.shape == wanted.shape and value.dtype == wanted.dtype
    tolerance = 1e-10 if value.dtype == np.float64 else 1e-5
    np.testing.assert_allclose(value, wanted, rtol=tolerance, atol=tolerance * max(1, abs(wanted).max(initial=0)))


def dot(a, b):
    """The inner product of two arrays of one shape."""
    assert a.shape == b.shape
    return float(np.vdot(a, b))


@pytest.fixture(params=[1, 64], ids=["rows", "columns"])
def thin(request, monkeypatch):
    """Convolutions take rows as they lie, or unroll them where they are short, as most of these are."""
    monkeypatch.setattr(convolution, "MIN_PRODUCT_COLUMNS", request.param)


# Convolution


def test_a_convolution_has_known_values():
    x = np.arange(9.0).reshape(1, 1, 3, 3)
    W = np.array([[1.0, 2.0], [3.0, 4.0]])[None, None]
    assert kernels.convolve(x, W, 1, 0, 1, 1).tolist() == [[[[27, 37], [57, 67]]]]
    assert kernels.convolve(x, W, (2, 2), ((1, 0), (0, 1)), (1, 1), 1).tolist() == [[[[4, 6], [57, 29]]]]


@pytest.mark.peers
@pytest.mark.usefixtures("thin")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("number", range(30))
def test_convolutions_agree_with_torch(number, dtype):
    import torch

    rng = np.random.default_rng(number)
    shape, weights, stride, pad, dilation, groups = lessons(rng)
    x, W = (rng.standard_normal(each).astype(dtype) for each in (shape, weights))
    X, V = (torch.tensor(each, requires_grad=True) for each in (x, W))
    function = getattr(torch.nn.functional, f"conv{len(stride)}d")
    Y = function(torch.nn.functional.pad(X, pads(pad)), V, None, stride, 0, dilation, groups)
    g = rng.standard_normal(Y.shape).astype(dtype)
    Y.backward(torch.tensor(g))
    close(kernels.convolve(x, W, stride, pad, dilation, groups), Y)
    close(kernels.convolveData(g, W, shape, stride, pad, dilation, groups), X.grad)
    close(kernels.convolveWeight(g, x, weights[2:], stride, pad, dilation, groups), V.grad)


@pytest.mark.peers
@pytest.mark.parametrize("number", SEEDS)
def test_the_gradient_to_data_is_a_transposed_convolution(number):
    import torch

    rng = np.random.default_rng(number)
    stride, pad = int(rng.integers(1, 4)), int(rng.integers(0, 2))
    extra = int(rng.integers(0, stride))
    x, W = rng.standard_normal((2, 4, 5, 3)), rng.standard_normal((4, 3, 3, 3))
    Y = torch.nn.functional.conv_transpose2d(*map(torch.tensor, (x, W)), None, stride, pad, extra)
    close(kernels.convolveData(x, W, (2, 3, *Y.shape[2:]), stride, pad, 1, 1), Y)


@pytest.mark.usefixtures("thin")
@pytest.mark.parametrize("number", SEEDS)
def test_the_gradients_of_a_convolution_are_its_adjoints(number):
    rng = np.random.default_rng(number)
    shape, weights, *options = lessons(rng)
    x, W = rng.standard_normal(shape), rng.standard_normal(weights)
    y = kernels.convolve(x, W, *options)
    g = rng.standard_normal(y.shape)
    assert dot(y, g) == pytest.approx(dot(x, kernels.convolveData(g, W, shape, *options)), rel=1e-10, abs=1e-10)
    dW = kernels.convolveWeight(g, x, weights[2:], *options)
    assert dot(y, g) == pytest.approx(dot(W, dW), rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("shape, o, size, stride, pad", [
    ((64, 2, 12, 12), 3, 5, 1, 2),  # several batches of rows, gradients spread
    ((9, 16, 16, 16), 4, 3, 1, 1),  # gradients of a correlation
    ((70, 3, 16, 16), 5, 3, 2, 1),  # rows of a length that would share cache sets
    ((3, 6, 9, 9), 4, 1, 1, 0),  # windows of size one
])  # fmt: skip
def test_large_convolutions_equal_a_plain_sum(shape, o, size, stride, pad, rng):
    x, W = rng.standard_normal(shape), rng.standard_normal((o, shape[1], size, size))
    y = kernels.convolve(x, W, stride, pad, 1, 1)
    full = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    view = np.lib.stride_tricks.sliding_window_view(full, (size, size), (2, 3))[:, :, ::stride, ::stride]
    np.testing.assert_allclose(y, np.einsum("ncabij,ocij->noab", view, W, optimize=True), rtol=0, atol=1e-10)
    g = rng.standard_normal(y.shape)
    dW = kernels.convolveWeight(g, x, size, stride, pad, 1, 1)
    np.testing.assert_allclose(dW, np.einsum("noab,ncabij->ocij", g, view, optimize=True), rtol=0, atol=1e-9)
    assert dot(y, g) == pytest.approx(dot(x, kernels.convolveData(g, W, shape, stride, pad, 1, 1)), rel=1e-10)


def test_a_padding_wider_than_the_window_is_cut_off_again(rng):
    W = rng.standard_normal((2, 1, 2, 2))
    g = rng.standard_normal((1, 2, 8, 8))
    dx = kernels.convolveData(g, W, (1, 1, 3, 3), 1, 3, 1, 1)
    x = rng.standard_normal((1, 1, 3, 3))
    assert dot(kernels.convolve(x, W, 1, 3, 1, 1), g) == pytest.approx(dot(x, dx), rel=1e-12)


def test_a_stride_for_too_many_axes_is_refused():
    with pytest.raises(ValueError, match=r"wanted one number, or 2 of them, one per axis, got \(1, 1, 1\)"):
        kernels.convolve(np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2)), (1, 1, 1), 0, 1, 1)
    with pytest.raises(ValueError, match="wanted one padding, or 1 of them"):
        kernels.maxPool(np.ones((1, 1, 3)), 2, 1, (0, 0))


# Pooling


def test_the_first_maximum_wins_and_overlaps_add_up():
    x = np.zeros((1, 1, 4, 4))
    x[..., 1, 1] = 5
    y, indices = kernels.maxPool(x, 2, 1, 0)
    assert y[0, 0].tolist() == [[5, 5, 0], [5, 5, 0], [0, 0, 0]]
    assert indices[0, 0].tolist() == [[5, 5, 2], [5, 5, 6], [8, 9, 10]]
    assert indices.dtype == np.int32
    dx = kernels.maxPoolGrad(np.ones_like(y), indices, x.shape)
    assert dx[0, 0].tolist() == [[0, 0, 1, 0], [0, 4, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]]


def test_padding_is_never_the_maximum():
    x = np.full((1, 2, 3, 3), -np.inf)
    x[0, 1] = -1e8
    y, indices = kernels.maxPool(x, 2, 2, 1)
    assert (y[0, 0] == -np.inf).all() and (y[0, 1] == -1e8).all()
    assert indices[0].tolist() == [[[0, 1], [3, 4]]] * 2


def test_a_window_of_nothing_but_padding_has_no_place():
    x = np.array([[[1.0, 2.0]]])
    y, indices = kernels.maxPool(x, 2, 2, ((2, 0),))
    assert y.tolist() == [[[-np.inf, 2]]] and indices.tolist() == [[[-1, 1]]]
    assert kernels.maxPoolGrad(np.array([[[7.0, 3.0]]]), indices, x.shape).tolist() == [[[0, 3]]]


def test_nan_is_the_maximum_of_its_windows():
    x = np.array([[[1.0, np.nan, np.nan, 3.0, 2.0]]])
    y, indices = kernels.maxPool(x, 2, 1, 0)
    np.testing.assert_array_equal(y, [[[np.nan, np.nan, np.nan, 3]]])
    assert indices.tolist() == [[[1, 1, 2, 3]]]


def test_windows_of_many_positions_are_told_apart(rng):
    x = rng.permutation(1200).reshape(1, 3, 20, 20).astype(np.float32)
    y, indices = kernels.maxPool(x, 20, 1, 0)
    assert indices.reshape(-1).tolist() == x.reshape(3, -1).argmax(axis=1).tolist()
    assert y.reshape(-1).tolist() == x.reshape(3, -1).max(axis=1).tolist()


@pytest.mark.peers
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("number", range(18))
def test_pooling_agrees_with_torch(number, dtype):
    import torch

    rng = np.random.default_rng(number)
    rank = 1 + number % 3
    size = tuple(rng.integers(1, 4, rank).tolist())
    stride = tuple(rng.integers(1, 4, rank).tolist())
    dilation = tuple(rng.integers(1, 3, rank).tolist())
    pad = tuple(int(rng.integers(0, k // 2 + 1)) for k in size)
    x = rng.integers(-3, 4, (2, 3, *rng.integers(6, 10, rank))).astype(dtype)  # with ties
    X = torch.tensor(x, requires_grad=True)
    torchs = torch.nn.functional
    Y, places = getattr(torchs, f"max_pool{rank}d")(X, size, stride, pad, dilation, return_indices=True)
    g = rng.standard_normal(Y.shape).astype(dtype)
    Y.backward(torch.tensor(g))
    y, indices = kernels.maxPool(x, size, stride, pad, dilation)
    close(y, Y)
    assert indices.tolist() == places.tolist()
    close(kernels.maxPoolGrad(g, indices, x.shape), X.grad)
    for includePad in (True, False):
        X.grad = None
        Y = getattr(torchs, f"avg_pool{rank}d")(X, size, stride, pad, False, includePad)
        g = rng.standard_normal(Y.shape).astype(dtype)
        Y.backward(torch.tensor(g))
        close(kernels.meanPool(x, size, stride, pad, includePad), Y)
        close(kernels.meanPoolGrad(g, x.shape, size, stride, pad, includePad), X.grad)


@pytest.mark.parametrize("includePad", [True, False])
@pytest.mark.parametrize("number", SEEDS)
def test_the_gradient_of_mean_pooling_is_its_adjoint(number, includePad):
    rng = np.random.default_rng(number)
    shape, weights, stride, pad, _, _ = lessons(rng)
    x = rng.standard_normal(shape)
    y = kernels.meanPool(x, weights[2:], stride, pad, includePad)
    g = rng.standard_normal(y.shape)
    dx = kernels.meanPoolGrad(g, shape, weights[2:], stride, pad, includePad)
    assert dot(y, g) == pytest.approx(dot(x, dx), rel=1e-10, abs=1e-12)


def test_the_mean_leaves_padding_out_if_told():
    x = np.array([[[2.0, 4.0, 6.0]]])
    assert kernels.meanPool(x, 2, 2, ((1, 0),), True).tolist() == [[[1, 5]]]
    assert kernels.meanPool(x, 2, 2, ((1, 0),), False).tolist() == [[[2, 5]]]


@pytest.mark.parametrize("number", SEEDS)
def test_max_pooling_and_its_gradient_are_adjoint_at_fixed_places(number):
    rng = np.random.default_rng(number)
    shape, weights, stride, _, dilation, _ = lessons(rng)
    x = rng.standard_normal(shape)
    y, indices = kernels.maxPool(x, weights[2:], stride, 0, dilation)
    g = rng.standard_normal(y.shape)
    assert dot(y, g) == pytest.approx(dot(x, kernels.maxPoolGrad(g, indices, shape)), rel=1e-10, abs=1e-12)


# Reading and adding by index


def test_an_index_of_minus_one_reads_zero_and_adds_nothing():
    table = np.array([[1.0, 2.0], [3.0, 4.0]])
    index = np.array([[1, -1], [0, 1]])
    rows = kernels.gather(table, index)
    assert rows.tolist() == [[[3, 4], [0, 0]], [[1, 2], [3, 4]]]
    assert kernels.scatterAdd(rows + 1, index, 3).tolist() == [[2, 3], [8, 10], [0, 0]]


@pytest.mark.parametrize("shape", [(7,), (3, 4), (), (0,)])
@pytest.mark.parametrize("width", [(), (5,), (2, 3)])
def test_scattering_is_the_adjoint_of_gathering(shape, width, rng):
    table, index = rng.standard_normal((4, *width)), rng.integers(-1, 4, shape)
    y = kernels.gather(table, index)
    g = rng.standard_normal(y.shape)
    assert dot(y, g) == pytest.approx(dot(table, kernels.scatterAdd(g, index, 4)), rel=1e-12, abs=1e-12)


def test_many_additions_to_few_rows_are_exact_and_repeat(rng):
    grad, index = rng.integers(-9, 9, (5000, 8)).astype(np.float32), rng.integers(0, 3, 5000)
    wanted = [grad[index == row].sum(axis=0) for row in range(3)]
    np.testing.assert_array_equal(kernels.scatterAdd(grad, index, 3), wanted)
    noise = rng.standard_normal((5000, 8)).astype(np.float32)
    first, second = (kernels.scatterAdd(noise, index, 3) for _ in range(2))
    assert first.tobytes() == second.tobytes()


@pytest.mark.peers
def test_embeddings_agree_with_torch(rng):
    import torch

    table, index = rng.standard_normal((11, 6)), rng.integers(0, 11, (4, 9))
    T = torch.tensor(table, requires_grad=True)
    Y = torch.nn.functional.embedding(torch.tensor(index), T)
    g = rng.standard_normal(Y.shape)
    Y.backward(torch.tensor(g))
    close(kernels.gather(table, index), Y)
    close(kernels.scatterAdd(g, index, 11), T.grad)


def test_classes_are_read_along_axis_one_and_put_back():
    x = np.arange(12.0).reshape(2, 3, 2)
    labels = np.array([[0, 2], [-1, 1]])
    assert kernels.takeClass(x, labels).tolist() == [[0, 5], [0, 9]]
    dx = kernels.putClass(np.array([[1.0, 2.0], [3.0, 4.0]]), labels, 3)
    assert dx.tolist() == [[[1, 0], [0, 0], [0, 2]], [[0, 0], [0, 4], [0, 0]]]
    assert kernels.takeClass(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 0])).tolist() == [2, 3]


@pytest.mark.parametrize("read", [
    lambda index: kernels.gather(np.ones((3, 2)), index),
    lambda index: kernels.scatterAdd(np.ones((2, 2)), index, 3),
    lambda index: kernels.takeClass(np.ones((2, 3)), index),
    lambda index: kernels.putClass(np.ones(2), index, 3),
], ids=["gather", "scatterAdd", "takeClass", "putClass"])  # fmt: skip
@pytest.mark.parametrize("wrong", [3, -2])
def test_an_index_outside_is_refused(read, wrong):
    with pytest.raises(IndexError, match=f"wanted indices from 0 to 2, or -1 for none, got {wrong}"):
        read(np.array([0, wrong]))


# Random numbers


def test_the_streams_are_what_they_always_were():
    assert kernels.uniform((6,), 1, 2, np.float64).tolist() == UNIFORM
    assert kernels.normal((5,), 1, 2, np.float64).tolist() == NORMAL
    words = np.random.Philox(key=[1, 0], counter=[0, 0, 2, 0]).random_raw(3)
    halves = [half for word in words.tolist() for half in (word & 0xFFFFFFFF, word >> 32)]
    assert kernels.uniform((6,), 1, 2).tolist() == [(half >> 8) / 2**24 for half in halves]
    assert kernels.uniform((6,), 1, 2, np.float16).tolist() == [(half >> 21) / 2**11 for half in halves]
    assert kernels.uniform((3,), 1, 2, np.float64).tolist() == [(word >> 11) / 2**53 for word in words.tolist()]


@pytest.mark.parametrize("draw", [kernels.uniform, kernels.normal], ids=["uniform", "normal"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_stream_is_a_function_of_key_and_counter(draw, dtype):
    base = draw((3, 5), 7, 8, dtype)
    assert base.dtype == dtype and base.shape == (3, 5) and base.flags.c_contiguous
    assert draw((3, 5), np.uint64(7), np.array(8), dtype).tobytes() == base.tobytes()
    assert draw((16,), 7, 8, dtype)[:15].tobytes() == base.tobytes()
    top = 2**64 - 1
    others = [draw((3, 5), key, counter, dtype) for key, counter in [(7, 9), (8, 8), (8, 7), (7, top), (top, top)]]
    others.append(draw((3, 5), top - 1, top, dtype))
    assert len({other.tobytes() for other in [base, *others]}) == 7
    assert draw((0, 3), 7, 8, dtype).shape == (0, 3) and draw((), 7, 8, dtype).shape == ()


@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_are_spread_as_they_should_be(dtype):
    u, z = (draw((200_000,), 11, 12, dtype).astype(np.float64) for draw in (kernels.uniform, kernels.normal))
    assert u.min() >= 0 and u.max() < 1
    assert u.mean() == pytest.approx(0.5, abs=4e-3) and u.var() == pytest.approx(1 / 12, abs=2e-3)
    assert [np.mean(z**k) for k in (1, 2, 3, 4)] == pytest.approx([0, 1, 0, 3], abs=0.06)
    assert np.mean(abs(z) < 1) == pytest.approx(math.erf(math.sqrt(0.5)), abs=5e-3)
    for x in (u, z):
        x = x - x.mean()
        assert abs(np.mean(x[:-1] * x[1:])) < 0.01 * x.var() and abs(np.mean(x[::2] * x[1::2])) < 0.01 * x.var()


def test_streams_of_one_key_are_independent():
    a, b = (kernels.normal((100_000,), 3, counter, np.float64) for counter in (0, 1))
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.015 and not np.isin(a, b).any()


def test_the_series_are_the_functions_they_stand_for():
    u = np.concatenate([np.linspace(2.0**-53, 1, 9999), 2.0 ** -np.arange(54.0)])
    np.testing.assert_allclose(logarithm(u), np.log(u), rtol=1e-15, atol=0)
    sine, cosine = circle(np.linspace(-np.pi / 2, np.pi / 2, 9999))
    np.testing.assert_allclose(sine, np.sin(np.linspace(-np.pi / 2, np.pi / 2, 9999)), rtol=0, atol=4e-16)
    np.testing.assert_allclose(cosine, np.cos(np.linspace(-np.pi / 2, np.pi / 2, 9999)), rtol=0, atol=4e-16)


# Sums along axes


@pytest.mark.peers
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmaxes_agree_with_torch(axis, dtype, rng):
    import torch

    x = (rng.standard_normal((3, 5, 4)) * 30).astype(dtype)
    X = torch.tensor(x)
    close(kernels.softmax(x, axis), X.softmax(axis))
    close(kernels.logSoftmax(x, axis), X.log_softmax(axis))
    close(kernels.logSumExp(x, axis), X.logsumexp(axis))
    close(kernels.logSumExp(x, (0, 2), keepdims=True), X.logsumexp((0, 2), keepdim=True))


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmaxes_stay_finite_far_out(dtype):
    x = np.array([[1e4, -1e4, 1e4], [-1e4, -1e4, -1e4]], dtype=dtype)
    np.testing.assert_allclose(kernels.softmax(x, 1), [[0.5, 0, 0.5], [1 / 3] * 3], rtol=1e-3)
    np.testing.assert_allclose(kernels.logSoftmax(x, 1)[1], -np.log(3) * np.ones(3), rtol=1e-3)
    np.testing.assert_allclose(kernels.logSumExp(x, 1), [1e4, -1e4], rtol=1e-3)


def test_log_sum_exp_knows_infinity():
    x = np.array([[-np.inf, -np.inf], [np.inf, 0], [0, -np.inf]])
    assert kernels.logSumExp(x, 1).tolist() == [-np.inf, np.inf, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0, 5, 5000])
def test_moments_survive_a_large_mean(dtype, offset, rng):
    x = (rng.standard_normal((64, 3, 8, 8)) + offset).astype(dtype)
    exact = x.astype(np.longdouble)
    mean, variance = kernels.moments(x, (0, 2, 3))
    assert mean.dtype == variance.dtype == dtype and mean.shape == (3,)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(mean, exact.mean(axis=(0, 2, 3)), rtol=4 * eps, atol=4 * eps)
    np.testing.assert_allclose(variance, exact.var(axis=(0, 2, 3)), rtol=16 * eps)
    wide, _ = kernels.moments(x, (0, 2, 3), keepdims=True)
    assert wide.shape == (1, 3, 1, 1) and wide.reshape(3).tolist() == mean.tolist()


def test_moments_of_float16_are_taken_in_float32():
    mean, variance = kernels.moments(np.full((4096, 2), 60, dtype=np.float16), 0)
    assert mean.dtype == np.float32 and mean.tolist() == [60, 60] and variance.tolist() == [0, 0]


@pytest.mark.parametrize("shape", [(2, 3, 4), (3, 4), (1, 4), (3, 1), (2, 1, 4), (1, 1, 1), (4,), (1,), ()])
def test_unbroadcasting_is_the_adjoint_of_broadcasting(shape, rng):
    x, g = rng.standard_normal(shape), rng.standard_normal((2, 3, 4))
    total = kernels.unbroadcast(g, shape)
    assert total.shape == shape
    assert dot(np.broadcast_to(x, g.shape), g) == pytest.approx(dot(x, total), rel=1e-12, abs=1e-12)


def test_unbroadcasting_float16_adds_in_float32():
    total = kernels.unbroadcast(np.ones((4099, 2), dtype=np.float16), (1, 2))
    assert total.dtype == np.float16 and total.tolist() == [[4100, 4100]]


# What holds for all of them


@pytest.mark.parametrize("name", DROPPED)
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_dtype_is_kept_and_arguments_are_not_written(name, dtype, rng):
    call, shapes = DROPPED[name]
    arguments = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    before = [argument.copy() for argument in arguments]
    for argument in arguments:
        argument.flags.writeable = False
    y = call(*arguments)
    assert y.dtype == dtype and y.flags.c_contiguous
    assert all(np.array_equal(argument, copy) for argument, copy in zip(arguments, before))
    exact = call(*(argument.astype(np.float64) for argument in arguments))
    np.testing.assert_allclose(y, exact, rtol=4 * np.finfo(dtype).eps, atol=64 * np.finfo(dtype).eps)


@pytest.mark.parametrize("name", DROPPED)
def test_arguments_may_lie_anyhow_in_memory(name, rng):
    call, shapes = DROPPED[name]
    arguments = [rng.standard_normal(shape) for shape in shapes]
    turned = [np.asfortranarray(argument) for argument in arguments]
    apart = [np.repeat(argument[::-1], 2, axis=-1)[::-1, ..., ::2] for argument in arguments]
    for others in (turned, apart):
        assert all(np.array_equal(*pair) for pair in zip(arguments, others))
        np.testing.assert_allclose(call(*others), call(*arguments), rtol=1e-13, atol=1e-13)


def test_an_empty_batch_gives_an_empty_batch():
    x, W = np.ones((0, 4, 6, 6), dtype=np.float32), np.ones((2, 4, 3, 3), dtype=np.float32)
    for stride in (1, 2):
        y = kernels.convolve(x, W, stride, 1, 1, 1)
        assert y.shape == (0, 2, 6 // stride, 6 // stride) and y.dtype == np.float32
        assert kernels.convolveData(y, W, x.shape, stride, 1, 1, 1).shape == x.shape
        dW = kernels.convolveWeight(y, x, (3, 3), stride, 1, 1, 1)
        assert dW.shape == W.shape and not dW.any()
    point = kernels.convolve(np.ones((0, 4, 9, 9)), np.ones((3, 4, 1, 1)), 1, 0, 1, 1)
    assert point.shape == (0, 3, 9, 9)
    y, indices = kernels.maxPool(x, 2, 2, 0)
    assert y.shape == indices.shape == (0, 4, 3, 3)
    assert kernels.maxPoolGrad(y, indices, x.shape).shape == x.shape
    assert kernels.meanPool(x, 2, 2, 0, True).shape == y.shape
    assert kernels.meanPoolGrad(y, x.shape, 2, 2, 0, True).shape == x.shape
    none = np.zeros((0, 3), dtype=np.int64)
    assert kernels.gather(np.ones((5, 2)), none).shape == (0, 3, 2)
    assert kernels.scatterAdd(np.ones((0, 3, 2)), none, 5).tolist() == [[0, 0]] * 5
    assert kernels.takeClass(np.ones((0, 7, 3)), none).shape == (0, 3)
    assert kernels.putClass(np.ones((0, 3)), none, 7).shape == (0, 7, 3)
    assert kernels.softmax(np.ones((0, 3)), 1).shape == (0, 3)
    assert kernels.unbroadcast(np.ones((0, 3)), (1, 3)).tolist() == [[0, 0, 0]]
