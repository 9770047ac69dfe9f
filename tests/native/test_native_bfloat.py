"""Products in bfloat16: the instruction against generic code to the bit, and every layout and size against float64."""

import numpy as np
import pytest

from puregraph.ops.native.llvm import jit

if not jit.available():
    pytest.skip(jit.missing(), allow_module_level=True)

from natively import aligned, compiledFor, run, strides

from puregraph.ops.native.llvm.bfloatpairs import contiguousPairs, interleavedPairs, pairDot, roundedToBfloat16
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec, KernelCall
from puregraph.ops.product.native.gemm import BatchAxis, gemm, vectorsFor
from puregraph.ops.product.native.packedmatrix import packed

LANES = jit.lanes(4)
GENERIC = {16: "x86-64-v4", 8: "haswell", 4: "x86-64"}
CPUS = [
    (None, LANES),
    *((GENERIC[lanes], lanes) for lanes in (16, 8, 4) if lanes <= LANES and jit.processor() == "x86"),
]
VECTORS = [*CPUS, *((None, lanes) for lanes in (4, 8) if lanes < LANES)]
KINDS = ("rows", "columns", "part", "apart")
COUNT = 1 << 14
EXTREMES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 1.1754942e-38, 1.1754944e-38, 3.4028235e38, 1.0, 1.00390625]


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def matrix(rng, rows, columns, kind):
    """Contiguous rows, contiguous columns, rows of a larger matrix, or every third number of one."""
    if kind == "rows":
        return rng.standard_normal((rows, columns), np.float32)
    if kind == "columns":
        return rng.standard_normal((columns, rows), np.float32).T
    if kind == "part":
        return rng.standard_normal((rows + 1, columns + 5), np.float32)[1:, 2 : 2 + columns]
    return rng.standard_normal((rows, columns, 3), np.float32)[:, :, 1]


def multiply(a, b, lanes=LANES, threads=2, walkers=1, **options):
    """a b in bfloat16, into rows longer than needed, whose ends must stay as they are; and the calls."""
    m, k, n = *a.shape, b.shape[1]
    y = np.full((m, n + 3), 7, np.float32)
    options = {"lanes": lanes, "threads": threads, "halves": True, **options}
    works = gemm(a, b, EpilogueSpec(y, n + 3), m, n, k, strides(a), strides(b), **options)
    run(works, walkers)
    assert (y[:, n:] == 7).all()
    assert any(work.halves for work in works)
    return y[:, :n]


def agrees(got, a, b):
    """Whether each sum of products of rounded factors is off by no more than rounding every step of it explains."""
    a, b = (roundedToBfloat16(x).astype(float) for x in (a, b))
    bound = np.finfo(np.float32).eps / 2 * a.shape[-1] * (np.abs(a) @ np.abs(b))
    return bool((np.abs(got - a @ b) <= bound).all())


def elementwise(write, key, inputs, kinds, result, lanes):
    """A kernel over vectors of several arrays: `write(code, *vectors)` gives the vector that is stored."""
    y = np.zeros(len(inputs[0]), {"f32": np.float32, "i32": np.int32}[result])

    def kernel(code):
        sources = [code.pointer(f"x{i}", kind) for i, kind in enumerate(kinds)]
        to, n = code.pointer("y", result), code.integer("n")
        with code.loop(0, n, lanes, unroll=1) as i:
            to.store(i, write(code, *(x.load(i, lanes) for x in sources)))

    slots = {f"x{i}": x for i, x in enumerate(inputs)} | {"y": y, "n": len(y)}
    run([KernelCall(key, f"{key} {lanes} {jit.target().features}", kernel, slots, 1)])
    return y


def floats(rng, scale):
    """Any bits, or normal numbers of a wide range around a power of two; extremes among them."""
    if scale is None:
        return rng.integers(0, 1 << 32, COUNT, np.uint64).astype(np.uint32).view(np.float32)
    x = (rng.standard_normal(COUNT) * 2.0 ** (scale + rng.integers(-8, 8, COUNT))).astype(np.float32)
    x[: 4 * len(EXTREMES) : 4] = EXTREMES
    return x


def halvesOf(rng, scale):
    """Pairs of random bfloat16."""
    x, y = (floats(rng, scale).view(np.uint32) for _ in range(2))
    return (x >> 16 | y & 0xFFFF0000).view(np.int32)


def same(x, y):
    """Whether all bits are equal; NaN may have any payload."""
    isNan = (x != x) & (y != y) if x.dtype.kind == "f" else False
    return bool((isNan | (x.view(np.uint32) == y.view(np.uint32))).all())


@pytest.mark.parametrize("cpu", VECTORS)
@pytest.mark.parametrize("scale", [None, 0, -62, -126])
def test_pairs_are_multiplied_as_the_manual_says(rng, scale, cpu):
    a, b, sums = halvesOf(rng, scale), halvesOf(rng, scale), floats(rng, None if scale is None else 2 * scale)

    def flushed(x):
        return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)

    want = flushed(sums)
    with np.errstate(all="ignore"):
        for part in (lambda x: x & -0x10000, lambda x: x << 16):  # the second numbers of the pairs, then the first
            x, y = (flushed(part(p).view(np.float32)).astype(np.longdouble) for p in (a, b))
            want = flushed((x * y + want).astype(np.float32))
    with compiledFor(cpu[0]):
        got = elementwise(pairDot, "dot", (sums, a, b), ("f32", "i32", "i32"), "f32", cpu[1])
    assert same(got, want)


