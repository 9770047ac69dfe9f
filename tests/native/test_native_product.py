"""Matrix products of native code: every layout, size, batch and tail against float64."""

import ctypes
import mmap
import os
import sys
from itertools import product as cartesian

import numpy as np
import pytest

from puregraph.ops.native.llvm import jit

if not jit.available():
    pytest.skip(jit.missing(), allow_module_level=True)

from natively import REALS, aligned, compiledFor, run, strides

from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec
from puregraph.ops.product.native.blocking import ACCUMULATORS, DEPTH, PACKED_B, GemmSizes, blockingFor
from puregraph.ops.product.native.gemm import BatchAxis, gemm
from puregraph.ops.product.native.gemv import horizontalSums
from puregraph.ops.product.native.microkernel import registers, tiles
from puregraph.ops.product.native.pack import PackedMatrix
from puregraph.ops.product.native.packedmatrix import packed

LANES = jit.lanes(4)
CPUS = [(None, LANES), ("haswell", 8), ("x86-64", 4)] if LANES > 4 else [(None, 4)]
SIZES = [
    (1, 1, 1),
    (1, 90, 37),
    (85, 1, 41),
    (1, 2100, 9),
    (33, 50, 1),
    (64, 48, 40),
    (37, 70, 33),
    (3, 100, 20),
    (130, 35, 800),
    (16, 10, 500),
    (15, 33, 0),
    (2, 3, 1000),
]


@pytest.fixture
def rng():
    return np.random.default_rng(5)


@pytest.fixture(params=("f4", "f8"))
def real(request):
    """The dtype of a product."""
    return request.param


def matrix(rng, rows, columns, kind, real="f4"):
    """Contiguous rows, contiguous columns, rows of a larger matrix, or every third number of one."""
    if kind == "rows":
        return rng.standard_normal((rows, columns)).astype(real)
    if kind == "columns":
        return rng.standard_normal((columns, rows)).astype(real).T
    if kind == "part":
        return rng.standard_normal((rows + 1, columns + 5)).astype(real)[1:, 2 : 2 + columns]
    return rng.standard_normal((rows, columns, 3)).astype(real)[:, :, 1]


def kindOf(x):
    """The kind of a dtype's elements in native code."""
    return REALS[x.itemsize]


def lanesOf(x, lanes):
    """The elements of x in a vector of so many float32."""
    if lanes * 4 < 4 * x.itemsize:
        pytest.skip("a compiled step leaves float64 to numpy where a vector has two")
    return lanes * 4 // x.itemsize


KINDS = ("rows", "columns", "part", "apart")


def agrees(found, a, b):
    """Whether each sum is off by no more than rounding every step of it explains."""
    wide = np.longdouble if a.itemsize == 8 else np.float64
    exact = a.astype(wide) @ b.astype(wide)
    bound = np.finfo(a.dtype).eps / 2 * a.shape[-1] * (np.abs(a).astype(wide) @ np.abs(b).astype(wide))
    return bool((np.abs(found - exact) <= bound).all())


def multiply(a, b, lanes=LANES, threads=2, walkers=1, **options):
    """a b through native code, into rows longer than needed, whose ends must stay as they are."""
    m, k, n = *a.shape, b.shape[1]
    y, kind, lanes = np.full((m, n + 3), 7, a.dtype), kindOf(a), lanesOf(a, lanes)
    options |= {"lanes": lanes, "threads": threads, "real": kind}
    works = gemm(a, b, EpilogueSpec(y, n + 3, (), kind), m, n, k, strides(a), strides(b), **options)
    run(works, walkers)
    assert (y[:, n:] == 7).all()
    return y[:, :n]


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(("n", "k"), [(1, 2), (3, 16), (37, 33), (128, 100), (2100, 5), (4099, 2), (130, 1000)])
@pytest.mark.parametrize("m", [2, 3, 4, 5, 7, 8, 11])
def test_few_rows_and_a_weight_whose_columns_are_contiguous(rng, real, m, n, k, cpu):
    a, b = matrix(rng, m, k, "part", real), matrix(rng, k, n, "columns", real)
    with compiledFor(cpu[0]):
        found = multiply(a, b, cpu[1])
        assert agrees(found, a, b)
        assert all((multiply(a, b, cpu[1], threads) == found).all() for threads in (1, 3))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("right", KINDS)
