"""Matrix products as cuBLASLt is told them: every view, every tail, carried out in numpy by what the task says."""

import ctypes
import itertools

import numpy as np
import pytest

from puregraph.core import device
from puregraph.core.errors import DeviceError
from puregraph.ops.cuda.libraries import tensorview
from puregraph.ops.product.cuda import cublaslt
from puregraph.ops.product.cuda.cublaslt import KEPT, GemmTask, Matmul, MatrixLayout, TaskAddresses
from puregraph.ops.product.cuda.librarygemm import Product, keptFor, product

LAYS = ("rows", "columns", "wide rows", "wide columns", "part")
TRIPLES = list(itertools.product(LAYS, repeat=3))
TAILED = list(itertools.product(LAYS[:3], LAYS[1:], ("rows", "part")))
HASGPU = device.name() == "cuda"
INSTALLED = pytest.mark.skipif(cublaslt.missing() is not None, reason="cuBLASLt is not installed")
TOLERANCE = {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3}


@pytest.fixture(autouse=True)
def alone():
    """No GPU is asked: what is told to the library does not depend on one."""
    with device.useDevice("cpu"):
        yield


def lying(rng, shape, lay, dtype=np.float32):
    """Random numbers of a shape, whose last two axes lie as named, in memory that holds nan where they are not."""
    *batch, m, n = shape
    margin = {"wide rows": (0, 3), "wide columns": (5, 0), "part": (2, 4)}.get(lay, (0, 0))
    turned = "columns" in lay
    space = np.full((*batch, *((n, m + margin[0]) if turned else (m + margin[0], n + margin[1]))), np.nan, dtype)
    view = np.swapaxes(space, -1, -2) if turned else space
    view = view[..., margin[0] // 2 :, margin[1] // 2 :][..., :m, :n]
    view[...] = rng.standard_normal(shape)
    return view


def run(call, *arrays):
    """Carry a call out on arrays in the order of its slots."""
    call.emulate(arrays)


def agree(found, wanted, dtype="float32", factor=1):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE[dtype] * factor * max(1, np.abs(wanted).max()))


@pytest.mark.parametrize("lays", TRIPLES, ids="-".join)
def test_every_view_is_multiplied_where_it_lies(lays, rng):
    for m, k, n in ((3, 4, 5), (1, 4, 5), (3, 1, 5), (3, 4, 1), (1, 1, 1), (7, 1, 1), (1, 7, 1)):
        a, b = lying(rng, (m, k), lays[0]), lying(rng, (k, n), lays[1])
        out = lying(rng, (m, n), lays[2])
        run(product(out, a, b), a, b, out)
        agree(out, a @ b)


@pytest.mark.parametrize("lays", TRIPLES, ids="-".join)
def test_batches_are_folded_or_counted(lays, rng):
    for one, two in (((2, 3), (2, 3)), ((2, 1), (1, 3)), ((2, 3), ()), ((), (2, 3)), ((6,), (6,)), ((1, 1), (4, 1))):
        a, b = lying(rng, (*one, 4, 5), lays[0]), lying(rng, (*two, 5, 6), lays[1])
        batch = np.broadcast_shapes(one, two)
        out = lying(rng, (*batch, 4, 6), lays[2])
        run(product(out, a, b), a, b, out)
        agree(out, a @ b)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_alpha_and_beta(dtype, rng):
    a, b, out = (rng.standard_normal(s).astype(dtype) for s in ((33, 31), (31, 17), (33, 17)))
    wanted = 0.5 * (a.astype(float) @ b.astype(float)) - 2.0 * out
    run(product(out, a, b, alpha=0.5, beta=-2.0), a, b, out)
    agree(out, wanted, dtype)


def test_halves_are_summed_in_float32(rng):
    a, b = np.full((1, 4096), 0.25, np.float16), np.full((4096, 1), 1.0, np.float16)
    a[0, 0] = 1024
    out, wide = np.empty((1, 1), np.float16), np.empty((1, 1), np.float32)
    run(product(out, a, b), a, b, out)
    run(product(wide, a, b), a, b, wide)
    assert out[0, 0] == 2048 and wide[0, 0] == 1024 + 4095 / 4