@pytest.mark.parametrize("cpu", VECTORS)
@pytest.mark.parametrize("scale", [None, 0, -126, 127])
def test_floats_are_rounded_to_nearest_even(rng, scale, cpu):
    with np.errstate(over="ignore"):
        x, y = floats(rng, scale), floats(rng, scale)
    with compiledFor(cpu[0]):
        lanes = cpu[1]
        between = elementwise(interleavedPairs, "between", (x, y), ("f32", "f32"), "i32", lanes).view(np.uint32)
        behind = elementwise(contiguousPairs, "behind", (x, y), ("f32", "f32"), "i32", lanes).view(np.uint16)
    wantX, wantY = (roundedToBfloat16(v).view(np.uint32) for v in (x, y))
    assert (between == (wantX >> 16 | wantY)).all()
    both = np.concatenate([wantX.reshape(-1, lanes), wantY.reshape(-1, lanes)], 1) >> 16
    assert (behind.reshape(-1, 2 * lanes) == both).all()


def test_the_reference_rounds_as_ml_dtypes_does(rng):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = floats(rng, None)
    x = x[(np.abs(x) >= np.finfo(np.float32).tiny) | (x != x)]
    with np.errstate(all="ignore"):
        assert same(roundedToBfloat16(x), x.astype(ml_dtypes.bfloat16).astype(np.float32))


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("left", KINDS)
@pytest.mark.parametrize("right", KINDS)
def test_every_layout(rng, left, right, cpu):
    for m, n, k in ((64, 48, 40), (37, 70, 33), (12, 130, 801)):
        a, b = matrix(rng, m, k, left), matrix(rng, k, n, right)
        with compiledFor(cpu[0]):
            got = multiply(a, b, cpu[1])
            assert agrees(got, a, b)
            assert all((multiply(a, b, cpu[1], threads, walkers) == got).all() for threads, walkers in ((1, 1), (4, 3)))


@pytest.mark.parametrize("m", [11, 24, 200, 360])
@pytest.mark.parametrize("n", [5, 24, 200, 672])
@pytest.mark.parametrize("k", [8, 33, 200, 1541])
def test_odd_sizes(rng, m, n, k):
    for left, right in (("rows", "columns"), ("rows", "rows"), ("columns", "rows")):
        a, b = matrix(rng, m, k, left), matrix(rng, k, n, right)
        assert agrees(multiply(a, b), a, b)


@pytest.mark.skipif(not jit.multipliesBfloat16(), reason="no instruction for bfloat16")
def test_the_instruction_gives_the_bits_of_generic_code(rng):
    a, b = matrix(rng, 50, 1000, "rows"), matrix(rng, 1000, 100, "rows")
    got = multiply(a, b, 16)
    with compiledFor("x86-64-v4"):
        assert not jit.multipliesBfloat16()
        assert (multiply(a, b, 16) == got).all()


@pytest.mark.parametrize("shape", [(24, 200, 5000), (16, 16, 20000), (300, 300, 4097)])
def test_a_long_k_is_split(rng, shape):
    m, n, k = shape
    a, b = matrix(rng, m, k, "columns"), matrix(rng, k, n, "rows")
    scratch = {"workspace": lambda count: aligned(4 * count).view("f4")}
    got = multiply(a, b, **scratch)
    assert agrees(got, a, b)
    assert all((multiply(a, b, threads=threads, walkers=threads, **scratch) == got).all() for threads in (1, 3, 4))


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("k", [33, 513, 1600])
@pytest.mark.parametrize("kind", ["rows", "columns", "apart"])
def test_a_weight_that_is_packed_ahead(rng, kind, k, cpu):
    m, n = 50, 90
    a, b = matrix(rng, m, k, "rows"), matrix(rng, k, n, kind)
    with compiledFor(cpu[0]):
        vectors = vectorsFor(m, n, k, strides(a), cpu[1], halves=True)
        to, works = packed(
            b, n, k, strides(b), lambda count: aligned(4 * count).view("f4"), cpu[1], vectors, halves=True
        )
        run(works, 2)
        y = np.zeros((m, n), np.float32)
        run(gemm(a, to, EpilogueSpec(y, n), m, n, k, strides(a), lanes=cpu[1], halves=True))
    assert agrees(y, a, b)


def test_a_batch_of_products(rng):
    a, b = rng.standard_normal((6, 20, 70), np.float32), rng.standard_normal((6, 70, 33), np.float32)
    y = np.zeros((6, 20, 33), np.float32)
    axes = [BatchAxis(6, 1400, 2310)]
    run(gemm(a, b, EpilogueSpec(y, 33, (660,)), 20, 33, 70, (70, 1), (33, 1), axes, LANES, halves=True))
    assert all(agrees(*args) for args in zip(y, a, b))


@pytest.mark.parametrize("shape", [(1, 100, 100), (8, 100, 100), (100, 1, 100), (100, 100, 7), (100, 100, 0)])
def test_small_products_stay_in_float32(rng, shape):
    m, n, k = shape
    a, b, y = matrix(rng, m, k, "rows"), matrix(rng, k, n, "rows"), np.zeros((m, n), np.float32)
    works = gemm(a, b, EpilogueSpec(y, n), m, n, k, strides(a), strides(b), lanes=LANES, halves=True)
    run(works)
    assert not any(work.halves for work in works)
    np.testing.assert_allclose(y, a.astype(float) @ b, atol=1e-4)


def test_numbers_that_are_not_finite(rng):
    a, b = matrix(rng, 20, 65, "rows"), matrix(rng, 65, 40, "rows")
    a[3, 64], b[7, 5], b[64, 9] = np.nan, np.inf, -np.inf
    got = multiply(a, b)
    want = roundedToBfloat16(a) @ roundedToBfloat16(b)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
