"""Calls of NVIDIA's libraries on a GPU: what they give is what the same calls give in numpy; they can be captured."""

import numpy as np
import pytest

from puregraph.ops.attention import cudnn as attention
from puregraph.ops.convolution import cudnn as convolution
from puregraph.ops.cuda.libraries import tensorview
from puregraph.ops.product.cuda.librarygemm import keptFor, product

pytestmark = pytest.mark.gpu
KINDS = ("float64", "float32", "tf32", "float16", "bfloat16")
NEAR = {"float64": 1e-12, "float32": 2e-5, "tf32": 3e-3, "float16": 3e-3, "bfloat16": 2e-2}


def numbers(rng, shape, kind, order=None):
    """Random numbers of a kind, whose axes lie in an order."""
    name = "float32" if kind == "tf32" else kind
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if name == "bfloat16" else np.dtype(name)
    order = range(len(shape)) if order is None else order
    space = rng.standard_normal([shape[i] for i in order]).astype(dtype)
    return space.transpose(np.argsort(order))


def maps(rng, shape, kind):
    return numbers(rng, shape, kind, [0, *range(2, len(shape)), 1])


def heads(rng, shape, kind):
    return numbers(rng, shape, kind, (0, 2, 1, 3))


def stored(array):
    """The memory of an array."""
    names = {"uint8": "bits", "bfloat16": "bfloat16"}
    return tensorview.flat(array, names.get(array.dtype.name, array.dtype.name))


