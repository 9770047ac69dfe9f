"""Real kernels, each broken in one place: the suite tells every such fault without a GPU, and by which of its means.

What nothing here can tell is what only makes a kernel slow.
"""

import numpy as np
import pytest
from launches import emulated, gate, needsEmulator, needsNvrtc
from test_cuda_lastblock import statistics

from puregraph.ops.cuda.nests.launches import launches
from puregraph.ops.cuda.nests.nestwriter import canonical
from puregraph.ops.cuda.nests.rowreduce import rowLaunch
from puregraph.ops.formula import Formula
from puregraph.ops.formula.loopnest import LoopNest, Operand, Reduce
from puregraph.ops.gather.reference import gather, takeClass
from puregraph.ops.product.cuda.blocktiling import TILES
from puregraph.ops.product.cuda.gemm import matmul
from puregraph.ops.product.pairwisedot import pairDots, pairDotsGrad
from puregraph.ops.recurrent import cellsplit
from puregraph.ops.recurrent import reference as recurrent
from puregraph.ops.recurrent.reference import forward
from puregraph.testing.emulator import emulator
from puregraph.testing.emulator.emulator import KernelError


def gathering(rng):
    return gather, (rng.standard_normal((9, 8)).astype("f4"), rng.integers(0, 9, 31))


def taking(rng):
    return takeClass, (rng.standard_normal((31, 5)).astype("f4"), rng.integers(0, 5, 31))


def pairing(rng):
    return pairDots, [rng.standard_normal((3, 33)).astype("f4") for _ in range(5)]


def remembering(rng):
    shapes = (9, 3, 5), (5, 132), (33, 132), (9, 33), (9, 33)
    x, W, U, h, c = (rng.standard_normal(shape).astype("f4") * np.float32(0.5) for shape in shapes)
    return forward, (recurrent.lstmStep, x, W, None, (U,), [h, c])


SUMMED = "units, 1, units - unit, units);\n    }\n    __syncthreads();"
DONE = "    ENDOFSTEP(k);"
FAULTS = {  # a kernel and its arguments; what is replaced in its text, and by what; how it is told
    "an index behind the end": (gathering, "storePack(y, row * width + at,", "storePack(y, row * width + at + n,",
        KernelError, "writes 16 bytes at byte 992 of argument 0, which has 992"),
    "an index before the beginning": (gathering, "from * width + at)", "from * width + at - n)",
        KernelError, "reads 4 bytes at byte -16 of argument 1, which has 288"),
    "another index of the array": (taking, "label * step", "(classes - 1 - label) * step",
        AssertionError, "Mismatched elements"),
    "an address that suits no wide access": (gathering, "from * width + at)", "max(from * width + at - 1, 0LL))",
        KernelError, "moves 16 bytes at an address that is no multiple of 16"),
    "a missing barrier": (remembering, SUMMED, SUMMED.replace("__syncthreads();", ""),
        KernelError, "writes what was read at .* of shared memory, and no barrier"),
    "a race between barriers": (remembering, DONE, "",
        KernelError, "writes what was read at .* and no barrier"),
    "two threads that write to one place": (taking, "y[to]", "y[to / 2]",
        KernelError, "writes what was written at .* and no barrier"),
    "a barrier that not all reach": (pairing, "__syncthreads();", "if (threadIdx.x > 127) return; __syncthreads();",
        KernelError, "waits at kernel:.*, but thread .* has ended"),
    "memory that nobody wrote": (remembering, "if (unit < units && row", "if (unit + 4 < units && row",
        AssertionError, "nan"),
}  # fmt: skip


@needsEmulator
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_kernel_is_told_by_the_emulator(rng, monkeypatch, fault):
    make, old, new, error, words = FAULTS[fault]
    kernel, arguments = make(rng)
    check(kernel, arguments)
    twin = kernel.implementations["cuda"]

    def broken(*given, **options):
        found = twin(*given, **options)
        assert any(old in launch.source for launch in found), "the text has changed: break it elsewhere"
        return [launch._replace(source=launch.source.replace(old, new)) for launch in found]

    monkeypatch.setitem(kernel.implementations, "cuda", broken)
    with pytest.raises(error, match=words):
        check(kernel, arguments)


# Launches of nests and products ------------------------------------------------------------------------------------------


def multiplying16(rng):
    """A product by tensor cores, of one tile, whose depth takes two stages."""
    a, b = rng.standard_normal((40, 40)).astype("f2"), rng.standard_normal((40, 24)).astype("f2")
    y = np.full((40, 24), np.nan, "f2")
    tile = next(each for each in TILES["Half"] if (each.rows, each.columns) == (64, 64))
    return matmul(y, a, b, tile=tile, parts=1), y, a.astype("f8") @ b


