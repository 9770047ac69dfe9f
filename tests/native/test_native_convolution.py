"""Native convolutions against the numpy kernels."""

from itertools import product

import numpy as np
import pytest
from natively import compiledFor, first, last, needsNative, run

from puregraph.ops.convolution.native import convolution, winograd
from puregraph.ops.convolution.native.geometry import geometry
from puregraph.ops.convolution.reference import convolve, convolveData, convolveWeight
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec

pytestmark = needsNative

# n, c, o, spatial, size, stride, pad, dilation, groups
CASES = {
    "plain": (2, 16, 32, (8, 9), (3, 3), 1, 1, 1, 1),
    "valid": (2, 8, 16, (9, 10), (3, 3), 1, 0, 1, 1),
    "point": (3, 24, 40, (5, 7), (1, 1), 1, 0, 1, 1),
    "pointStride": (2, 16, 24, (9, 8), (1, 1), 2, 0, 1, 1),
    "stride": (2, 16, 16, (11, 14), (3, 3), 2, 1, 1, 1),
    "stride3": (1, 5, 7, (13, 16), (4, 2), 3, (1, 0), 1, 1),
    "uneven": (2, 3, 6, (9, 7), (3, 5), (2, 1), ((1, 2), (0, 3)), 1, 1),
    "dilated": (1, 8, 12, (12, 13), (3, 3), 1, 2, 2, 1),
    "dilatedStride": (1, 6, 8, (13, 12), (3, 3), (2, 3), 2, (3, 2), 1),
    "groups": (2, 12, 24, (7, 7), (3, 3), 1, 1, 1, 3),
    "groups2": (2, 32, 32, (6, 6), (3, 3), 2, 1, 1, 8),
    "first": (2, 3, 64, (30, 29), (7, 7), 2, 3, 1, 1),
    "firstLarge": (2, 3, 32, (64, 66), (7, 7), 2, 3, 1, 1),
    "fewLarge": (2, 5, 24, (60, 40), (3, 3), 1, 1, 1, 1),
    "lenet1": (3, 1, 6, (28, 28), (5, 5), 1, 0, 1, 1),
    "lenet2": (3, 6, 16, (12, 12), (5, 5), 1, 0, 1, 1),
    "one": (2, 1, 1, (6, 5), (3, 3), 1, 1, 1, 1),
    "wide": (1, 20, 100, (5, 33), (3, 3), 1, 1, 1, 1),
    "deep": (1, 512, 64, (4, 7), (3, 3), 1, 1, 1, 1),
    "bigPad": (1, 4, 8, (3, 3), (5, 5), 1, 4, 1, 1),
    "wholeMap": (4, 16, 10, (5, 5), (5, 5), 1, 0, 1, 1),
    "gap": (1, 4, 4, (9, 9), (2, 2), 4, 0, 1, 1),
    "line": (3, 8, 16, (21,), (5,), 2, 2, 1, 1),
    "cube": (2, 4, 8, (5, 6, 7), (3, 2, 3), (1, 2, 1), ((1, 1), (0, 1), (2, 0)), 1, 1),
    "cubeDilated": (1, 3, 5, (7, 6, 8), (2, 3, 2), (2, 1, 2), 1, (2, 1, 3), 1),
    "depthwise": (2, 24, 24, (9, 11), (3, 3), 1, 1, 1, 24),
    "depthwiseStride": (2, 40, 40, (13, 12), (3, 3), 2, 1, 1, 40),
    "depthwise5": (1, 16, 16, (12, 23), (5, 5), 1, 2, 1, 16),
    "depthwise5Stride": (2, 37, 37, (11, 10), (5, 5), 2, 2, 1, 37),
    "depthwiseOdd": (1, 5, 5, (7, 9), (2, 3), (3, 1), ((0, 1), (2, 1)), (2, 3), 5),
    "depthwiseCube": (2, 18, 18, (5, 6, 7), (3, 2, 3), (2, 1, 2), 1, (1, 2, 1), 18),
    "depthwiseLine": (2, 32, 32, (19,), (7,), 1, 3, 1, 32),
    "square": (2, 32, 48, (32, 32), (3, 3), 1, 1, 1, 1),
    "squareValid": (3, 16, 32, (27, 19), (3, 3), 1, 0, 1, 1),
    "squareUneven": (2, 48, 16, (21, 30), (3, 3), 1, ((2, 1), (0, 2)), 1, 1),
    "squareSmall": (16, 64, 64, (8, 8), (3, 3), 1, 1, 1, 1),
    "multiplied": (1, 6, 18, (6, 6), (3, 3), 1, 1, 1, 6),
    "large": (1, 5, 6, (14, 15), (12, 13), 1, 6, 1, 1),  # more than `packweights.UNROLLED` taps, as all below
    "largeStride": (1, 8, 17, (26, 27), (24, 25), 2, 12, 1, 1),
    "largeDilated": (1, 3, 24, (9, 30), (2, 67), 3, (1, 66), (1, 2), 1),
    "largeGroups": (2, 8, 16, (260,), (257,), 1, 128, 1, 2),
    "patch": (2, 3, 8, (24, 32), (8, 8), 8, 0, 1, 1),  # from here on many phases, whose kernels are shared
    "phases": (1, 9, 20, (31, 25), (7, 8), (5, 6), (3, 2), 1, 1),
    "phasesDilated": (2, 5, 12, (40, 37), (4, 3), (6, 5), 3, (3, 4), 1),
    "phasesGap": (1, 8, 8, (29, 33), (3, 2), (5, 7), 0, 1, 2),
    "phasesLine": (2, 1, 16, (200,), (50,), 20, ((3, 8),), 1, 1),
    "largeLine": (1, 4, 9, (70,), (129,), 1, 64, 1, 1),  # rows of taps in many parts, as below
    "largeLineDilated": (1, 3, 17, (100,), (65,), 1, 64, 2, 1),
    "depthwiseLarge": (1, 20, 20, (18, 17), (15, 13), 1, (7, 6), 1, 20),
    "depthwiseRows": (1, 16, 16, (30, 16), (29, 3), (1, 2), (14, 1), 1, 16),
    "depthwiseLong": (1, 18, 18, (4, 40), (3, 77), 1, (1, 38), 1, 18),
    "depthwiseLongStride": (2, 9, 9, (90,), (70,), 3, 33, 1, 9),
    "depthwiseLongGaps": (1, 9, 9, (16, 36), (1, 35), 2, 0, 1, 9),
    "depthwisePhases": (2, 12, 12, (30, 36), (6, 7), (5, 6), (2, 3), 1, 12),
    "depthwisePhasesDilated": (1, 10, 10, (41, 36), (4, 3), (6, 4), (3, 2), (5, 3), 10),
}