@pytest.mark.parametrize("left", KINDS)
def test_any_strides(rng, real, left, right, size):
    m, n, k = size
    a, b = matrix(rng, m, k, left, real), matrix(rng, k, n, right, real)
    assert agrees(multiply(a, b), a, b)


@pytest.mark.parametrize("cpu, lanes", CPUS[1:])
@pytest.mark.parametrize("left, right", [("rows", "rows"), ("rows", "columns"), ("columns", "part")])
def test_narrow_vectors(rng, real, cpu, lanes, left, right):
    with compiledFor(cpu):
        for m, n, k in [(37, 70, 33), (3, 100, 20), (130, 35, 400), (7, 9, 50), (1, 50, 37), (45, 1, 37), (9, 21, 1)]:
            a, b = matrix(rng, m, k, left, real), matrix(rng, k, n, right, real)
            assert agrees(multiply(a, b, lanes), a, b)


@pytest.mark.parametrize("kind", ("rows", "columns", "apart"))
@pytest.mark.parametrize("cpu, lanes", CPUS)
def test_packed_once_for_several_products(rng, real, cpu, lanes, kind):
    with compiledFor(cpu):
        lanes = lanesOf(np.zeros(0, real), lanes)
        b = matrix(rng, 600, 70, kind, real)
        panels, works = packed(b, 70, 600, strides(b), roomOf(real), lanes, real=kindOf(b))
        run(works)
        for m in (5, 64, 150):
            a, y = matrix(rng, m, 600, "rows", real), np.zeros((m, 70), real)
            finish = EpilogueSpec(y, 70, (), kindOf(y))
            run(gemm(a, panels, finish, m, 70, 600, strides(a), lanes=lanes, real=kindOf(a)))
            assert agrees(y, a, b)


def test_random_sizes(rng, real):
    for _ in range(60):
        m, n, k = (int(2 ** rng.uniform(0, 8.5)) for _ in range(3))
        left, right = rng.choice(KINDS, 2)
        a, b = matrix(rng, m, k, left, real), matrix(rng, k, n, right, real)
        assert agrees(multiply(a, b, threads=int(rng.integers(1, 17))), a, b)


def test_batches_with_any_strides(rng):
    a, b = rng.standard_normal((3, 4, 33, 20)).astype("f4"), rng.standard_normal((4, 50, 20)).astype("f4")
    y = np.zeros((4, 33, 3, 50), "f4")  # [second, row, first, column]
    axes = [BatchAxis(3, 4 * 33 * 20, 0), BatchAxis(4, 33 * 20, 50 * 20)]
    finish = EpilogueSpec(y, 3 * 50, (50, 33 * 3 * 50))
    run(gemm(a, b, finish, 33, 50, 20, (20, 1), (1, 20), axes), 2)
    exact = np.einsum("fsrk,sck->srfc", a.astype("f8"), b.astype("f8"))
    assert np.abs(y - exact).max() < 1e-5