def nested(space, x, lines, **stores):
    loads = {"x": Operand("f32", x, (x.strides[0] // 4, 1))}
    return LoopNest(space, loads, lines, {n: Operand("f32", y, s) for n, (y, s) in stores.items()}, "f32")


def longRows(rng):
    """Rows that registers cannot hold, less their maximum, which is the last element; no pack divides their length."""
    x, y = rng.random((2, 33004)).astype("f4")[:, :33003], np.full((2, 33004), np.nan, "f4")[:, :33003]
    x[:, -1] = 2
    lines = (("m", Reduce("max", "x", frozenset([1]))), ("y", Formula("x - m")))
    nest = canonical(nested(x.shape, x, lines, y=(y, (33004, 1))))
    return [rowLaunch(nest, frozenset([1]))], y, x - 2


def shortRows(rng):
    """Sums over rows of 24 elements, by eight lanes each."""
    x, y = rng.standard_normal((9, 24)).astype("f4"), np.full((9, 1), np.nan, "f4")
    return (
        launches(nested(x.shape, x, (("y", Reduce("sum", "x", frozenset([1]))),), y=(y, (1, 0)))),
        y,
        x.sum(1)[:, None],
    )


def writingOver(rng):
    """Formulas whose result is stored where an operand is."""
    x = rng.standard_normal((5, 8)).astype("f4")
    return launches(nested(x.shape, x, (("y", Formula("exp(x)")),), y=(x, (8, 1)))), x, np.exp(x)


AWAIT, MASKED = "awaitStage<STAGES - 2>();", "__shfl_xor_sync(ALL, x, d)"
PLANTED = {  # what makes launches, their result and what it should be; and, as above, the fault
    "fragments in another order": (multiplying16, '"r"(b0), "r"(b1)', '"r"(b1), "r"(b0)',
        AssertionError, "Mismatched elements"),
    "fragments of rows for fragments of columns": (multiplying16, "loadMatrices<true>", "loadMatrices<false>",
        AssertionError, "Mismatched elements"),
    "a stage too few that is awaited": (multiplying16, AWAIT, "awaitStage<STAGES - 1>();",
        KernelError, "where a copy is on its way that thread .* has not awaited"),
    "a stage that is never complete": (multiplying16, "cp.async.commit_group;", "cp.async.wait_group 0;",
        KernelError, "where a copy is on its way"),
    "the rest of a row that registers cannot hold": (longRows, "length / v * v + lane", "length / v * v + lane + 1",
        AssertionError, "nan"),
    "lanes outside of a mask": (shortRows, MASKED, MASKED.replace("ALL", "(1u << lanes) - 1"),
        KernelError, "by a mask, 000000ff, that it is not in"),
    "__restrict__ where an operand is written over": (writingOver, "const float* l_x0", "const float* __restrict__ l_x0",
        KernelError, "argument 0 of pointwise is __restrict__, but shares memory with argument 1, and argument 1 is written"),
}  # fmt: skip


@needsEmulator
@pytest.mark.parametrize("fault", PLANTED)
def test_a_wrong_launch_is_told_by_the_emulator(rng, monkeypatch, fault):
    make, old, new, error, words = PLANTED[fault]
    found, y, wanted = make(rng)
    common = emulator.beginning()
    assert old in common or any(old in launch.source for launch in found), "the text has changed: break it elsewhere"
    monkeypatch.setattr(emulator, "PROGRAMS", {})
    monkeypatch.setattr(emulator, "beginning", lambda: common.replace(old, new))
    with pytest.raises(error, match=words):
        emulator.run([each._replace(source=each.source.replace(old, new)) for each in found])
        np.testing.assert_allclose(y, wanted, 1e-2, 1e-2)


@needsEmulator
@pytest.mark.parametrize(
    "text, by, reason",
    [
        ("    FENCE();\n    drawn", "    drawn", "reads what was written at .* of another block"),
        ("drawn = draw(ticket, blocks);\n    FENCE();", "drawn = draw(ticket, blocks);", "reads what was written at"),
        ("__shared__ unsigned drawn;\n  __syncthreads();", "__shared__ unsigned drawn;", "reads what was written at"),
        ("return drawn == blocks - 1", "return drawn == 0", "writes what was read at .* of another block"),
        ("if (drawn == blocks - 1) atomicExch(ticket, 0u);", "", "a ticket is not 0 after the launch"),
    ],
)
def test_a_last_block_that_may_miss_what_others_stored_is_reported(rng, text, by, reason):
    (launch,), *_ = statistics(rng.standard_normal((1200, 16)).astype("f4"))
    assert launch.source.count(text) == 1
    with pytest.raises(KernelError, match=reason):
        emulator.run([launch._replace(source=launch.source.replace(text, by))])


BARRIER = "k + 1 < to ? gridBarrier(ticket, k - from, to - from) : lastDraw(ticket, to - from)"


@needsEmulator
@pytest.mark.parametrize(
    ("text", "by", "reason"),
    [
        (BARRIER, "__syncthreads()", "writes what was read at .* of another block"),
        ("    FENCE();\n    draw(", "    draw(", "reads what was written at .* of another block"),
        ("pause();\n    FENCE();", "pause();", "reads what was written at .* of another block"),
        ("int times) {\n  __syncthreads();", "int times) {", "reads what was written at .* of another block"),
        ("index + 1)) pause", "index + 2)) pause", "blocks wait for others, and none goes on"),
        ("{\n  if (threadIdx.x == 0) draw(", "{\n  if (0) draw(", "a ticket is not 0 after the launch"),
        ("  __syncthreads();\n  return held;", "  return held;", "at .* of shared memory, and no barrier"),
    ],
)
def test_a_broken_barrier_of_the_grid_is_told(rng, monkeypatch, text, by, reason):
    monkeypatch.setattr(cellsplit, "FAST_WEIGHT_BYTES", 0)
    shapes = (9, 3, 5), (5, 36), (9, 36), (9, 9), (9, 9)
    x, W, U, h, c = (rng.standard_normal(shape).astype("f4") for shape in shapes)
    given = recurrent.lstmStep, x, W, None, (U,), [h, c]
    outs = [np.empty(shape, dtype) for shape, dtype in forward.shapeRule(*given)]
    launches = forward.implementations["cuda"](outs, *given)
    emulator.run(launches)
    assert launches[-1].source.count(text) == 1, "the text has changed: break it elsewhere"
    with pytest.raises(KernelError, match=reason):
        emulator.run([each._replace(source=each.source.replace(text, by)) for each in launches])


@needsEmulator
def test_blocks_that_wait_for_each_other_are_all_on_the_gpu(rng, monkeypatch):
    monkeypatch.setattr(cellsplit, "FAST_WEIGHT_BYTES", 0)
    x, W, U, h = (rng.standard_normal(shape).astype("f4") for shape in ((3, 2, 5), (5, 9), (9, 9), (3, 9)))
    launches = forward.implementations["cuda"]([np.empty((3, 2, 9), "f4")], recurrent.tanhStep, x, W, None, (U,), [h])
    assert [each.cooperative for each in launches] == [False, False, True]
    with pytest.raises(KernelError, match="may not have begun: the launch is not cooperative"):
        emulator.run([each._replace(cooperative=False) for each in launches])
    with pytest.raises(KernelError, match="has 132 processors for blocks that wait for each other, not"):
        emulator.run([*launches[:-1], launches[-1]._replace(grid=(133, 1, 1))])


def check(kernel, arguments):
    found, wanted = emulated(kernel, *arguments), kernel.reference(*arguments)
    for x, y in zip(*[each if isinstance(each, (tuple, list)) else [each] for each in (found, wanted)]):
        np.testing.assert_allclose(x, y, 1e-5, 1e-5)


# What the assembler says ------------------------------------------------------------------------------------------------


def multiplying():
    a, b, y = (np.empty((256, 256), "f4") for _ in "aby")
    return matmul(y, a, b)


def sloping():
    xs = [np.empty((3, 33), "f4") for _ in range(5)]
    return pairDotsGrad.implementations["cuda"](np.empty((3, 5, 33), "f4"), np.empty((3, 10), "f4"), *xs)


def cells():
    kernel, arguments = remembering(np.random.default_rng(0))
    outs = [np.empty(shape, dtype) for shape, dtype in kernel.shapeRule(*arguments)]
    return kernel.implementations["cuda"](outs, *arguments)[-1:]


def changed(launches, old="", new="", **fields):
    assert all(old in launch.source for launch in launches), "the text has changed: break it elsewhere"
    return [launch._replace(source=launch.source.replace(old, new), **fields) for launch in launches]


UNFIT = {
    "a spill": (multiplying, "__launch_bounds__(THREADS, ", "__launch_bounds__(1024, ", {}, "contract spills"),
    "memory of a thread's own": (cells, "sum[i * UNITS + j] +=", "sum[(i * UNITS + j + c) & 31] +=", {}, "bytes of local memory"),
    "more registers than there are": (multiplying, "__launch_bounds__(THREADS, ", "__launch_bounds__(256, ",
        {"block": (1024, 1, 1)}, "wants .* registers on sm_90"),
    "more shared memory than sm_80 has": (sloping, "", "", {"shared": 200 << 10}, "sm_80 has 166912"),
    "a grid that no GPU has": (sloping, "", "", {"grid": (1, 70000, 1)}, "no GPU has a grid"),
    "a block that no GPU has": (sloping, "", "", {"block": (64, 32, 1)}, "no block has"),
    "a number that does not fit": (sloping, "", "", {"slots": (("int", 1 << 32),)}, "does not fit in int"),
}  # fmt: skip


@needsNvrtc
@pytest.mark.parametrize("fault", UNFIT)
def test_a_kernel_that_does_not_fit_is_told_by_the_gate(fault):
    make, old, new, fields, words = UNFIT[fault]
    gate(make())
    with pytest.raises(AssertionError, match=words):
        gate(changed(make(), old, new, **fields))