def test_bfloat16_is_read_and_rounded_as_its_bits_say(rng):
    types = pytest.importorskip("ml_dtypes")
    a, b = (rng.standard_normal(s).astype(types.bfloat16) for s in ((5, 9), (9, 4)))
    out = np.empty((5, 4), types.bfloat16)
    run(product(out, a, b), a, b, out)
    wanted = (a.astype(np.float32) @ b.astype(np.float32)).astype(types.bfloat16)
    assert np.array_equal(out.view(np.uint16), wanted.view(np.uint16))


def test_bfloat16_rounds_to_even_and_keeps_what_is_no_number():
    types = pytest.importorskip("ml_dtypes")
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, np.inf, -np.inf, np.nan, 3.4e38, 1e-40, -0.0], np.float32)
    stored = np.empty(values.shape, np.uint16)
    tensorview.save(stored, values, "bfloat16")
    wanted = values.astype(types.bfloat16)
    assert np.isnan(tensorview.load(stored, "bfloat16")[5])
    assert np.array_equal(np.delete(stored, 5), np.delete(wanted.view(np.uint16), 5))


def test_tf32_has_ten_bits_of_fraction(rng):
    a, b = np.array([[1 + 2**-10, 1 + 2**-12]], np.float32), np.ones((2, 1), np.float32)
    out = np.empty((1, 1), np.float32)
    run(product(out, a, b, tf32=True), a, b, out)
    assert out[0, 0] == 2 + 2**-10
    run(product(out, a, b), a, b, out)
    assert out[0, 0] == np.float32(2 + 2**-10 + 2**-12)


