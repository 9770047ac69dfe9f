"""Kernels for a GPU whose arrays hold numbers of different sizes, as training in mixed precision has them: each reads and
writes every float as it is stored, whatever the others are, or leaves the task to others. In the emulator, against the
references, and for every kernel that there is."""

import numpy as np
import pytest
from launches import emulated, needsEmulator

from puregraph.kernel import registry
from puregraph.kernels import classes, convolution, einsum, norm, pairs, pooling, recurrent, scatter
from puregraph.kernels import random as randoms
from puregraph.kernels.attention import attend, attendGrad

pytestmark = needsEmulator
CLOSE = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 2e-6, "float64": 1e-13}


def number(name):
    return np.dtype(pytest.importorskip("ml_dtypes").bfloat16 if name == "bfloat16" else name)


def wide(x):
    """What the reference is given."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind not in "iub" else x


class Maker:
    """Arrays of one dtype, of numbers that it holds."""

    def __init__(self, rng, dtype):
        self.rng, self.dtype = rng, number(dtype)

    def __call__(self, *shape):
        return self.rng.standard_normal(shape).astype(self.dtype)

    def index(self, limit, *shape):
        return self.rng.integers(-1, limit, shape)


def peaks(x):
    """Where the maxima of windows are."""
    return pooling.maxPool.reference(x.astype("f4"), 3, 2, 1)[1]


CASES = {  # a kernel, and its arguments
    "gather": (scatter.gather, lambda a: (a(33, 8), a.index(33, 31))),
    "gather by one": (scatter.gather, lambda a: (a(5, 7).T, a.index(7, 3))),
    "scatterAdd": (scatter.scatterAdd, lambda a: (a(257, 8), a.index(33, 257), 33)),
    "scatterAdd by one": (scatter.scatterAdd, lambda a: (a(31, 7), a.index(3, 31), 3)),
    "addAt": (scatter.addAt, lambda a: (a(3, 33), a.index(31, 3, 33), 31)),
    "takeClass": (scatter.takeClass, lambda a: (a(31, 9, 3), a.index(9, 31, 3))),
    "putClass": (scatter.putClass, lambda a: (a(33), a.index(8, 33), 8)),
    "ontoDiagonal": (einsum.ontoDiagonal, lambda a: (a(4, 7), "iji", (4, 7, 4))),
    "pairDots": (pairs.pairDots, lambda a: [a(3, 33) for _ in range(5)]),
    "pairDotsGrad": (pairs.pairDotsGrad, lambda a: (a(3, 10), *[a(3, 33) for _ in range(5)])),
    "maxPool": (pooling.maxPool, lambda a: (a(2, 3, 33), 3, 2, 1)),
    "maxPoolGrad": (pooling.maxPoolGrad, lambda a: (a(2, 3, 17), peaks(a(2, 3, 33)), (2, 3, 33), 3, 2, 1)),
    "meanPool": (pooling.meanPool, lambda a: (last(a(2, 9, 7, 16)), 3, 2, 1)),
    "meanPoolGrad": (pooling.meanPoolGrad, lambda a: (a(2, 3, 5, 4), (2, 3, 9, 7), 3, 2, 1)),
    "convolve": (convolution.convolve, lambda a: (last(a(2, 9, 7, 8)), a(16, 8, 3, 3), 1, 1, 1, 1)),
    "convolveData": (convolution.convolveData, lambda a: (a(2, 5, 9), a(5, 3, 3), (2, 3, 9), 1, 1, 1, 1)),
    "convolveWeight": (convolution.convolveWeight, lambda a: (a(2, 5, 9), a(2, 3, 9), (3,), 1, 1, 1, 1)),
    "each map by itself": (convolution.convolve, lambda a: (last(a(2, 9, 7, 8)), a(8, 1, 3, 3), 1, 1, 1, 8)),
    "its data": (convolution.convolveData, lambda a: (a(2, 3, 9), a(3, 1, 3), (2, 3, 9), 1, 1, 1, 3)),
    "its weight": (convolution.convolveWeight, lambda a: (a(2, 3, 9), a(2, 3, 9), (3,), 1, 1, 1, 3)),
}
ALIKE = {  # whose floats have to be of one dtype, or that have other tests for it
    attend, attendGrad, norm.norm, recurrent.forward, recurrent.throughTime, randoms.uniform, randoms.normal,
    recurrent.alive, classes.classIndex,
}  # fmt: skip


def last(x):
    """Maps whose channels lie side by side."""
    return np.moveaxis(x, -1, 1)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("bfloat16", "float32"),
        ("float32", "bfloat16"),
        pytest.param("float16", "float64", marks=pytest.mark.slow),
        pytest.param("float64", "float16", marks=pytest.mark.slow),
        pytest.param("bfloat16", "bfloat16", marks=pytest.mark.slow),
        pytest.param("float16", "float16", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", CASES)
def test_results_have_a_dtype_of_their_own(rng, name, given, made):
    kernel, arguments = CASES[name]
    arguments = arguments(Maker(rng, given))

    def out(shape, dtype):
        return np.empty(shape, dtype if dtype.kind in "iub" else number(made))

    found = emulated(kernel, *arguments, strides=out)
    wanted = kernel.reference(*map(wide, arguments))
    for one, other in zip(*[x if isinstance(x, tuple) else (x,) for x in (found, wanted)]):
        scale = max(1.0, np.abs(other[np.isfinite(other)]).max(initial=0))
        assert one.shape == other.shape and (one.dtype == other.dtype or one.dtype == number(made))
        room = scale * max(CLOSE[made], CLOSE["float32"])
        np.testing.assert_allclose(one.astype("f8"), other.astype("f8"), rtol=0, atol=room)


def test_every_kernel_is_tried_so():
    known = {each for name, each in registry.items() if name.startswith("puregraph.") and "cuda" in each.twins}
    assert {each.name for each in known - {kernel for kernel, _ in CASES.values()}} == {each.name for each in ALIKE}


def test_what_cannot_be_read_is_left_to_others(rng):
    real, whole = rng.standard_normal((4, 4)), rng.integers(0, 3, (4, 4))
    y = np.empty((4, 4), "f4")
    assert scatter.gather.twins["cuda"](y, whole, whole[0]) is NotImplemented
    assert scatter.addAt.twins["cuda"](y, whole, whole, 4) is NotImplemented
    assert scatter.scatterAdd.twins["cuda"](y, whole, whole[0], 4) is NotImplemented
    assert scatter.takeClass.twins["cuda"](y[0], whole, whole[0]) is NotImplemented
    assert scatter.putClass.twins["cuda"](y, whole[0], whole[0], 4) is NotImplemented
    assert einsum.ontoDiagonal.twins["cuda"](y, whole[0], "ii", (4, 4)) is NotImplemented
    assert pairs.pairDots.twins["cuda"](y[:, :1], real, y) is NotImplemented
    for draw in (randoms.uniform, randoms.normal):
        assert draw.twins["cuda"](y, (4, 4), 1, 2, "f2") is NotImplemented
