"""Real kernels, each broken in one place: the suite tells every such fault without a GPU, and by which of its means.

What nothing here can tell: faults in instructions that copy ahead or multiply by whole warps, which have plain twins in
the emulator, and what only makes a kernel slow. Shuffles of a warp's lanes it runs as they are.
"""

import numpy as np
import pytest
from launches import emulated, gate, needsEmulator, needsNvrtc

from puregraph.cuda.conv.gemm import matmul
from puregraph.cuda.emulator.emulator import KernelError
from puregraph.kernels import recurrent
from puregraph.kernels.pairwisedot import pairDots, pairDotsGrad
from puregraph.kernels.recurrent import forward
from puregraph.kernels.scatter import gather, takeClass


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
DONE = "    }\n    __syncthreads();\n  }\n}"
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
    "a race between barriers": (remembering, DONE, DONE.replace("__syncthreads();", ""),
        KernelError, "writes what was read at .* and no barrier"),
    "two threads that write to one place": (taking, "y[to]", "y[to / 2]",
        KernelError, "writes what was written at .* and no barrier"),
    "a barrier that not all reach": (pairing, "__syncthreads();", "if (threadIdx.x > 127) return; __syncthreads();",
        KernelError, "waits at kernel:.*, but thread .* has ended"),
    "memory that nobody wrote": (remembering, "if (unit < units)\n        sums", "if (unit + 4 < units)\n        sums",
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