def gelu(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def slope(x, h=1e-6):
    x = x.astype(float)
    return (gelu(x + h) - gelu(x - h)) / (2 * h)


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("hasBias", [False, True])
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize("lays", TAILED, ids="-".join)
def test_tails_forward_and_backward(lays, activation, hasBias, keeps, rng):
    if keeps and activation is None:
        return
    for batch, m, k, n in (((), 5, 7, 9), ((), 1, 3, 131), ((2, 3), 4, 5, 6), ((3,), 2, 2, 1)):
        a, b = lying(rng, (*batch, m, k), lays[0]), lying(rng, (k, n), lays[1])
        out = lying(rng, (*batch, m, n), lays[2])
        bias = rng.standard_normal(n).astype(np.float32) if hasBias else None
        shape, dtype = keptFor(out.shape, activation, out.dtype)
        kept = np.full(shape, 0, dtype) if keeps else None
        call = product(out, a, b, bias=bias, activation=activation, kept=kept)
        run(call, *(x for x in (a, b, bias, out, kept) if x is not None))
        before = a @ b + (0 if bias is None else bias)
        agree(out, {None: before, "relu": np.maximum(before, 0), "gelu": gelu(before)}[activation])
        if keeps:
            backward(activation, kept, before, batch, (m, k, n), lays, rng)


def backward(activation, kept, before, batch, sizes, lays, rng):
    """The gradient of what an activation was given, and its sum over rows, from what is kept."""
    m, k, n = sizes
    isOne = len(batch) < 1 or lays[2] == lays[0] == "rows"
    grad, W = lying(rng, (*batch, m, k), lays[0]), lying(rng, (n, k), lays[1])
    out, total = lying(rng, (*batch, m, n), lays[2]), np.empty(n, np.float32)
    wanted = grad @ W.T * ((before > 0) if activation == "relu" else slope(before))
    run(product(out, grad, W.T, back=activation, kept=kept), grad, W.T, kept, out)
    agree(out, wanted, factor=4)
    call = product(out, grad, W.T, back=activation, kept=kept, total=total)
    if isOne:
        run(call, grad, W.T, kept, out, total)
        agree(out, wanted, factor=4)
        agree(total, wanted.reshape(-1, n).sum(0), factor=4)
    elif call is not NotImplemented:
        run(call, grad, W.T, kept, out, total)
        agree(total, wanted.reshape(-1, n).sum(0), factor=4)


@pytest.mark.parametrize("of", ["a", "b"])
@pytest.mark.parametrize("lays", TRIPLES, ids="-".join)
def test_sums_of_an_operand_go_with_its_product(lays, of, rng):
    a, b, out = (lying(rng, s, lay) for s, lay in zip(((5, 7), (7, 4), (5, 4)), lays))
    total = np.empty(out.shape[0 if of == "a" else 1], np.float32)
    run(product(out, a, b, total=total, of=of), a, b, out, total)
    agree(out, a @ b)
    agree(total, a.sum(1) if of == "a" else b.sum(0))


def test_a_batch_that_shares_its_weight_is_one_product(rng):
    a, b, out = (rng.standard_normal(s).astype(np.float32) for s in ((8, 16, 32), (32, 24), (8, 16, 24)))
    call = product(out, a, b)
    assert call.task.d == MatrixLayout("float32", 24, 128, 24) and len(call.starts) == 1
    assert call.name == "product 128x32x24 float32"


def test_heads_of_a_batch_take_few_calls(rng):
    q, k = (rng.standard_normal((2, 7, 3, 8)).astype(np.float32).transpose(0, 2, 1, 3) for _ in range(2))
    scores = np.empty((2, 3, 7, 7), np.float32)
    call = product(scores, q, k.swapaxes(-1, -2))
    assert (call.task.d.copies, len(call.starts)) == (3, 2)
    run(call, q, k.swapaxes(-1, -2), scores)
    agree(scores, q @ k.swapaxes(-1, -2))


def test_memory_behind_an_array_is_never_touched():
    out, a, b = (np.ones((4, 4), np.float32) for _ in range(3))
    call = product(out, a, b)
    with pytest.raises(IndexError, match="reaches number"):
        call.emulate([a, b[:3], out])


@pytest.mark.parametrize(
    "what",
    [
        lambda x: {"a": x[:, ::2], "b": x[:2]},  # no numbers side by side
        lambda x: {"a": x[::-1], "b": x},  # backwards
        lambda x: {"a": x, "b": x.astype(np.float64)},
        lambda x: {"a": x.astype(np.int32), "b": x.astype(np.int32), "out": x.astype(np.int32)},
        lambda x: {"a": x[:, :0], "b": x[:0]},
        lambda x: {"a": x, "b": x, "bias": x[0].astype(np.float64)},
        lambda x: {"a": x, "b": x, "bias": x[:, 0]},  # no neighbours
        lambda x: {"a": x, "b": x, "bias": x[0], "out": x.T},  # the bias of rows
        lambda x: {"a": x, "b": x, "activation": "tanh"},
        lambda x: {"a": x, "b": x, "back": "relu"},  # nothing kept
        lambda x: {"a": x, "b": x, "kept": x},  # for nothing
        lambda x: {"a": x, "b": x, "total": x[0]},  # of no gradient
        lambda x: {"a": np.broadcast_to(x[0], (4, 4)), "b": x},
        lambda x: {"a": x[None].repeat(2, 0), "b": x, "out": x[None].repeat(2, 0), "total": x[0], "of": "a"},
        lambda x: {"a": x, "b": x, "activation": "gelu", "kept": np.empty((4, 12), np.float32)[:, :8]},  # odd rows
        lambda x: {"a": x[0], "b": x, "out": x[0]},
        lambda x: {"a": x, "b": x, "activation": "gelu", "kept": np.empty((4, 4), np.float32)},  # rows too short
        lambda x: {"a": x.astype(float), "b": x.astype(float), "out": x.astype(float), "bias": x[0].astype(float)},
    ],
)
def test_what_the_library_does_not_do_is_left_to_others(what, rng):
    x = rng.standard_normal((4, 4)).astype(np.float32)
    options = {"out": np.empty((4, 4), np.float32)} | what(x)
    assert product(options.pop("out"), options.pop("a"), options.pop("b"), **options) is NotImplemented


def test_too_many_calls_are_left_to_others(rng):
    space = np.empty((2, 100, 3, 90, 3), np.float32)
    a = space[:, :, :, ::2, :].transpose(0, 1, 3, 2, 4)[:, :, :45]
    out = np.empty((2, 100, 45, 3, 3), np.float32)
    assert product(out, a, np.empty((2, 100, 45, 3, 3), np.float32)[:, ::2].repeat(2, 1)) is not None
    assert product(out, a, np.empty((90, 100, 45, 3, 3), np.float32)[::45]) is NotImplemented


# What needs the library, and no device ------------------------------------------------------------------------------


DESCRIBED = dict.fromkeys((0, 1, 3, 4), ctypes.c_int32) | {7: ctypes.c_uint32} | dict.fromkeys((8, 11), ctypes.c_void_p)
DESCRIBED |= dict.fromkeys((12, 13), ctypes.c_int64)
LAID = dict.fromkeys((0, 1, 5), ctypes.c_int32) | dict.fromkeys((2, 3), ctypes.c_uint64)
LAID |= dict.fromkeys((4, 6), ctypes.c_int64)
A = MatrixLayout("bfloat16", 24, 64, 32)
B = MatrixLayout("bfloat16", 48, 64, 64, 3, 4096)
D = MatrixLayout("bfloat16", 24, 48, 24, 3, 2000)


@INSTALLED
def test_descriptors_are_what_the_task_says():
    matmul = Matmul(GemmTask("float32", A, B, D, False, True, 32 | 4 | KEPT, 32, 1536))
    matmul.point(TaskAddresses(0, 0, 0, 4096, 8192))
    found = {number: matmul.description.get(number, kind) for number, kind in DESCRIBED.items()}
    assert found == {0: 68, 1: 0, 3: 0, 4: 1, 7: 164, 8: 4096, 11: 8192, 12: 32, 13: 1536}
    found = {number: matmul.layouts[1].get(number, kind) for number, kind in LAID.items()}
    assert found == {0: 14, 1: 0, 2: 48, 3: 64, 4: 64, 5: 3, 6: 4096}


@INSTALLED
@pytest.mark.parametrize("compute, codes", [("float32", (68, 0)), ("tf32", (77, 0)), ("float64", (70, 1))])
def test_each_way_to_compute_has_its_type(compute, codes):
    kind = "float64" if compute == "float64" else "float32"
    matrix = MatrixLayout(kind, 4, 4, 4)
    matmul = Matmul(GemmTask(compute, matrix, matrix, matrix, False, False, alpha=0.5))
    assert (matmul.description.get(0, ctypes.c_int32), matmul.description.get(1, ctypes.c_int32)) == codes
    assert ctypes.sizeof(matmul.alpha) == (8 if compute == "float64" else 4) and matmul.alpha.value == 0.5


@INSTALLED
@pytest.mark.skipif(HASGPU, reason="there is a GPU")
def test_without_a_device_the_library_says_so():
    x = np.ones((4, 4), np.float32)
    call = product(np.empty_like(x), x, x)
    with pytest.raises(DeviceError, match="cublasLtCreate refused, in cuBLASLt .*: the library was not initialized"):
        call.prepare([256, 512, 1024])


@INSTALLED
def test_a_fault_has_the_words_of_the_library():
    with pytest.raises(DeviceError, match="MatmulDescSetAttribute refused, in cuBLASLt .*: an unsupported value"):
        cublaslt.CublasObject("MatmulDesc", 68, 0).set(7, ctypes.c_uint8(3))


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setattr(cublaslt.paths, "folders", list)
    with pytest.raises(DeviceError, match=r"no cublasLu was found: the extras .* \(looked for libcublasLu.so.13"):
        cublaslt.paths.load("cublasLu", hint=cublaslt.HINT)


def test_alignments_are_powers_of_two():
    assert TaskAddresses(4096, 24, 2, 0, 260).aligned == (256, 8, 2, 256, 4)


def test_a_call_tells_what_it_is():
    x = np.ones((4, 4), np.float32)
    call = product(np.empty_like(x), x, x)
    assert isinstance(call, Product) and repr(call) == "<Product product 4x4x4 float32>"
    assert call.workspace == 32 << 20 and [kind for kind, _ in call.slots] == ["pointer"] * 3