@pytest.mark.parametrize("cpu, lanes", CPUS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_matrix_times_its_transpose_is_symmetric_and_has_the_bits_of_the_full_product(rng, real, kind, cpu, lanes):
    """Half of it is computed; blocks of k, split k and tasks that have nothing above the diagonal are among the sizes."""
    with compiledFor(cpu):
        for n, k in [
            (1, 5),
            (2, 9),
            (9, 1),
            (9, 21),
            (14, 30),
            (37, 33),
            (100, 400),
            (130, 800),
            (257, 64),
            (40, 5000),
        ]:
            a = matrix(rng, n, k, kind, real)
            full = multiply(a, a.T, lanes, workspace=roomOf(real))
            for threads in (1, 2, 5):
                half = multiply(a, a.T, lanes, threads, threads, isSymmetric=True, workspace=roomOf(real))
                assert (half == half.T).all(), (n, k, threads)
                assert (half == full).all(), (n, k, threads)
            assert agrees(half, a, a.T)


def test_a_transpose_that_is_packed_ahead(rng, real):
    a = matrix(rng, 130, 70, "rows", real)
    panels, works = packed(a.T, 130, 70, strides(a.T), roomOf(real), lanesOf(a, LANES), real=kindOf(a))
    y = np.zeros((130, 130), real)
    works += gemm(
        a, panels, EpilogueSpec(y, 130, (), kindOf(y)), 130, 130, 70, strides(a), lanes=lanesOf(a, LANES),
        real=kindOf(a), isSymmetric=True,
    )  # fmt: skip
    run(works)
    assert agrees(y, a, a.T) and (y == y.T).all()


def test_products_of_a_batch_with_their_transposes(rng):
    a, y = rng.standard_normal((3, 50, 20)).astype("f4"), np.zeros((3, 50, 50), "f4")
    finish, axes = EpilogueSpec(y, 50, (2500,)), [BatchAxis(3, 1000, 1000)]
    run(gemm(a, a, finish, 50, 50, 20, (20, 1), (1, 20), axes, isSymmetric=True), 2)
    assert (y == np.swapaxes(y, 1, 2)).all()
    assert np.abs(y - a.astype("f8") @ np.swapaxes(a, 1, 2)).max() < 1e-5


def test_one_batch_axis(rng):
    a, b = rng.standard_normal((5, 40, 17)).astype("f4"), rng.standard_normal((5, 17, 23)).astype("f4")
    y = np.zeros((5, 40, 23), "f4")
    run(gemm(a, b, EpilogueSpec(y, 23, (40 * 23,)), 40, 23, 17, (17, 1), (23, 1), [BatchAxis(5, 40 * 17, 17 * 23)]))
    assert np.abs(y - a.astype("f8") @ b).max() < 1e-5


@pytest.mark.parametrize("m, n, k", [(100, 300, 900), (64, 500, 50), (7, 700, 400), (300, 9, 100)])
def test_the_same_results_for_any_number_of_threads(rng, real, m, n, k):
    a, b = matrix(rng, m, k, "rows", real), matrix(rng, k, n, "rows", real)
    results = [multiply(a, b, threads=threads, walkers=threads) for threads in (1, 2, 3, 4, 16)]
    assert all((result == results[0]).all() for result in results)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("right", ["rows", "columns"])
@pytest.mark.parametrize("n", [5, 32, 40, 64, 200, 513, 5000])
def test_a_vector_times_a_matrix_is_the_same_for_any_number_of_threads_on_every_processor(rng, real, n, right, cpu):
    a, b = matrix(rng, 1, 64, "rows", real), matrix(rng, 64, n, right, real)
    with compiledFor(cpu[0]):
        results = [multiply(a, b, cpu[1], threads) for threads in (1, 2, 3, 8)]
        assert all((result == results[0]).all() for result in results)


def test_no_products_of_nothing():
    none = np.zeros((0, 4), "f4")
    assert gemm(none, none, EpilogueSpec(none, 4), 0, 4, 3, (3, 1), (4, 1)) == []


@pytest.mark.parametrize("m, n, k", [(20, 30, 5000), (13, 16, 4100), (64, 10, 20000), (256, 300, 1100)])
def test_a_long_k_is_cut_into_parts(rng, real, m, n, k):
    a, b, bias = (
        matrix(rng, m, k, "columns", real),
        matrix(rng, k, n, "rows", real),
        rng.standard_normal(n).astype(real),
    )
    results = []
    for threads in (1, 2, 4):
        y = np.zeros((m, n), real)
        finish = Relu(y, n, bias)
        options = {"lanes": lanesOf(a, LANES), "threads": threads, "workspace": roomOf(real), "real": kindOf(a)}
        works = gemm(a, b, finish, m, n, k, strides(a), strides(b), **options)
        assert len(works) == 2 and works[0].tasks >= 2
        run(works, threads)
        results.append(y)
    assert agrees(np.where(results[0] > 0, results[0], np.minimum(a @ b + bias, 0)) - bias, a, b)
    assert all((y == results[0]).all() for y in results)


def test_rows_are_dealt_out_in_the_order_in_which_they_were_made():
    plan = blockingFor(GemmSizes(2048, 1536, 384, 1, 16, "rows", "packed"), 2)
    assert plan.down * plan.strips * plan.tile.rows >= 2048 and plan.down >= 2
    block = -(-plan.down * plan.across // 2)  # what a thread begins with
    assert -(-block // plan.across) * plan.strips * plan.tile.rows <= 1024 + plan.tile.rows


def test_parts_of_batches(rng, real):
    a, b = rng.standard_normal((2, 3, 6, 5000)).astype(real), rng.standard_normal((3, 5000, 8)).astype(real)
    y = np.zeros((2, 3, 6, 8), real)
    axes, finish = (
        [BatchAxis(2, 3 * 6 * 5000, 0), BatchAxis(3, 6 * 5000, 5000 * 8)],
        EpilogueSpec(y, 8, (3 * 6 * 8, 6 * 8), kindOf(y)),
    )
    works = gemm(a, b, finish, 6, 8, 5000, (5000, 1), (8, 1), axes, lanesOf(a, LANES), 2, roomOf(real), kindOf(a))
    assert len(works) == 2
    run(works, 2)
    assert all(agrees(y[i, j], a[i, j], b[j]) for i in range(2) for j in range(3))


def roomOf(real):
    """Scratch memory that is not a number before it is written."""
    return lambda count: np.full(count, np.nan, real)


class Relu(EpilogueSpec):
    """y = max(sums + b, 0)"""

    def __init__(self, to, stride, bias):
        super().__init__(to, stride, (), kindOf(to))
        self.bias = bias

    @property
    def key(self):
        return f"bias relu {self.real}"

    @property
    def slots(self):
        return super().slots | {"bias": self.bias}

    def open(self, code):
        super().open(code)
        self.add = code.pointer("bias", self.real)

    def put(self, code, row, column, sums, mask=None):
        y = sums + self.add.load(column, sums.lanes, mask)
        super().put(code, row, column, code.select(y > 0.0, y, 0.0), mask)


class Add(EpilogueSpec):
    """y += sums"""

    key = "add"

    def put(self, code, row, column, sums, mask=None):
        old = self.y.load(row * self.rowStride + column, sums.lanes, mask)
        super().put(code, row, column, old + sums, mask)


@pytest.mark.parametrize("m, n, k", [(40, 50, 30), (70, 33, 500), (1, 100, 70), (100, 1, 70), (20, 40, 1)])
def test_what_becomes_of_the_sums(rng, m, n, k):
    a, b, bias = matrix(rng, m, k, "rows"), matrix(rng, k, n, "rows"), rng.standard_normal(n).astype("f4")
    y = np.zeros((m, n), "f4")
    run(gemm(a, b, Relu(y, n, bias), m, n, k, (k, 1), (n, 1)))
    exact = np.maximum(a.astype("f8") @ b + bias, 0)
    assert np.abs(y - exact).max() < 1e-3
    run(gemm(a, b, Add(y, n), m, n, k, (k, 1), (n, 1)))
    assert np.abs(y - exact - a.astype("f8") @ b).max() < 1e-3


def test_nothing_is_read_outside(rng, real):
    """Matrices surrounded by nan, at both ends of what they lie in."""
    for left, right in (("rows", "rows"), ("columns", "columns"), ("part", "rows"), ("rows", "columns")):
        for m, n, k in [(30, 35, 21), (5, 17, 3), (1, 40, 9), (40, 1, 9)]:
            a, b = guarded(rng, m, k, left, real), guarded(rng, k, n, right, real)
            assert agrees(multiply(a, b), a, b)


def guarded(rng, rows, columns, kind, real):
    if kind == "columns":
        return guarded(rng, columns, rows, "rows", real).T
    room = np.full((rows + 2, columns + 34), np.nan, real)
    room[1:-1, 17:-17] = rng.standard_normal((rows, columns))
    return room[1:-1, 17:-17]


@pytest.mark.parametrize("lanes", (4, 8, 16))
def test_tiles_fit_the_registers(lanes):
    for tile in tiles(lanes):
        assert tile.rows * tile.vectors + tile.vectors + 1 <= registers(lanes)


@pytest.mark.parametrize("lanes", (4, 8, 16))
def test_blockings_cover_all_and_fit_their_scratch_memory(rng, lanes):
    for _ in range(300):
        m, n, k, batch = (int(2 ** rng.uniform(0, high)) for high in (13, 13, 12, 4))
        layouts = rng.choice(["rows", "columns", "any"]), rng.choice(["rows", "columns", "any", "packed"])
        plan = blockingFor(GemmSizes(m, n, k, batch, lanes, *layouts), int(rng.integers(1, 17)))
        tile, rows, columns = plan.tile, plan.strips * plan.tile.rows, plan.panels * plan.tile.width
        assert plan.down * rows >= m > (plan.down - 1) * rows
        assert plan.across * columns >= n > (plan.across - 1) * columns
        assert plan.depth <= DEPTH and plan.depth % lanes == 0
        assert plan.depth * columns <= max(PACKED_B * (1 + (layouts[1] == "packed" and k <= DEPTH)), DEPTH * tile.width)
        assert k <= DEPTH or rows * columns <= max(ACCUMULATORS, tile.size)


@pytest.mark.parametrize("layout", ("rows", "columns", "packed"))
def test_what_the_strips_of_a_task_meet_again_leaves_a_tenth_of_the_second_cache_to_what_runs_through(layout):
    for m, n, k, threads in cartesian(range(20, 2049, 507), (128, 512, 1000, 4096), (128, 512, 1000, 4096), (1, 8)):
        plan = blockingFor(GemmSizes(m, n, k, 1, 16, "rows", layout), threads)
        again = plan.depth * plan.panels * plan.tile.width
        again += plan.strips * plan.panels * plan.tile.size if k > DEPTH else 0
        assert 4 * again <= 0.9 * (1 << 20), (m, n, k, plan)


@pytest.mark.parametrize(
    "m, n, k, passes", [(1024, 4096, 4096, 3), (2048, 4096, 1000, 5), (777, 4096, 1000, 2), (1024, 2048, 512, 3)]
)
def test_how_often_a_packed_matrix_is_read_from_far_memory(m, n, k, passes):
    assert blockingFor(GemmSizes(m, n, k, 1, 16, "rows", "packed"), 1).down == passes


def scratchOf(m, n, k, layout):
    """Numbers of scratch that a product's kernel asks for, and the sizes of what it sums."""
    a, b = np.zeros((m, k), "f4"), np.zeros((k, n) if layout == "rows" else (n, k), "f4")
    strides = (n, 1) if layout == "rows" else (1, k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[gemm.__module__], "COMPILED", set())  # else a tile of another test may be taken
        (work,) = gemm(a, b, EpilogueSpec(a, n), m, n, k, (k, 1), strides, lanes=16, threads=1)
    code = IRBuilder()
    work.write(code)
    return code.scratchBytes // 4, set(code.functions)


@pytest.mark.parametrize("m, n, whole, last", [(4, 256, 6, 4), (8, 128, 3, 2), (7, 120, 3, 2), (3, 256, 6, 4)])
def test_a_single_strip_reads_all_rows_of_b_where_they_are_the_last_columns_too(m, n, whole, last):
    scratch, parts = scratchOf(m, n, 128, "rows")
    assert parts == {f"multiply1x{whole}", f"multiply2x{last}cut"}
    assert scratch < 128 * n  # b has no place in it


def test_panels_that_a_single_strip_reads_once_share_scratch_memory():
    for layout in ("rows", "columns"):
        tile = blockingFor(GemmSizes(13, 512, 512, 1, 16, "rows", layout), 1).tile
        assert tile.rows >= 13
        panel = 0 if layout == "rows" else DEPTH * tile.width
        strip = tile.rows * (DEPTH + 16) + 16 * 16
        assert scratchOf(13, 512, 512, layout)[0] == panel + strip + ACCUMULATORS
    assert scratchOf(64, 512, 512, "columns")[0] > PACKED_B


def test_rows_of_b_are_copied_while_the_first_strip_reads_them():
    assert scratchOf(64, 120, 128, "rows")[1] == {"multiply0x2", "multiply2x2", "multiply3x2cut"}


@pytest.mark.parametrize("lanes, few", [(16, 10), (8, 8)])
def test_up_to_how_many_rows_a_weight_stored_by_its_outputs_is_not_packed(lanes, few):
    for m in range(2, 20):
        a = b = np.zeros(1, "f4")
        (work,) = gemm(a, b, EpilogueSpec(a, 9), m, 128, 512, (512, 1), (1, 512), lanes=lanes, threads=1)
        assert work.key.startswith("few") == (m <= few)


def atTheEnd(x):
    """A copy of x whose last number is the last one of a page; the page behind it cannot be read."""
    size = -(-x.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, size + mmap.PAGESIZE), np.uint8)
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(memory.ctypes.data + size), mmap.PAGESIZE, 0) == 0
    copy = memory[size - x.nbytes : size].view(x.dtype).reshape(x.shape)
    copy[:] = x
    return copy


@pytest.mark.skipif(os.name == "nt", reason="needs mprotect")
@pytest.mark.parametrize("m, n, k", [(5, 17, 30), (8, 100, 12), (10, 250, 9), (40, 77, 20), (30, 96, 3), (2, 3, 5)])
@pytest.mark.parametrize("cpu, lanes", CPUS)
def test_nothing_is_read_behind_the_last_number(rng, real, cpu, lanes, m, n, k):
    with compiledFor(cpu):
        a = atTheEnd(matrix(rng, m, k, "rows", real))
        for b in (atTheEnd(matrix(rng, k, n, "rows", real)), atTheEnd(matrix(rng, n, k, "rows", real)).T):
            assert agrees(multiply(a, b, lanes), a, b)


@pytest.mark.skipif(os.name == "nt", reason="needs mprotect")
@pytest.mark.parametrize("n", [200, 360, 672])
def test_a_packed_matrix_is_not_read_behind_its_last_number(rng, real, n):
    """Although the code prefetches what lies behind."""
    b = matrix(rng, 90, n, "rows", real)
    lanes = lanesOf(b, LANES)
    panels, works = packed(b, n, 90, strides(b), lambda count: atTheEnd(np.zeros(count, real)), lanes, 3, kindOf(b))
    run(works)
    for m in (2, 5, 8, 24, 31):
        a, y = matrix(rng, m, 90, "rows", real), np.zeros((m, n), real)
        works = gemm(a, panels, EpilogueSpec(y, n, (), kindOf(y)), m, n, 90, strides(a), lanes=lanes, real=kindOf(a))
        run(works)
        assert agrees(y, a, b)


def test_each_vector_of_a_matrix_packed_ahead_is_prefetched():
    a = np.zeros(1, "f4")
    for b, count in [(PackedMatrix(a, 384, 1536, 3, 16), 3), (a, 0)]:  # panels of others are in the cache already
        (work,) = gemm(a, b, EpilogueSpec(a, 1536), 8, 1536, 384, (384, 1), (3, 384), lanes=16, threads=1)
        code = IRBuilder()
        work.write(code)
        (text,) = code.functions.values()
        assert text.count("call void @llvm.prefetch") == count


def test_a_matrix_that_was_packed_is_read_once_by_a_few_rows():
    assert blockingFor(GemmSizes(32, 4096, 4096, 1, 16, "rows", "packed"), 2).down == 1


def test_plans_suit_their_sizes():
    assert blockingFor(GemmSizes(512, 512, 512, 1, 16, "rows", "rows"), 2).tile.rows > 7
    assert blockingFor(GemmSizes(3, 512, 512, 1, 16, "rows", "rows"), 2).tile.rows == 3
    assert blockingFor(GemmSizes(64, 10, 512, 1, 16, "rows", "rows"), 2).tile.width == 16
    busy = blockingFor(GemmSizes(512, 512, 512, 1, 16, "rows", "rows"), 16)
    assert busy.down * busy.across >= 16


def test_scratch_memory_starts_a_cache_line():
    assert aligned(100).ctypes.data % 64 == 0


def test_sums_of_all_lanes_of_several_vectors():
    class Row(list):
        lanes = property(len)

        def __add__(self, other):
            return Row(x + y for x, y in zip(self, other))

    class Lists:
        def shuffle(self, x, y, picks):
            return Row(([*x, *y])[i] for i in picks)

    for count, lanes in ((8, 16), (8, 8), (4, 4), (2, 16)):
        rows = [Row(10**r * (j + 1) for j in range(lanes)) for r in range(count)]
        assert horizontalSums(Lists(), rows)[:count] == [sum(row) for row in rows]
