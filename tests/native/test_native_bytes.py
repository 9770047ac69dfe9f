"""Products and convolutions of bytes in native code beside numpy: every bit, of every kind of integer."""

import numpy as np
import pytest
from leftovers import leftToNumpy

from puregraph import Graph, Input, Pointwise
from puregraph.compile.program import Program
from puregraph.compile.runtime.guardbands import GuardBands
from puregraph.graph.module import Module
from puregraph.modules import (
    Add,
    Cast,
    Constant,
    Dequantize,
    IntegerConvolve,
    IntegerMatMul,
    Mul,
    Quantize,
    QuantizedConvolve,
    QuantizedMatMul,
)
from puregraph.ops.native.llvm import jit
from puregraph.ops.quantized.native.byteproduct import byteTile, pitchOf

pytestmark = pytest.mark.skipif(not jit.available(), reason="native code only")
RNG = np.random.default_rng(0)
BYTES = ("uint8", "int8")


@pytest.fixture(autouse=True)
def guarded(monkeypatch):
    """Kernels run inside guard bands."""
    monkeypatch.setattr(Program, "observer", GuardBands())


def integers(shape, dtype, isExtreme=False):
    """Random integers of all values, or only the least and the largest."""
    ends = np.iinfo(dtype)
    if isExtreme:
        return RNG.choice(np.array([ends.min, ends.max], dtype), shape)
    return RNG.integers(ends.min, ends.max, shape, dtype, endpoint=True)


def compared(module, *arrays):
    """The result of a program of which nothing is left to numpy, after it was compared with the eager one."""
    nodes = [Input(a.shape, a.dtype, name=f"x{i}").node() for i, a in enumerate(arrays)]
    program = Graph(nodes, module.node(*nodes)).compile([a.shape for a in arrays], train=False)
    y, expected = program.run(*arrays), module(*arrays)
    assert y.dtype == expected.dtype
    assert np.array_equal(y, expected)
    assert not leftToNumpy(program)
    return y


def ending(n, dtype="uint8"):
    """A bias, a factor for each column, and a zero point."""
    factor = (RNG.random(n) / 999).astype(np.float32)
    return integers((n,), "int32") // (1 << 16), factor, integers((), dtype)


