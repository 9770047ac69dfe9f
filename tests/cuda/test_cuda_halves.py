"""Kernels for a GPU whose arrays hold numbers of different sizes, as training in mixed precision has them: each reads and
writes every float as it is stored, whatever the others are, or leaves the task to others. In the emulator, against the
references, and for every kernel that there is."""

import numpy as np
import pytest
from launches import emulated, needsEmulator

from puregraph.ops.alignment.reference import alignments
from puregraph.ops.alignment.transducer import transductions
from puregraph.ops.attention.reference import attend, attendGrad
from puregraph.ops.convolution import reference as convolution
from puregraph.ops.gather import labels
from puregraph.ops.gather import reference as scatter
from puregraph.ops.gather.alongaxis import putAlong, takeAlong, wrapIndex
from puregraph.ops.kernel import registry
from puregraph.ops.movement.reference import writeAt
from puregraph.ops.order.reference import sortAlong
from puregraph.ops.pooling import reference as pooling
from puregraph.ops.product import einsum, pairwisedot
from puregraph.ops.random import reference as randoms
from puregraph.ops.recurrent import reference as recurrent
from puregraph.ops.reduction import entropy, norm
from puregraph.ops.reduction.cumulate import cumulate
from puregraph.ops.reduction.windowsum import windowSum

pytestmark = needsEmulator
CLOSE = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 2e-6, "float64": 1e-13}


def number(name):
    return np.dtype(pytest.importorskip("ml_dtypes").bfloat16 if name == "bfloat16" else name)