KINDS = {np.dtype("f4"): "f32", np.dtype("f8"): "f64"}


def arrays(name, seed=0, how="fast"):
    n, c, o, spatial, size, stride, pad, dilation, groups = CASES[name]
    rng, dtype = np.random.default_rng(seed), np.dtype("f8" if how == "double" else "f4")
    x = rng.standard_normal((n, c, *spatial)).astype(dtype)
    W = rng.standard_normal((o, c // groups, *size)).astype(dtype)
    g = geometry(x.shape, W.shape, stride, pad, dilation, groups, how == "plain", real=KINDS[dtype])
    rank = len(size)
    pads = tuple((p, p) if np.ndim(p) == 0 else p for p in ((pad,) * rank if np.ndim(pad) == 0 else pad))
    return x, W, g, (stride, pads, dilation, groups)


def both(test):
    """Term by term, as fast as may be, and in float64."""
    return pytest.mark.parametrize("how", ["plain", "fast", "double"])(test)


def close(a, b):
    scale = np.abs(b).max() + 1e-6
    np.testing.assert_allclose(a / scale, b / scale, atol=2e-5 if b.itemsize == 4 else 4e-14, rtol=1e-7)


def stored(y, stride):
    """An epilogue that stores sums of the dtype of y."""
    return EpilogueSpec(y, stride, (), KINDS[y.dtype])


def guarded(x, extra=64):
    """The same numbers between NaNs, which spoil what reads beyond them."""
    room = np.full(x.size + 2 * extra, np.nan, x.dtype)
    room[extra : extra + x.size] = x.reshape(-1)
    return room, room[extra : extra + x.size].reshape(x.shape)


def codeOf(size, stride, isDepthwise):
    """The length of the LLVM code of each different kernel of a convolution, by key: packing, forward, backward."""
    c, o, groups = (8, 8, 8) if isDepthwise else (5, 6, 1)
    pad = tuple((s // 2, s // 2) for s in size)
    g = geometry((1, c, 90, 1100), (o, c // groups, *size), stride, pad, 1, groups)
    W, x, y = (np.zeros(s, "f") for s in ((o, c // groups, *size), (1, 90, 1100, c), (1, *outputSizes(g), o)))
    works = []
    for isData, source, target in ((False, x, y), (True, y, x)):
        filters = convolution.filtersOf(g, isData)
        packed = np.zeros(filters.size, "f")
        works += filters.pack(W, packed)
        works += filters.convolve(source, packed, EpilogueSpec(target, target.shape[-1]))
    works += convolution.weightGradient(y, x, W, np.zeros(convolution.weightWorkspace(g), "f"), g)
    lengths = {}
    for work in works:
        if work.key not in lengths:
            code = IRBuilder()
            work.write(code)
            lengths[work.key] = len(code.text())
    return lengths


def outputSizes(g):
    """The sizes of the output on two axes of space."""
    return [axis.count for axis in g.axes[1:]]


@pytest.mark.parametrize("isDepthwise", [False, True])
def test_code_does_not_grow_with_the_taps(isDepthwise):
    small, large = (sum(codeOf(size, 1, isDepthwise).values()) for size in ((13, 51), (35, 511)))
    assert large < 2 * small


@pytest.mark.parametrize("isDepthwise", [False, True])
def test_code_does_not_grow_with_the_stride(isDepthwise):
    small, large = (codeOf((s, s), s, isDepthwise) for s in (5, 32))
    assert sum(large.values()) < 2 * sum(small.values()), (small, large)
    assert len(large) <= len(small) + 5, (small, large)


@pytest.mark.parametrize("name", CASES)
@both
def test_forward_is_the_convolution(name, how):
    x, W, g, options = arrays(name, how=how)
    wanted = convolve(x, W, *options)
    filters = convolution.filtersOf(g, False)
    packed = np.full(filters.size, np.nan, x.dtype)
    keep, given = guarded(last(x))
    room, y = guarded(np.empty(last(wanted).shape, x.dtype))
    y[...] = np.nan
    run(filters.pack(W, packed))
    run(filters.convolve(given, packed, stored(y, g.o)))
    close(first(y), wanted)
    assert np.isnan(room[:64]).all() and np.isnan(room[-64:]).all()


POINTWISE = [  # n, c, o, height and width: rows whose length, and with it the best tile, changes when they are joined
    (1, 384, 360, (5, 6)),
    (1, 80, 200, (14, 14)),
    (2, 200, 80, (5, 6)),
    (1, 64, 200, (3, 9)),
    (2, 40, 200, (7, 7)),
    (1, 104, 208, (10, 10)),
    (1, 960, 1000, (1, 1)),
]


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("case", POINTWISE, ids=str)
def test_a_packed_pointwise_weight_has_the_size_that_packing_writes(case, lanes, monkeypatch):
    monkeypatch.setattr(jit, "lanes", lambda itemsize: lanes)
    n, c, o, spatial = case
    g = geometry((n, c, *spatial), (o, c, 1, 1))
    W = np.random.default_rng(0).standard_normal((o, c, 1, 1)).astype("f")
    for isData in (False, True):
        filters = convolution.filtersOf(g, isData)
        room, packed = guarded(np.zeros(filters.size, "f"), 1 << 14)
        run(filters.pack(W, packed))
        assert np.isnan(room[: 1 << 14]).all() and np.isnan(room[-(1 << 14) :]).all()


def test_every_pointwise_weight_has_the_size_that_packing_writes(monkeypatch):
    sizes = [8, 16, 24, 40, 72, 88, 104, 120, 184, 200, 208, 240, 336, 360, 480, 672, 960, 1000]
    for lanes in (4, 8, 16):
        monkeypatch.setattr(jit, "lanes", lambda itemsize, lanes=lanes: lanes)
        for n, spatial, o in product((1, 3), ((1, 1), (3, 3), (5, 6), (7, 7), (14, 14)), sizes):
            g = geometry((n, 64, *spatial), (o, 64, 1, 1))
            for isData in (False, True):
                filters = convolution.filtersOf(g, isData)
                (call,), (of,) = filters.pack(None, None), filters.phases
                assert call.tasks * of.tile.block * of.tile.width == filters.size, (lanes, g, isData)


@pytest.mark.parametrize("name", ["square", "squareValid", "squareUneven", "squareSmall"])
def test_a_weight_may_be_packed_and_used_part_by_part(name, monkeypatch):
    x, W, g, options = arrays(name)
    grad = np.random.default_rng(1).standard_normal(convolve(x, W, *options).shape).astype("f")
    whole = results(g, last(x), W, last(grad))[:2]
    plans = [convolution.winogradPlan(g, isData) for isData in (False, True)]
    assert all(plans)
    monkeypatch.setattr(convolution, "winogradPlan", lambda g, isData: plans[isData])
    monkeypatch.setattr(winograd, "LARGE", min(plan.packed for plan in plans) // 2)
    found = np.full_like(whole[0], np.nan), np.full_like(whole[1], np.nan)
    for isData, wanted in enumerate(whole):
        filters = convolution.filtersOf(g, bool(isData))
        assert filters.chunks == min(plans[isData].panels, -(-plans[isData].packed // winograd.LARGE))
        packed, given = np.full(filters.part, np.nan, "f"), last(grad if isData else x)
        for chunk in range(filters.chunks):
            run(filters.pack(W, packed, chunk))
            run(
                filters.convolve(
                    given, packed, EpilogueSpec(found[isData], filters.g.c if isData else g.o), None, chunk
                )
            )
        np.testing.assert_array_equal(found[isData], wanted)


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name][1] > 1])
@pytest.mark.parametrize("cpu, how", [(None, "fast"), ("x86-64-v3", "fast"), (None, "double"), ("x86-64-v3", "double")])
def test_few_channels_may_be_stored_channels_first(name, cpu, how):
    if cpu and jit.processor() != "x86":
        pytest.skip("no such CPU")
    x, W, g, options = arrays(name, how=how)
    with compiledFor(cpu):
        if not convolution.takesPlanes(g):
            return
        wanted = convolve(x, W, *options)
        filters = convolution.filtersOf(g, False)
        packed = np.full(filters.size, np.nan, x.dtype)
        keep, given = guarded(x)
        room, y = guarded(np.full(last(wanted).shape, np.nan, x.dtype))
        run(filters.pack(W, packed))
        run(filters.convolve(given, packed, stored(y, g.o), 1))
    close(first(y), wanted)


def test_planes_are_taken_of_few_channels_with_padding():
    taken = {name for name in CASES if convolution.takesPlanes(arrays(name)[2])}
    assert {"first", "firstLarge", "fewLarge", "bigPad"} <= taken and not taken & {"plain", "one", "gap", "multiplied"}


@pytest.mark.parametrize("name", CASES)
@both
def test_data_gradient_is_the_adjoint(name, how):
    x, W, g, options = arrays(name, how=how)
    grad = np.random.default_rng(1).standard_normal(convolve(x, W, *options).shape).astype(x.dtype)
    wanted = convolveData(grad, W, x.shape, *options)
    filters = convolution.filtersOf(g, True)
    packed = np.full(filters.size, np.nan, x.dtype)
    keep, given = guarded(last(grad))
    room, dx = guarded(np.empty(last(x).shape, x.dtype))
    dx[...] = np.nan
    run(filters.pack(W, packed))
    run(filters.convolve(given, packed, stored(dx, g.c)))
    close(first(dx), wanted)
    assert np.isnan(room[:64]).all() and np.isnan(room[-64:]).all()


@pytest.mark.parametrize("name", CASES)
@both
def test_weight_gradient_is_the_adjoint(name, how):
    x, W, g, options = arrays(name, how=how)
    grad = np.random.default_rng(1).standard_normal(convolve(x, W, *options).shape).astype(x.dtype)
    wanted = convolveWeight(grad, x, W.shape[2:], *options)
    keep, given = guarded(last(grad))
    kept, inputs = guarded(last(x))
    room, dW = guarded(np.full(W.shape, np.nan, x.dtype))
    parts = np.full(convolution.weightWorkspace(g), np.nan, x.dtype)
    run(convolution.weightGradient(given, inputs, dW, parts, g))
    close(dW, wanted)
    assert np.isnan(room[:64]).all() and np.isnan(room[-64:]).all()


def results(g, x, W, grad, threads=1, xPixel=None, yPixel=None):
    """y, dx, dW of channels-last arrays."""
    places = [axis.count for axis in g.axes[-(x.ndim - 2) :]]
    y = np.zeros((g.n, *places, yPixel or g.o), x.dtype)
    dx = np.zeros((*x.shape[:-1], xPixel or g.c), x.dtype)
    dW = np.full(W.shape, np.nan, x.dtype)
    forward, data = convolution.filtersOf(g, False), convolution.filtersOf(g, True)
    packed, transposed = np.empty(forward.size, x.dtype), np.empty(data.size, x.dtype)
    parts = np.empty(convolution.weightWorkspace(g), x.dtype)
    run([*forward.pack(W, packed), *data.pack(W, transposed)], threads)
    run(forward.convolve(x, packed, Adding(y, yPixel or g.o), xPixel), threads)
    run(data.convolve(grad, transposed, Adding(dx, xPixel or g.c), yPixel), threads)
    run(convolution.weightGradient(grad, x, dW, parts, g, yPixel, xPixel), threads)
    return y, dx, dW


class Adding(EpilogueSpec):
    """Adds to what is there: twice the same place shows."""

    def __init__(self, to, stride):
        super().__init__(to, stride, (), KINDS[to.dtype])

    @property
    def key(self):
        return f"adding {self.real}"

    def put(self, code, row, column, sums, mask=None):
        place = row * self.rowStride + column
        self.y.store(place, self.y.load(place, sums.lanes, mask) + sums, mask)


SOME = [
    "plain",
    "stride",
    "groups",
    "firstLarge",
    "deep",
    "square",
    "squareUneven",
    "depthwise5Stride",
    "cube",
    "point",
]


@pytest.mark.parametrize("how", ["fast", "double"])
@pytest.mark.parametrize("name", SOME)
def test_results_do_not_depend_on_the_number_of_threads(name, how):
    x, W, g, options = arrays(name, how=how)
    grad = last(np.random.default_rng(1).standard_normal(convolve(x, W, *options).shape).astype(x.dtype))
    once = results(g, last(x), W, grad)
    for threads in (2, 3, 4):
        for a, b in zip(once, results(g, last(x), W, grad, threads)):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("how", ["fast", "double"])
@pytest.mark.parametrize("name", SOME)
def test_pixels_may_lie_further_apart_and_are_finished_once(name, how):
    x, W, g, options = arrays(name, how=how)
    y = convolve(x, W, *options)
    grad = np.random.default_rng(1).standard_normal(y.shape).astype(x.dtype)
    wanted = last(y), last(convolveData(grad, W, x.shape, *options)), convolveWeight(grad, x, W.shape[2:], *options)
    apart = [np.full((*a.shape[:-1], a.shape[-1] + 5), np.nan, x.dtype) for a in (last(x), last(grad))]
    for room, a in zip(apart, (x, grad)):
        room[..., : a.shape[1]] = last(a)
    y, dx, dW = results(g, apart[0], W, apart[1], 1, g.c + 5, g.o + 5)
    for a, b in zip((y[..., : g.o], dx[..., : g.c], dW), wanted):
        close(a, b)
    assert not y[..., g.o :].any() and not dx[..., g.c :].any()


@pytest.mark.parametrize("how", ["fast", "double"])
@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("depthwise")])
def test_every_width_of_vectors(name, how, monkeypatch):
    if jit.bits < 512:
        pytest.skip("the widest are the ones of the other tests")
    monkeypatch.setenv("PUREGRAPH_CPU", "haswell")
    assert jit.lanes(4) == 8
    x, W, g, options = arrays(name, how=how)
    y = convolve(x, W, *options)
    grad = np.random.default_rng(1).standard_normal(y.shape).astype(x.dtype)
    wanted = last(y), last(convolveData(grad, W, x.shape, *options)), convolveWeight(grad, x, W.shape[2:], *options)
    for a, b in zip(results(g, last(x), W, last(grad)), wanted):
        close(a, b)


@pytest.mark.parametrize("maps", [16, 64, 256])
def test_interpolation_is_about_as_precise_as_sums(maps):
    rng = np.random.default_rng(maps)
    x = np.maximum(rng.standard_normal((4, maps, 28, 28)), 0).astype("f")
    W = (rng.standard_normal((32, maps, 3, 3)) / np.sqrt(9 * maps)).astype("f")
    grad = rng.standard_normal((4, 32, 28, 28)).astype("f")
    options = ((1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    exact = [a.astype("d") for a in (x, W, grad)]
    wanted = (
        last(convolve(*exact[:2], *options)),
        last(convolveData(exact[2], exact[1], x.shape, *options)),
        convolveWeight(exact[2], exact[0], (3, 3), *options),
    )
    g = geometry(x.shape, W.shape, 1, 1)
    assert convolution.winogradPlan(g, False) and convolution.winogradPlan(g, True)
    for fast, plain, exactly in zip(
        results(g, last(x), W, last(grad)), results(g._replace(isPlain=True), last(x), W, last(grad)), wanted
    ):
        scale = np.sqrt(np.mean(exactly**2))
        errors = [np.sqrt(np.mean((a - exactly) ** 2)) / scale for a in (fast, plain)]
        assert errors[0] < 2e-6 and errors[0] < 8 * errors[1] + 1e-7