@pytest.mark.parametrize("kinds", [(a, b) for a in BYTES for b in BYTES])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (8, 24, 200), (5, 360, 24), (30, 67, 360), (1, 672, 8), (13, 3, 65)])
def test_a_product_of_bytes_equals_numpy(kinds, sizes):
    (m, k, n), (x, W) = sizes, kinds
    a, b = integers((m, k), x), integers((k, n), W)
    exact = (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
    assert np.array_equal(compared(IntegerMatMul(), a, b), exact)
    compared(IntegerMatMul(), a, b, integers((), x), integers((n,), W))
    compared(IntegerMatMul(), a, b, integers((m, 1), x), integers((), W), *ending(n, x))


@pytest.mark.parametrize("dtype", BYTES)
def test_long_sums_of_extremes_wrap_around(dtype):
    """255 and -128 times 20,000 and 80,000, whose sums leave 32 bits."""
    for k in (20000, 80001):
        a, b = integers((2, k), dtype, True), integers((k, 3), "int8", True)
        a[0], b[:, 0] = np.iinfo(dtype).max, -128
        y = compared(IntegerMatMul(), a, b)
        assert np.array_equal(y, (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32))


def test_batches_and_transposed_matrices():
    compared(IntegerMatMul(), integers((2, 3, 5, 9), "uint8"), integers((2, 3, 9, 4), "int8"), integers((), "uint8"))
    compared(IntegerMatMul(), integers((2, 3, 5, 9), "int8"), integers((9, 4), "uint8"))
    a, b = integers((7, 5), "uint8"), integers((20, 7), "int8")

    class Turned(Module):
        reads, isDiscrete = (), True

        def dataShapeFrom(self, a, b):
            return (5, 20)

        def dataTypeFrom(self, a, b):
            return np.dtype(np.int32)

        def updateData(self, a, b):
            return IntegerMatMul().layer(a.T, b.T)

    assert np.array_equal(compared(Turned(), a, b), a.T.astype(np.int32) @ b.T.astype(np.int32))


@pytest.mark.parametrize("shapes", [((0, 4), (4, 3)), ((2, 4), (4, 0)), ((0, 2, 4), (4, 3))])
def test_products_without_elements(shapes):
    a, b = (np.zeros(shape, np.uint8) for shape in shapes)
    assert IntegerMatMul()(a, b).shape == (*shapes[0][:-1], shapes[1][-1])


WINDOWS = [  # rank, channels, filters, groups, size, stride, pad, dilation
    (2, 3, 8, 1, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    (2, 6, 4, 2, (3, 2), (2, 1), ((1, 0), (0, 2)), (1, 2)),
    (1, 5, 3, 1, (4,), (2,), ((2, 1),), (1,)),
    (3, 2, 5, 1, (2, 3, 2), (1, 2, 1), ((0, 1), (1, 1), (1, 0)), (2, 1, 1)),
    (2, 200, 24, 1, (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    (2, 24, 360, 1, (1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1)),
    (2, 8, 8, 8, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    (2, 67, 67, 67, (3, 3), (2, 1), ((1, 1), (0, 1)), (1, 2)),
    (2, 24, 48, 24, (5, 5), (1, 1), ((2, 2), (2, 2)), (1, 1)),
    (1, 130, 130, 130, (3,), (1,), ((1, 1),), (1,)),
    (2, 24, 40, 1, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    (2, 360, 8, 1, (5, 6), (1, 1), ((4, 4), (5, 5)), (1, 1)),
]


@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("window", WINDOWS)
def test_a_convolution_of_bytes_equals_numpy(window, kind):
    rank, c, o, groups, size, *layout = window
    x, W = integers((2, c, 5, 6, 7)[: 2 + rank], kind), integers((o, c // groups, *size), "int8")
    module = IntegerConvolve(*layout, groups)
    compared(module, x, W)
    compared(module, x, W, integers((), kind), integers((o,), "int8"), *ending(o, kind))


@pytest.mark.parametrize("channels", [20, 32, 96, 144])
@pytest.mark.parametrize("window", [((3, 3), 1, 1), ((3, 3), 2, 1), ((6, 7), 1, 3)])
def test_depthwise_rows_longer_than_a_task_equal_numpy(channels, window):
    """Rows with pixels at both edges and inside, in several tasks, with taps in a loop or without one."""
    size, stride, pad = window
    x, W = integers((2, channels, 9, 41), "uint8"), integers((channels, 1, *size), "int8")
    module = IntegerConvolve((stride, stride), ((pad, pad),) * 2, (1, 1), channels)
    compared(module, x, W, integers((), "uint8"), integers((), "int8"), *ending(channels))


@pytest.mark.parametrize("yScale", [0.5, -0.5, 1e-7, 3e7])
@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("isRectified", [False, True])
def test_halves_round_to_even_and_ends_are_kept(kind, isRectified, yScale):
    """Quotients of ..., -0.5, 0, 0.5, 1, ... with every zero point at an end or between, and ones beyond all bytes."""
    a, b = np.arange(256, dtype=np.uint8).reshape(16, 16), np.eye(16, dtype=np.int8)
    rest = [np.float32(0.25), np.uint8(128), b, np.float32(1), np.int8(0), np.float32(yScale)]
    for zero in (np.iinfo(kind).min, 3, np.iinfo(kind).max):
        compared(QuantizedMatMul(isRectified), a, *map(np.asarray, rest), np.asarray(zero, kind))


@pytest.mark.parametrize("seed", range(25))
def test_random_settings(seed):
    """Eight of each seed: any sizes, zero points, biases and factors, extremes too."""
    rng = np.random.default_rng(seed)
    for _ in range(4):
        m, k, n = (int(rng.integers(1, 70)) for _ in "mkn")
        x, W, y = rng.choice(BYTES, 3)
        isExtreme = rng.random() < 0.3
        a, b = integers((m, k), x, isExtreme), integers((k, n), W, isExtreme)
        scales = [np.float32(rng.random() / 50) for _ in "xWy"]
        compared(IntegerMatMul(), a, b, integers((), x), integers((n,), W), *ending(n, y))
        zeros = [integers((), v) for v in (x, W, y)]
        b32 = rng.standard_normal(n).astype(np.float32)
        rest = [np.asarray(scales[0]), zeros[0], b, np.asarray(scales[1]), zeros[1], np.asarray(scales[2]), zeros[2]]
        compared(QuantizedMatMul(bool(rng.integers(2))), a, *rest, b32)
    for _ in range(4):
        c, o, h, w = (int(rng.integers(1, 20)) for _ in "cohw")
        size = int(rng.integers(1, min(h, w) + 1)), int(rng.integers(1, min(h, w) + 1))
        pad = tuple(tuple(int(p) for p in rng.integers(0, 3, 2)) for _ in "hw")
        stride = tuple(int(s) for s in rng.integers(1, 3, 2))
        x, W, y = rng.choice(BYTES, 3)
        maps, filters = integers((int(rng.integers(1, 3)), c, h, w), x), integers((o, c, *size), W)
        compared(IntegerConvolve(stride, pad, (1, 1)), maps, filters, integers((), x), integers((o,), W), *ending(o, y))
        scales = [np.asarray(np.float32(rng.random() / 50)) for _ in "xWy"]
        zeros = [integers((), v) for v in (x, W, y)]
        rest = [scales[0], zeros[0], filters, scales[1], zeros[1], scales[2], zeros[2]]
        b32 = rng.standard_normal(o).astype(np.float32)
        compared(QuantizedConvolve(stride, pad, (1, 1), 1, bool(rng.integers(2))), maps, *rest, b32)


@pytest.mark.parametrize("cpu", ["x86-64-v2", "haswell", "skylake-avx512"])
@pytest.mark.skipif(jit.processor() != "x86", reason="names of processors of x86")
def test_other_processors_compute_the_same_bits(cpu, monkeypatch):
    monkeypatch.setenv("PUREGRAPH_CPU", cpu)
    for x in BYTES:
        for W in BYTES:
            a, b = integers((13, 67), x, True), integers((67, 40), W, True)
            compared(IntegerMatMul(), a, b, integers((), x), integers((40,), W), *ending(40))
    for _, c, o, groups, size, *layout in (WINDOWS[0], WINDOWS[7]):
        x, W = integers((2, c, 5, 6), "uint8"), integers((o, c // groups, *size), "int8")
        compared(IntegerConvolve(*layout, groups), x, W, integers((), "uint8"), integers((o,), "int8"), *ending(o))


@pytest.mark.parametrize("lanes", [4, 8])
def test_short_vectors_compute_the_same_bits(lanes, monkeypatch):
    """With the instruction for short vectors where the processor has it."""
    target = jit.target()
    monkeypatch.setattr(jit, "target", lambda: target._replace(bits=32 * lanes))
    a, b = integers((13, 67), "int8", True), integers((67, 40), "int8", True)
    compared(IntegerMatMul(), a, b, integers((), "int8"), integers((40,), "int8"), *ending(40))
    for _, c, o, groups, size, *layout in (WINDOWS[1], WINDOWS[7]):
        x, W = integers((2, c, 5, 6), "uint8"), integers((o, c // groups, *size), "int8")
        compared(IntegerConvolve(*layout, groups), x, W, integers((), "uint8"), integers((o,), "int8"), *ending(o))


def number(value, dtype):
    """A constant without axes."""
    return Constant(np.asarray(value, dtype)).node()


@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("tail", ["clipped", "clipped and read", "added"])
@pytest.mark.parametrize("window", [WINDOWS[i] for i in (0, 1, 3, 5, 7, 8)])
def test_what_follows_a_convolution_is_computed_with_its_sums(window, tail, kind):
    """A ReLU6 in floats, and the sum of two layers of bytes, as quantized networks have them."""
    rank, c, o, groups, size, *layout = window
    x, W = integers((2, c, 5, 6, 7)[: 2 + rank], kind), integers((o, c // groups, *size), "int8")
    scale, zero = number(0.07, np.float32), number(3, kind)
    maps, filters = Input(x.shape, kind, name="x").node(), Constant(W).node()
    factor = Constant((RNG.random(o) / 999).astype(np.float32)).node()
    bias = Constant(integers((o,), "int32") // (1 << 16)).node()
    layer = IntegerConvolve(*layout, groups)
    y, inputs, data = layer.node(maps, filters, zero, number(0, "int8"), bias, factor, zero), [maps], [x]
    floats = Dequantize().node(y, scale, zero)
    if tail == "added":
        data.append(integers(layer.dataShapeFrom(x.shape, W.shape), kind))
        inputs.append(Input(data[1].shape, kind, name="other").node())
        floats = Add().node(floats, Dequantize().node(inputs[1], scale, zero))
    else:
        floats = Pointwise(formula="minimum(maximum(x, 0), 6)").node(floats)
    z = Quantize(kind).node(floats, scale, zero)
    net = Graph(inputs, [z, y] if "read" in tail else z)
    program = net.compile([a.shape for a in data], train=False)
    results, expected = (v if isinstance(v, (list, tuple)) else [v] for v in (program.run(*data), net(*data)))
    assert not leftToNumpy(program)
    for result, wanted in zip(results, expected):
        assert result.dtype == wanted.dtype
        assert np.array_equal(result, wanted)


def test_sums_are_scaled_where_they_are_computed_and_stay_exact_if_they_are_read_too():
    """Of a dynamically quantized layer: int32 to float32, times scales, plus a bias."""
    a, b = integers((9, 3000), "uint8", True), integers((3000, 40), "int8", True)
    x, scale = Input(a.shape, "uint8", name="x").node(), Constant(np.full(40, 0.01, np.float32)).node()
    y = IntegerMatMul().node(x, Constant(b).node(), number(200, "uint8"))
    floats = Mul().node(Cast("float32").node(y), scale)
    for outputs, steps in ((floats, 1), ([floats, y], 2)):
        net = Graph(x, outputs)
        program = net.compile(a.shape, train=False)
        assert sum(call.kind.isNative for call in program.plan.schedule.calls) == steps
        results, expected = (v if isinstance(v, (list, tuple)) else [v] for v in (program.run(a), net(a)))
        for result, wanted in zip(results, expected):
            assert np.array_equal(result, wanted)


def test_tiles_and_pitches_leave_no_row_out():
    for k in (1, 63, 64, 65, 1000, 4608, 80001):
        assert pitchOf(k) >= k + 64 and pitchOf(k) % 64 == 0
    for n in (1, 16, 17, 200, 1000):
        tile = byteTile(3, n, 16)
        assert tile.rows <= 4 and (tile.rows + 1) * tile.vectors < 32