def wide(x):
    """What the reference is given."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind not in "iub" else x


class Maker:
    """Arrays of one dtype, of numbers that it holds; with `gaps` between them, if that is asked for."""

    def __init__(self, rng, dtype, gaps):
        self.rng, self.dtype, self.gaps = rng, number(dtype), gaps

    def __call__(self, *shape):
        x = self.rng.standard_normal(shape).astype(self.dtype)
        if not self.gaps:
            return x
        room = np.full((*shape, 3), np.nan, self.dtype)
        room[..., 1] = x
        return room[..., 1]

    def index(self, limit, *shape):
        return self.rng.integers(-1, limit, shape)


def peaks(x):
    """Where the maxima of windows are."""
    return pooling.maxPool.reference(x.astype("f4"), 3, 2, 1)[1]


def last(x):
    """Maps whose channels lie side by side."""
    return np.moveaxis(x, -1, 1)


CASES = {  # a kernel, and its arguments, for a size
    "gather": (scatter.gather, lambda a, n: (a(33, n), a.index(33, 31))),
    "gather of rows of eight": (scatter.gather, lambda a, n: (a(n, 8), a.index(n, n))),
    "scatterAdd": (scatter.scatterAdd, lambda a, n: (a(33, n), a.index(5, 33), 5)),
    "scatterAdd of rows of eight": (scatter.scatterAdd, lambda a, n: (a(n, 8), a.index(n, n), n)),
    "addAt": (scatter.addAt, lambda a, n: (a(3, n), a.index(31, 3, n), 31)),
    "takeClass": (scatter.takeClass, lambda a, n: (a(n, 9, 3), a.index(9, n, 3))),
    "putClass": (scatter.putClass, lambda a, n: (a(33), a.index(n, 33), n)),
    "entropyGrad": (entropy.entropyGrad, lambda a, n: (a(n, 9, 3), a(n, 3), a.index(9, n, 3), a())),
    "ontoDiagonal": (einsum.ontoDiagonal, lambda a, n: (a(n, 7), "iji", (n, 7, n))),
    "pairDots": (pairwisedot.pairDots, lambda a, n: [a(3, n) for _ in range(5)]),
    "pairDotsGrad": (pairwisedot.pairDotsGrad, lambda a, n: (a(3, 10), *[a(3, n) for _ in range(5)])),
    "maxPool": (pooling.maxPool, lambda a, n: (a(2, 3, n), 3, 2, 1)),
    "maxPoolGrad": (pooling.maxPoolGrad, lambda a, n: (a(2, 3, (n + 1) // 2), peaks(a(2, 3, n)), (2, 3, n), 3, 2, 1)),
    "meanPool": (pooling.meanPool, lambda a, n: (last(a(2, n, 7, 16)), 3, 2, 1)),
    "meanPoolGrad": (pooling.meanPoolGrad, lambda a, n: (a(2, 3, (n + 1) // 2, 4), (2, 3, n, 7), 3, 2, 1)),
    "convolve": (convolution.convolve, lambda a, n: (last(a(2, n, 7, 8)), a(16, 8, 3, 3), 1, 1, 1, 1)),
    "convolveData": (convolution.convolveData, lambda a, n: (a(2, 5, n), a(5, 3, 3), (2, 3, n), 1, 1, 1, 1)),
    "convolveWeight": (convolution.convolveWeight, lambda a, n: (a(2, 5, n), a(2, 3, n), (3,), 1, 1, 1, 1)),
    "each map by itself": (convolution.convolve, lambda a, n: (last(a(2, n, 7, 8)), a(8, 1, 3, 3), 1, 1, 1, 8)),
    "its data": (convolution.convolveData, lambda a, n: (a(2, 3, n), a(3, 1, 3), (2, 3, n), 1, 1, 1, 3)),
    "window sum": (windowSum, lambda a, n: (a(3, n + 2), 1, 3)),
    "its weight": (convolution.convolveWeight, lambda a, n: (a(2, 3, n), a(2, 3, n), (3,), 1, 1, 1, 3)),
}
FEW = {"convolve", "convolveData", "convolveWeight"}  # whose texts follow from sizes: they are tried with one
ALIKE = {  # whose floats have to be of one dtype, or that have other tests for it
    attend, attendGrad, norm.norm, recurrent.forward, recurrent.throughTime, randoms.uniform, randoms.normal,
    recurrent.alive, labels.classIndex, cumulate, sortAlong, takeAlong, putAlong, wrapIndex, writeAt,
    alignments, transductions,
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "made", "gaps"),
    [
        ("bfloat16", "float32", False),
        ("float32", "bfloat16", True),
        ("float16", "float16", False),
        pytest.param("bfloat16", "bfloat16", True, marks=pytest.mark.slow),
        pytest.param("float16", "float64", True, marks=pytest.mark.slow),
        pytest.param("float64", "float16", False, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", CASES)
def test_results_have_a_dtype_of_their_own(rng, name, given, made, gaps):
    kernel, arguments = CASES[name]

    def out(shape, dtype):
        return np.empty(shape, dtype if dtype.kind in "iub" else number(made))

    for n in (33,) if name in FEW else (1, 31, 33, 257):
        each = arguments(Maker(rng, given, gaps), n)
        found = emulated(kernel, *each, strides=out)
        wanted = kernel.reference(*map(wide, each))
        for one, other in zip(*[x if isinstance(x, tuple) else (x,) for x in (found, wanted)]):
            scale = max(1.0, np.abs(other[np.isfinite(other)]).max(initial=0))
            assert one.shape == other.shape and (one.dtype == other.dtype or one.dtype == number(made))
            room = scale * max(CLOSE[made], CLOSE["float32"])
            np.testing.assert_allclose(one.astype("f8"), other.astype("f8"), rtol=0, atol=room)


def test_every_kernel_is_tried_so():
    known = {
        each for name, each in registry.items() if name.startswith("puregraph.") and "cuda" in each.implementations
    }
    assert {each.name for each in known - {kernel for kernel, _ in CASES.values()}} == {each.name for each in ALIKE}


def test_what_cannot_be_read_is_left_to_others(rng):
    real, whole = rng.standard_normal((4, 4)), rng.integers(0, 3, (4, 4))
    y = np.empty((4, 4), "f4")
    assert scatter.gather.implementations["cuda"](y, whole, whole[0]) is NotImplemented
    assert scatter.addAt.implementations["cuda"](y, whole, whole, 4) is NotImplemented
    assert scatter.scatterAdd.implementations["cuda"](y, whole, whole[0], 4) is NotImplemented
    assert scatter.takeClass.implementations["cuda"](y[0], whole, whole[0]) is NotImplemented
    assert scatter.putClass.implementations["cuda"](y, whole[0], whole[0], 4) is NotImplemented
    assert einsum.ontoDiagonal.implementations["cuda"](y, whole[0], "ii", (4, 4)) is NotImplemented
    assert pairwisedot.pairDots.implementations["cuda"](y[:, :1], real, y) is NotImplemented
    for draw in (randoms.uniform, randoms.normal):
        assert draw.implementations["cuda"](y, (4, 4), 1, 2, "f2") is NotImplemented