def check(call, reads, writes, kind):
    """Run a call directly and from a captured graph, and compare with numpy; `writes` start as nan, but for bits, whose
    rows may be longer than what is written."""
    import cupy

    assert call is not NotImplemented
    arrays = [*reads, *writes]
    near = [np.array(a, order="K", copy=True) for a in arrays]
    for array in near[len(reads) :]:
        stored(array)[...] = 0
    call.emulate(near)
    stream = cupy.cuda.Stream(non_blocking=True)
    places = [cupy.asarray(stored(a)) for a in arrays]
    room = cupy.empty(max(call.workspace, 256), np.uint8)
    addresses = [place.data.ptr for place in places]
    call.prepare(addresses)
    cupy.cuda.Device().synchronize()

    def results():
        stream.synchronize()
        return [place.get() for place in places[len(reads) :]]

    for place in places[len(reads) :]:
        place.fill({"uint8": 0, "uint16": 0x7FFF}.get(place.dtype.name, np.nan))
    cupy.cuda.Device().synchronize()
    call.run(addresses, room.data.ptr, stream.ptr)
    direct = results()
    for place in places[len(reads) :]:
        place.fill(0)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        call.run(addresses, room.data.ptr, stream.ptr)
        graph = stream.end_capture()
    graph.launch(stream)
    for once, again in zip(direct, results(), strict=True):
        np.testing.assert_array_equal(once, again)
    for found, array in zip(direct, near[len(reads) :], strict=True):
        wanted = stored(array)
        if wanted.dtype == np.uint8:
            assert np.mean(np.unpackbits(found) != np.unpackbits(wanted)) < 0.01
            continue
        name = array.dtype.name
        found, wanted = tensorview.load(found, name).astype(float), tensorview.load(wanted, name).astype(float)
        assert np.linalg.norm(found - wanted) <= NEAR[kind] * max(np.linalg.norm(wanted), 1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("turned", ["", "a", "b", "out", "ab", "about"])
@pytest.mark.parametrize("m, k, n", [(64, 96, 128), (33, 31, 7), (1, 257, 8), (257, 1, 33)])
def test_products(m, k, n, turned, kind, rng):
    sides = zip(((m, k), (k, n), (m, n)), ("a", "b", "out"))
    a, b, out = (numbers(rng, s, kind, (1, 0) if name in turned else (0, 1)) for s, name in sides)
    check(product(out, a, b, tf32=kind == "tf32"), [a, b], [out], kind)


@pytest.mark.parametrize("kind", KINDS)
def test_products_of_batches(kind, rng):
    q, k = heads(rng, (3, 4, 33, 16), kind), heads(rng, (3, 4, 40, 16), kind).swapaxes(-1, -2)
    out = numbers(rng, (3, 4, 33, 40), kind)
    check(product(out, q, k, tf32=kind == "tf32"), [q, k], [out], kind)
    x, W = numbers(rng, (3, 17, 24), kind), numbers(rng, (24, 40), kind)
    out = numbers(rng, (3, 17, 40), kind)
    check(product(out, x, W, alpha=0.5, tf32=kind == "tf32"), [x, W], [out], kind)


@pytest.mark.parametrize("kind", ["tf32", "float16", "bfloat16"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_tails_of_products(activation, kind, rng):
    tf32 = kind == "tf32"
    x, W, bias = numbers(rng, (64, 96), kind), numbers(rng, (96, 136), kind), numbers(rng, (136,), kind)
    y = numbers(rng, (64, 136), kind)
    shape, dtype = keptFor(y.shape, activation, y.dtype)
    kept = np.zeros(shape, dtype)
    check(product(y, x, W, bias=bias, tf32=tf32), [x, W, bias], [y], kind)
    check(product(y, x, W, bias=bias, activation=activation, tf32=tf32), [x, W, bias], [y], kind)
    call = product(y, x, W, bias=bias, activation=activation, kept=kept, tf32=tf32)
    if call is not NotImplemented:
        check(call, [x, W, bias], [y, kept], kind)
    grad, V = numbers(rng, (64, 40), kind), numbers(rng, (136, 40), kind)
    some = stored(numbers(rng, (stored(kept).size,), kind))
    stored(kept)[...] = some if activation == "gelu" else 0x5A
    for total in (None, numbers(rng, (136,), kind)):
        call = product(y, grad, V.T, back=activation, kept=kept, total=total, tf32=tf32)
        if call is not NotImplemented:
            check(call, [grad, V.T, kept], [y] if total is None else [y, total], kind)
    dW, db = numbers(rng, (96, 136), kind), numbers(rng, (136,), kind)
    call = product(dW, x.T, y, total=db, of="b", tf32=tf32)
    if call is not NotImplemented:
        check(call, [x.T, y], [dW, db], kind)


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize(
    "shape, size, lay",
    [
        ((4, 8, 14, 14), (16, 8, 3, 3), (1, 1, 1, 1)),
        ((4, 8, 14, 14), (16, 8, 1, 1), (1, 0, 1, 1)),
        ((4, 8, 14, 14), (16, 8, 1, 1), (2, 0, 1, 1)),
        ((4, 3, 17, 19), (7, 3, 5, 3), ((2, 1), ((2, 1), (0, 1)), 1, 1)),
        ((2, 8, 12, 12), (8, 4, 3, 3), (1, 2, 2, 2)),
        ((2, 16, 12, 12), (16, 1, 3, 3), (2, 1, 1, 16)),
        ((2, 8, 40), (16, 8, 3), (1, 1, 1, 1)),
        ((1, 8, 6, 8, 8), (8, 8, 3, 3, 3), (1, 1, 1, 1)),
    ],
    ids=str,
)
def test_convolutions(shape, size, lay, kind, rng):
    tf32, (stride, pad, dilation, _) = kind == "tf32", lay
    x, W = maps(rng, shape, kind), numbers(rng, size, kind)
    rank = len(shape) - 2
    pads = convolution.perAxis(pad, rank)
    pads = [convolution.perAxis(side, 2) for side in pads]
    steps = zip(shape[2:], size[2:], convolution.perAxis(stride, rank), pads, convolution.perAxis(dilation, rank))
    count = [(n + sum(p) - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in steps]
    y = maps(rng, (shape[0], size[0], *count), kind)
    bias = numbers(rng, (size[0],), kind)
    check(convolution.convolve(y, x, W, *lay, tf32=tf32), [x, W], [y], kind)
    tail = convolution.convolve(y, x, W, *lay, bias=bias, activation="relu", tf32=tf32)
    if tail is not NotImplemented:
        check(tail, [x, W, bias], [y], kind)
    check(convolution.convolveData(x, y, W, shape, *lay, tf32=tf32), [y, W], [x], kind)
    check(convolution.convolveWeight(W, y, x, size[2:], *lay, tf32=tf32), [y, x], [W], kind)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("h, few, t, s, d", [(4, 4, 128, 128, 64), (4, 2, 33, 47, 16), (2, 2, 197, 197, 64)])
def test_attention(h, few, t, s, d, causal, kind, rng):
    q, grad, y = (heads(rng, (2, h, t, d), kind) for _ in range(3))
    k, v = (heads(rng, (2, few, s, d), kind) for _ in range(2))
    lse = np.zeros((2, h, t, 1), np.float32)
    outs = [y, lse]
    call = attention.attend(outs, q, k, v, causal, d**-0.5)
    check(call, [q, k, v], outs, kind)
    call.emulate([q, k, v, *outs])
    made = [np.zeros_like(x) for x in (q, k, v)]
    call = attention.attendGrad(made, grad, q, k, v, y, lse, causal, d**-0.5)
    check(call, [grad, q, k, v, y, lse], made, kind)
