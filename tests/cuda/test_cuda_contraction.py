"""Products of matrices by own kernels for a GPU: in the emulator, against numpy."""

import numpy as np
import pytest
from launches import gate, misplaced, needsEmulator, needsNvrtc, poison, runAll

from puregraph.ops.convolution.reference import convolve
from puregraph.ops.formula import Formula
from puregraph.ops.product.cuda.blocktiling import TILES
from puregraph.ops.product.cuda.epilogue import EpilogueOperandText, EpilogueText
from puregraph.ops.product.cuda.gemm import OwnGemmOperand, matmul, product

pytestmark = needsEmulator
FINEST = {"float64": 1e-14, "float32": 1e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


def dtypeOf(name):
    return np.dtype(pytest.importorskip("ml_dtypes").bfloat16 if name == "bfloat16" else name)


def matrix(rng, dtype, *shape, isTurned=False):
    """Random numbers, laid out by columns where turned."""
    x = rng.standard_normal(shape).astype(dtypeOf(dtype))
    return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) if isTurned else x


def close(got, wanted, dtype, depth=1):
    """Within the rounding of sums of so many products of numbers about one."""
    room = FINEST[dtype] * max(1.0, np.abs(wanted).max(initial=0))
    np.testing.assert_allclose(got.astype("f8"), wanted, rtol=0, atol=room)


def tileOf(kind, rows, columns):
    return next(tile for tile in TILES[kind] if (tile.rows, tile.columns) == (rows, columns))


CASES = [
    ("float32", (128, 128), (130, 132, 36), "k", "n", "m"),
    ("float32", (128, 64), (131, 60, 40), "m", "k", "n"),
    ("float32", (32, 128), (1, 257, 33), "k", "n", "n"),
    ("float64", (64, 64), (66, 31, 34), "k", "n", "n"),
    ("float16", (128, 128), (136, 128, 40), "k", "n", "n"),
    ("bfloat16", (128, 64), (128, 72, 64), "m", "k", "m"),
    ("float16", (64, 64), (65, 33, 31), "k", "k", "n"),
]


@pytest.mark.parametrize("dtype, tile, sizes, a, b, y", CASES, ids=str)
def test_a_tile_is_a_product(rng, dtype, tile, sizes, a, b, y):
    m, n, k = sizes
    A, B = matrix(rng, dtype, m, k, isTurned=a == "m"), matrix(rng, dtype, k, n, isTurned=b == "k")
    Y = poison(matrix(rng, dtype, m, n, isTurned=y == "m"))
    kind = {"float32": "float", "float64": "double"}.get(dtype, "Half")
    wanted = A.astype("f8") @ B.astype("f8")
    runAll(matmul(Y, A, B, tile=tileOf(kind, *tile), parts=1))
    close(Y, wanted, dtype)
    A, B = misplaced(A) if a == "k" else A, misplaced(B) if b == "n" else B
    runAll(matmul(poison(Y), A, B, tile=tileOf(kind, *tile), parts=1))
    close(Y, wanted, dtype)


def test_a_batch_is_summed_in_parts_of_the_depth(rng):
    A, B = matrix(rng, "float32", 2, 3, 33, 300), matrix(rng, "float32", 3, 300, 17)
    Y = poison(np.empty((3, 2, 33, 17), "f4")).swapaxes(0, 1)
    launches = matmul(Y, A, B)
    assert [launch.entry for launch in launches] == ["contract", "total"]
    runAll(launches)
    close(Y, A.astype("f8") @ B, "float32")
    first = Y.copy()
    runAll(matmul(poison(Y), A, B))
    np.testing.assert_array_equal(Y, first)


@pytest.mark.parametrize("k", [0, 1024])
def test_a_tail_makes_several_results_of_the_sums(rng, k):
    m, n = 40, 24
    A, B, x = (matrix(rng, "bfloat16", *shape) for shape in ((m, 1024), (1024, n), (m, n)))
    bias, scale = matrix(rng, "float32", n), rng.integers(1, 4, m)
    y, isOn = poison(np.empty((m, n), A.dtype)), np.zeros((n, m), bool).T
    loads = {
        "b": EpilogueOperandText("f32", bias, (0,), (1,)),
        "x": EpilogueOperandText("bf16", x, (n,), (1,)),
        "self": EpilogueOperandText("int64", scale, (1,), (0,)),
    }
    lines = [("u", Formula("s * self + b")), ("isOn", Formula("u > 0")), ("y", Formula("where(isOn, u, expm1(u)) + x"))]
    stores = {"y": EpilogueOperandText("bf16", y, (n,), (1,)), "isOn": EpilogueOperandText("bool", isOn, (1,), (m,))}
    left, right = OwnGemmOperand("bfloat16", A, 1024, 1), OwnGemmOperand("bfloat16", B, n, 1)
    launches = product(left, right, EpilogueText("s", loads, lines, stores), m, n, k)
    assert len(launches) == (2 if k else 1)
    runAll(launches)
    u = A[:, :k].astype("f8") @ B[:k].astype("f8") * scale[:, None] + bias
    close(y, np.where(u > 0, u, np.expm1(np.minimum(u, 0))) + x.astype("f8"), "bfloat16")
    assert np.mean(isOn != (u > 0)) < 0.01


def test_what_no_tile_is_made_for():
    whole, half, single = np.ones((2, 2), int), np.ones((2, 2), "f2"), np.ones((2, 2), "f4")
    assert matmul(whole, whole, whole) is NotImplemented
    assert matmul(single, half, single) is NotImplemented
    assert matmul(np.ones((0, 2), "f4"), np.ones((0, 2), "f4"), single) == []


@needsNvrtc
@pytest.mark.parametrize("size", [1, 3, 5])
def test_few_maps_of_large_images_find_their_registers_on_either_architecture(size):
    x, W, y = (np.empty(shape, "f4") for shape in ((16, 1, 256, 256), (64, 1, size, size), (16, 256, 256, 64)))
    launches = convolve.implementations["cuda"](y.transpose(0, 3, 1, 2), x, W, 1, size // 2, 1, 1)
    assert len(gate(launches, everywhere=True)) == 2
