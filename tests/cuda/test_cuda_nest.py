"""Nests: fused formulas and folds as kernels for a GPU, in the emulator, against numpy."""

import struct

import numpy as np
import pytest
from launches import gate, misplaced, needsEmulator, needsNvrtc, runAll

from puregraph.ops.cuda.nests import nestwriter
from puregraph.ops.cuda.nests.axes import axesOf
from puregraph.ops.cuda.nests.launches import launches
from puregraph.ops.cuda.nests.nestwriter import canonical
from puregraph.ops.cuda.nests.rowreduce import rowLaunch, rowSplit
from puregraph.ops.cuda.runtime import compiler
from puregraph.ops.cuda.runtime.launch import eachOf
from puregraph.ops.formula import Formula
from puregraph.ops.formula.loopnest import LoopNest, Operand, Reduce

pytestmark = needsEmulator
KINDS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "bool": "bool"}
KINDS |= {"int32": "i32", "int64": "i64", "uint8": "u8"}
ROWS, COLUMNS = frozenset([1]), frozenset([0])
line = Formula


def zeros(*shape, dtype=np.float32):
    return np.full(shape, 7, dtype)


def operand(array, shape=None):
    """An array as an operand, repeated to a shape."""
    shown = array if shape is None else np.broadcast_to(array, shape)
    strides = [s // array.itemsize if n > 1 else 0 for n, s in zip(shown.shape, shown.strides)]
    return Operand(KINDS[array.dtype.name], array, tuple(strides))


def compute(space, loads, lines, stores, kind="f32"):
    """Run a nest; how many launches it took."""
    found = launches(LoopNest(space, loads, tuple(lines), stores, kind))
    runAll(found)
    return len(found)


def close(got, wanted, tolerance=2e-6):
    scale = max(float(np.abs(wanted).max(initial=0)), 1e-6)
    assert np.abs(got.astype(float) - wanted).max(initial=0) <= tolerance * scale


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("n, c", [(5, 7), (64, 10), (1, 33), (33, 300), (7, 2000), (3, 33000), (2, 257)])
def test_a_softmax_is_one_launch(rng, n, c):
    x, y, m = normal(rng, n, c), zeros(n, c), zeros(n, 1)
    lines = [
        ("m", Reduce("max", "x", ROWS)),
        ("u", line("exp(x - m)")),
        ("s", Reduce("sum", "u", ROWS)),
        ("y", line("u / s")),
    ]
    loads = {"x": operand(x)}
    count = compute((n, c), loads, lines, {"y": operand(y), "m": Operand("f32", m, (1, 0))})
    assert count == 1 or c > 16384
    e = np.exp(x.astype(float) - x.max(1, keepdims=True))
    close(y, e / e.sum(1, keepdims=True))
    assert np.array_equal(m, x.max(1, keepdims=True))


@pytest.mark.parametrize("c, pitch", [(33000, 33000), (33001, 33004), (32999, 32999)])
def test_a_row_that_registers_cannot_hold_is_read_in_each_phase(rng, c, pitch):
    x, y, m = normal(rng, 3, pitch)[:, :c], np.full((3, pitch), 7, "f4"), zeros(3, 1)
    x[:, -1] = 9  # the last element decides
    lines = (
        ("m", Reduce("max", "x", ROWS)),
        ("u", line("exp(x - m)")),
        ("s", Reduce("sum", "u", ROWS)),
        ("y", line("u / s")),
    )
    stores = {"y": operand(y[:, :c]), "m": Operand("f32", m, (1, 0))}
    nest = canonical(LoopNest((3, c), {"x": operand(x)}, lines, stores, "f32"))
    assert not rowSplit(nest, ROWS).held
    runAll([rowLaunch(nest, ROWS)])  # as it is launched where there are enough rows
    u = np.exp(x.astype(float) - 9)
    close(y[:, :c], u / u.sum(1, keepdims=True), 1e-5)
    assert (m == 9).all() and (y[:, c:] == 7).all()


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_the_peak_and_the_sum_of_exponentials_of_a_long_row_take_one_pass_over_it(rng, kind):
    c, code = 33001, KINDS[kind]
    x, peak, total = rng.standard_normal((6, c)).astype(kind) * 30, zeros(6, 1, dtype=kind), zeros(6, 1, dtype=kind)
    x[0] = np.sort(x[0])  # a larger one comes always
    x[1, :-1], x[2], x[3, 5], x[4, 7] = -np.inf, -np.inf, np.inf, np.nan
    lines = (
        ("m", Reduce("max", "x", ROWS)),
        ("z", line("x - m")),
        ("u", line("exp(z)")),
        ("s", Reduce("sum", "u", ROWS)),
        ("c", line("where(axis1 == k, z, 0)")),
        ("p", Reduce("sum", "c", ROWS)),
    )
    k, at = np.array([[c - 1], [c - 1], [0], [4], [9], [-1]]), zeros(6, 1, dtype=kind)  # the last has no class
    outs = {"m": peak, "s": total, "p": at}
    loads, stores = {"x": operand(x), "k": operand(k, x.shape)}, {n: Operand(code, y, (1, 0)) for n, y in outs.items()}
    nest = canonical(LoopNest(x.shape, loads, lines, stores, code))
    launch = rowLaunch(nest, ROWS)
    assert not rowSplit(nest, ROWS).held and launch.source.count("loadMany<v>(l_x0") == 1
    runAll([launch])
    with np.errstate(invalid="ignore"):
        m = x.astype(float).max(1, keepdims=True)
        s = np.exp(x - m).sum(1, keepdims=True)
        p = np.where(np.arange(c) == k, x - m, 0).sum(1, keepdims=True)
    assert np.array_equal(peak, m, equal_nan=True)
    assert np.allclose(total, s, rtol=1e-5 if kind == "float32" else 1e-12, atol=0, equal_nan=True)
    assert np.allclose(at, p, rtol=1e-6, atol=0, equal_nan=True)


def test_what_is_counted_by_int64_gives_what_is_counted_by_int(rng, monkeypatch):
    def results():
        x, many = normal(np.random.default_rng(0), 5, 301), normal(np.random.default_rng(1), 3, 5, 7).transpose(2, 0, 1)
        y, m, s, z = zeros(5, 301), zeros(5, 1), zeros(1, 301), zeros(7, 3, 5)
        softmax = [("m", Reduce("max", "x", ROWS)), ("y", line("exp(x - m)"))]
        compute(x.shape, {"x": operand(x)}, softmax, {"y": operand(y), "m": Operand("f32", m, (1, 0))})
        compute(x.shape, {"x": operand(x)}, [("s", Reduce("sum", "x", COLUMNS))], {"s": Operand("f32", s, (0, 1))})
        compute(z.shape, {"x": operand(many)}, [("z", line("relu(x)"))], {"z": operand(z)})
        return y, m, s, z

    short = results()
    monkeypatch.setattr(nestwriter, "INT_POSITIONS", 0)
    for got, wanted in zip(results(), short):
        assert np.array_equal(got, wanted)


@pytest.mark.parametrize("size, counter", [((1 << 31) - 1, "unsigned"), (1 << 31, "int64")])
def test_axes_count_in_64_bits_what_32_do_not(size, counter):
    axes = axesOf((size,), {"x": (2,)})
    assert axes.counter == counter
    assert f"const {counter} c0" in axes.offsets


@pytest.mark.parametrize("shape", [(7, 5, 9), (64, 512), (10001,), (3, 100, 3), (1,), (2, 1, 17), ()])
def test_operands_are_repeated_where_their_strides_are_zero(rng, shape):
    x, b, y = normal(rng, *shape), normal(rng, *shape[-1:]), zeros(*shape)
    compute(shape, {"x": operand(x), "b": operand(b, shape)}, [("y", line("relu(x + b)"))], {"y": operand(y)})
    assert np.array_equal(y, np.maximum(x + b, 0))


def test_what_is_the_same_along_an_axis_fills_it(rng):
    x, y = normal(rng, 40, 1), zeros(40, 70)
    compute((40, 70), {"x": operand(x, (40, 70))}, [("y", line("x"))], {"y": operand(y)})
    assert np.array_equal(y, np.broadcast_to(x, (40, 70)))


def test_operands_and_results_may_be_transposed(rng):
    x, z = normal(rng, 40, 30), normal(rng, 30, 40)
    for y in (zeros(40, 30), zeros(30, 40).T):
        compute((40, 30), {"x": operand(x), "z": operand(z.T)}, [("y", line("x * z"))], {"y": operand(y)})
        assert np.array_equal(y, x * z.T)


def test_strided_and_misplaced_arrays(rng):
    x, y = normal(rng, 9, 32)[:, ::2], zeros(9, 24)[:, 4:20]
    compute((9, 16), {"x": operand(x)}, [("y", line("-x"))], {"y": operand(y)})
    assert np.array_equal(y, -x)
    x, y = misplaced(normal(rng, 9, 16)), zeros(9, 16)
    compute((9, 16), {"x": operand(x)}, [("y", line("-x"))], {"y": operand(y)})
    assert np.array_equal(y, -x)
    s = zeros(9)
    compute((9, 16), {"x": operand(x)}, [("s", Reduce("sum", "x", ROWS))], {"s": Operand("f32", s, (1, 0))})
    close(s, x.sum(1, dtype=float))
    s = zeros(16)
    compute((9, 16), {"x": operand(x)}, [("s", Reduce("sum", "x", COLUMNS))], {"s": Operand("f32", s, (0, 1))})
    close(s, x.sum(0, dtype=float))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "int64", "uint8", "bool"])
def test_numbers_are_stored_in_many_ways(rng, dtype):
    dtype = np.dtype(pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype)
    kind = "f64" if dtype == np.float64 else "f32"
    wide = np.float64 if kind == "f64" else np.float32
    x = (
        (rng.standard_normal((5, 40)) * 3).astype(dtype)
        if dtype.kind not in "bu"
        else rng.integers(0, 2, (5, 40)).astype(dtype)
    )
    y, s, c = zeros(5, 40, dtype=dtype), zeros(5, dtype=wide), zeros(40, dtype=wide)
    text = "x != 0" if dtype.kind == "b" else "x + 1" if dtype.kind in "iu" else "x * 0.3"
    compute((5, 40), {"x": operand(x)}, [("y", line(text))], {"y": operand(y)}, kind)
    v = x.astype(wide)
    wanted = v != 0 if dtype.kind == "b" else v + 1 if dtype.kind in "iu" else v * wide(0.3)
    assert np.array_equal(y, wanted.astype(dtype))
    compute((5, 40), {"x": operand(x)}, [("s", Reduce("sum", "x", ROWS))], {"s": Operand(kind, s, (1, 0))}, kind)
    compute((5, 40), {"x": operand(x)}, [("c", Reduce("sum", "x", COLUMNS))], {"c": Operand(kind, c, (0, 1))}, kind)
    close(s, x.astype(float).sum(1))
    close(c, x.astype(float).sum(0))


def test_several_results_of_several_kinds(rng):
    x, y, z, p = normal(rng, 3, 35), zeros(3, 35, dtype="f2"), zeros(3, 35), zeros(3, 35, dtype=bool)
    lines = [("y", line("x * 2")), ("z", line("exp(y)")), ("p", line("z > 1"))]
    stores = {"y": operand(y), "z": operand(z), "p": operand(p)}
    assert compute((3, 35), {"x": operand(x)}, lines, stores) == 1
    assert np.array_equal(y, (x * 2).astype("f2")) and np.array_equal(p, x > 0)
    close(z, np.exp(2 * x))


def test_numbers_on_the_device_are_read_once(rng):
    x, a, y = normal(rng, 1001), np.array([3], "f4"), zeros(1001)
    compute((1001,), {"x": operand(x), "a": Operand("f32", a, (0,))}, [("y", line("a * x"))], {"y": operand(y)})
    assert np.array_equal(y, 3 * x)


@pytest.mark.parametrize("n, c", [(1, 5), (64, 10), (64, 512), (1100, 16), (5001, 64), (300, 300), (70, 1000)])
def test_a_map_and_its_column_sums_and_what_follows_from_them(rng, n, c):
    g, x = normal(rng, n, c), normal(rng, n, c)
    d, b, q = zeros(n, c), zeros(c), zeros(c)
    lines = [("d", line("where(x > 0, g, 0)")), ("b", Reduce("sum", "d", COLUMNS)), ("q", line("b * b + 1"))]
    stores = {"d": operand(d), "b": Operand("f32", b, (0, 1)), "q": Operand("f32", q, (0, 1))}
    compute((n, c), {"g": operand(g), "x": operand(x)}, lines, stores)
    wanted = np.where(x > 0, g, 0)
    assert np.array_equal(d, wanted)
    close(b, wanted.sum(0, dtype=float))
    close(q, wanted.sum(0, dtype=float) ** 2 + 1, 1e-5)


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("n, c, h, w", [(8, 24, 13, 11), (3, 5, 4, 7), (16, 2, 64, 32)])
def test_statistics_of_channels_in_either_layout(rng, last, n, c, h, w):
    x = normal(rng, n, h, w, c).transpose(0, 3, 1, 2) if last else normal(rng, n, c, h, w)
    s, q = zeros(c), zeros(c)
    axes = frozenset([0, 2, 3])
    lines = [
        ("p", line("x * x")),
        ("s", Reduce("sum", "x", axes)),
        ("t", Reduce("sum", "p", axes)),
        ("q", line("t - s")),
    ]
    stores = {"s": Operand("f32", s, (0, 1, 0, 0)), "q": Operand("f32", q, (0, 1, 0, 0))}
    compute((n, c, h, w), {"x": operand(x)}, lines, stores)
    wide = x.astype(float)
    close(s, wide.sum((0, 2, 3)), 1e-5)
    close(q, (wide * wide).sum((0, 2, 3)) - wide.sum((0, 2, 3)))


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("n", [2, 40])
def test_a_normalisation_of_maps_in_either_layout(rng, last, n):
    c, h, w = 24, 13, 11
    x = normal(rng, n, h, w, c).transpose(0, 3, 1, 2) if last else normal(rng, n, c, h, w)
    y = np.empty_like(x)
    axes, count = frozenset([0, 2, 3]), n * h * w
    lines = [
        ("s", Reduce("sum", "x", axes)),
        ("z", line(f"x - s / {count}")),
        ("p", line("z * z")),
        ("q", Reduce("sum", "p", axes)),
        ("y", line(f"z / sqrt(q / {count})")),
    ]
    compute((n, c, h, w), {"x": operand(x)}, lines, {"y": operand(y)})
    wide = x.astype(float)
    wide -= wide.mean((0, 2, 3), keepdims=True)
    close(y, wide / wide.std((0, 2, 3), keepdims=True))


def test_a_sum_over_the_middle_axis(rng):
    x, s = normal(rng, 6, 50, 40), zeros(6, 40)
    compute((6, 50, 40), {"x": operand(x)}, [("s", Reduce("sum", "x", ROWS))], {"s": Operand("f32", s, (40, 0, 1))})
    close(s, x.sum(1, dtype=float))


@pytest.mark.parametrize("how", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize("axes", [[0], [1], [0, 1], [0, 2], [1, 2], [0, 1, 2]], ids=str)
def test_each_fold_over_each_axes(rng, how, axes):
    shape = (5, 6, 35)
    x = (1 + 0.1 * rng.standard_normal(shape)).astype("f4")
    wanted = getattr(np, how)(x.astype(float), axis=tuple(axes), keepdims=True)
    y = zeros(*wanted.shape)
    stores = {"y": operand(y, None)}
    compute(shape, {"x": operand(x)}, [("y", Reduce(how, "x", frozenset(axes)))], stores)
    close(y, wanted, 1e-5)


@pytest.mark.parametrize("n", [1, 1000, 65537, 300000])
def test_a_norm_is_exact_however_long(rng, n):
    x, r = normal(rng, n), zeros(1)
    lines = [("p", line("x * x")), ("s", Reduce("sum", "p", COLUMNS)), ("r", line("sqrt(s)"))]
    count = compute((n,), {"x": operand(x)}, lines, {"r": Operand("f32", r, (0,))})
    assert count == (1 if n < 60000 else 2)
    close(r, np.sqrt((x.astype(float) ** 2).sum()), 3e-7)


def test_what_follows_a_long_fold_is_a_launch_of_its_own(rng):
    x, y, r = normal(rng, 70001), zeros(70001), zeros(1)
    lines = [("p", line("x * x")), ("s", Reduce("sum", "p", COLUMNS)), ("r", line("sqrt(s)")), ("y", line("x / r"))]
    compute((70001,), {"x": operand(x)}, lines, {"y": operand(y), "r": Operand("f32", r, (0,))})
    close(r, np.sqrt((x.astype(float) ** 2).sum()), 3e-7)
    close(y, x / np.sqrt((x.astype(float) ** 2).sum()))


@pytest.mark.parametrize("n, d", [(30, 40), (700, 256), (201, 384), (7, 3), (40, 768), (9, 3000), (600, 4), (3, 40000)])
def test_rows_and_columns_of_a_gradient(rng, n, d):
    g, x, w = normal(rng, n, d), normal(rng, n, d), normal(rng, d)
    m, f = x.mean(1, keepdims=True), 1 / x.std(1, keepdims=True)
    gx, gw = zeros(n, d), zeros(d)
    lines = [
        ("z", line("(x - m) * f")),
        ("h", line("g * w")),
        ("hz", line("h * z")),
        ("gz", line("g * z")),
        ("sh", Reduce("sum", "h", ROWS)),
        ("shz", Reduce("sum", "hz", ROWS)),
        ("gx", line(f"(h - sh / {d} - z * (shz / {d})) * f")),
        ("gw", Reduce("sum", "gz", COLUMNS)),
    ]
    column = {name: Operand("f32", array, (1, 0)) for name, array in {"m": m, "f": f}.items()}
    loads = {"g": operand(g), "x": operand(x), "w": operand(w, (n, d)), **column}
    count = compute((n, d), loads, lines, {"gx": operand(gx), "gw": Operand("f32", gw, (0, 1))})
    assert count == 2 or d > 3000
    z = (x - m.astype(float)) * f
    h = g * w.astype(float)
    close(gx, (h - h.mean(1, keepdims=True) - z * (h * z).mean(1, keepdims=True)) * f, 1e-5)
    close(gw, (g * z).sum(0), 1e-5)


def test_folds_over_three_sets_of_axes(rng):
    x = normal(rng, 4, 5, 6)
    a, b, c = zeros(5, 6), zeros(4, 6), zeros(4, 5)
    lines = [(n, Reduce("sum", "x", frozenset([i]))) for i, n in enumerate("abc")]
    stores = {"a": Operand("f32", a, (0, 6, 1)), "b": Operand("f32", b, (6, 0, 1)), "c": Operand("f32", c, (5, 1, 0))}
    compute((4, 5, 6), {"x": operand(x)}, lines, stores)
    for axis, y in enumerate((a, b, c)):
        close(y, x.sum(axis, dtype=float))


def test_indices_along_axes(rng):
    x, y, s = normal(rng, 5, 36), zeros(5, 36), zeros(5)
    lines = [("y", line("where(axis1 > axis0, x, axis0)")), ("s", Reduce("sum", "y", ROWS))]
    compute((5, 36), {"x": operand(x)}, lines, {"y": operand(y), "s": Operand("f32", s, (1, 0))})
    i, j = np.indices((5, 36))
    wanted = np.where(j > i, x, i).astype("f4")
    assert np.array_equal(y, wanted)
    close(s, wanted.sum(1))
    t = zeros(36)
    compute(
        (5, 36), {"x": operand(x)}, [*lines[:1], ("t", Reduce("max", "y", COLUMNS))], {"t": Operand("f32", t, (0, 1))}
    )
    assert np.array_equal(t, wanted.max(0))


def test_a_result_may_lie_over_an_operand(rng):
    x = normal(rng, 33, 70)
    wanted = np.exp(x.astype(float))
    wanted /= wanted.sum(1, keepdims=True)
    lines = [("u", line("exp(x)")), ("s", Reduce("sum", "u", ROWS)), ("y", line("u / s"))]
    compute((33, 70), {"x": operand(x)}, lines, {"y": operand(x)})
    close(x, wanted)


@pytest.mark.parametrize("space, axes", [((0, 3), [0]), ((3, 0), [1]), ((0,), [0]), ((2, 0, 3), [1, 2])], ids=str)
def test_a_fold_of_nothing_is_what_it_starts_with(space, axes):
    x = zeros(*space)
    kept = [1 if a in axes else n for a, n in enumerate(space)]
    s, y = zeros(*kept), zeros(*space)
    lines = [("t", Reduce("sum", "x", frozenset(axes))), ("s", line("t + 2")), ("y", line("x"))]
    compute(space, {"x": operand(x)}, lines, {"s": operand(s), "y": operand(y)})
    assert (s == 2).all()


def test_nan_is_the_greatest_and_the_least(rng):
    x = normal(rng, 4, 70)
    x[1, 3], x[2, 69] = np.nan, np.inf
    for how in ("max", "min"):
        for axes, strides, n in ((ROWS, (1, 0), 4), (COLUMNS, (0, 1), 70)):
            y = zeros(n)
            compute((4, 70), {"x": operand(x)}, [("y", Reduce(how, "x", axes))], {"y": Operand("f32", y, strides)})
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(y, getattr(x, how)(1 if axes is ROWS else 0))


def test_equal_work_has_one_text(rng):
    def text(n, c, name, kind="f32"):
        x, y = zeros(n, c, dtype={"f32": "f4", "f16": "f2"}[kind]), zeros(n, c)
        (launch,) = launches(LoopNest((n, c), {name: operand(x)}, (("r", line(f"exp({name})")),), {"r": operand(y)}))
        return launch.source

    assert text(3, 8, "x") == text(50, 700, "other") == text(100, 4, "x")
    assert text(3, 8, "x") != text(3, 8, "x", "f16")


@pytest.mark.parametrize("count, each", [(1000, 8), (1 << 20, 4), (1 << 22, 8)])
def test_a_thread_has_fewer_elements_where_that_occupies_more_of_a_gpu(count, each):
    assert eachOf(count, 8) == each and eachOf(count, 1) == 1


def test_many_numbers_are_counted_by_int64(monkeypatch):
    x = Operand("f32", zeros(1), (1 << 20, 1))
    nest = LoopNest((1 << 20, 1 << 20), {"x": x}, (("y", line("x + 1")),), {"y": x})
    (launch,) = launches(nest)
    assert "int64 count" in launch.source
    assert ("long", 1 << 40) in launch.slots
    monkeypatch.setattr(nestwriter, "INT_POSITIONS", 1 << 62)
    with pytest.raises(AssertionError, match=f"{1 << 40}, does not fit in int"):
        gate(launches(nest))


class Numbers:
    """An array that is only described."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.size = int(np.prod(shape))


def described(kind, shape, *axes):
    """An operand of a space of two axes that lies along some of them."""
    steps = {axes[-1]: 1, axes[0]: shape[1]} if len(axes) == 2 else dict.fromkeys(axes, 1)
    return Operand(kind, Numbers(shape, "f4"), (steps.get(0, 0), steps.get(1, 0)))


@needsNvrtc
@pytest.mark.parametrize("kind", ["bf16", "f32"])
@pytest.mark.parametrize("shape", [(8192, 768), (8192, 1024), (2048, 4096), (64, 512), (8192, 50304)], ids=str)
def test_rows_of_common_sizes_stay_in_registers(shape, kind):
    x, w, m = described(kind, shape, 0, 1), described("f32", shape, 1), described("f32", shape, 0)
    softmax = (
        ("m", Reduce("max", "x", ROWS)),
        ("u", line("exp(x - m)")),
        ("s", Reduce("sum", "u", ROWS)),
        ("y", line("u / s")),
    )
    found = launches(LoopNest(shape, {"x": x}, softmax, {"y": x}))
    assert len(found) == 1
    gate(found)
    norm = (
        ("s", Reduce("sum", "x", ROWS)),
        ("d", line(f"x - s / {shape[1]}")),
        ("p", line("d * d")),
        ("q", Reduce("sum", "p", ROWS)),
        ("y", line(f"d / sqrt(q / {shape[1]} + 0.00001) * w")),
    )
    found = launches(LoopNest(shape, {"x": x, "w": w}, norm, {"y": x, "q": m}))
    assert len(found) == 1
    gate(found)
    back = (
        ("z", line("(x - m) * f")),
        ("h", line("g * w")),
        ("hz", line("h * z")),
        ("gz", line("g * z")),
        ("sh", Reduce("sum", "h", ROWS)),
        ("shz", Reduce("sum", "hz", ROWS)),
        ("gx", line("(h - sh - z * shz) * f")),
        ("gw", Reduce("sum", "gz", COLUMNS)),
        ("gb", Reduce("sum", "g", COLUMNS)),
    )
    loads = {"g": x, "x": x, "w": w, "m": m, "f": m}
    found = launches(LoopNest(shape, loads, back, {"gx": x, "gw": w, "gb": w}))
    assert len(found) == 2 or shape[1] > 4096
    gate(found)


@needsNvrtc
@pytest.mark.parametrize("kind", ["bf16", "f32"])
@pytest.mark.parametrize("shape", [(64 * 56 * 56, 64), (64 * 7 * 7, 2048), (8192, 768)], ids=str)
def test_columns_of_common_sizes_stay_in_registers(shape, kind):
    x, c = described(kind, shape, 0, 1), described("f32", shape, 1)
    lines = (
        ("d", line("where(y > 0, g, 0)")),
        ("z", line("(x - m) * f")),
        ("dz", line("d * z")),
        ("s", Reduce("sum", "d", COLUMNS)),
        ("q", Reduce("sum", "dz", COLUMNS)),
        ("gx", line(f"(d - s / {shape[0]} - z * (q / {shape[0]})) * f")),
    )
    found = launches(LoopNest(shape, {"g": x, "x": x, "y": x, "m": c, "f": c}, lines, {"gx": x, "s": c, "q": c}))
    assert [launch.entry for launch in found] == ["columns", "pointwise"]
    gate(found)


def fused(cubin):
    """How many instructions of a cubin multiply floats and add without rounding in between: FFMA, opcode 0x.23."""
    (sections,), (size, count) = struct.unpack_from("<Q", cubin, 0x28), struct.unpack_from("<HH", cubin, 0x3A)
    found = 0
    for at in range(sections, sections + size * count, size):
        kind, flags = struct.unpack_from("<IQ", cubin, at + 4)
        start, length = struct.unpack_from("<QQ", cubin, at + 0x18)
        if kind == 1 and flags & 4:  # a program's own bits, which are executed
            words = (struct.unpack_from("<H", cubin, place)[0] for place in range(start, start + length, 16))
            found += sum(word & 0x1FF == 0x23 for word in words)
    return found


@needsNvrtc
def test_what_two_phases_compute_is_one_number():
    """The largest number is looked for among numbers that are computed again, and so is rounded as they are."""
    x, chosen = zeros(4, 8), zeros(4, 8)
    lines = (
        *(("h", line("0.7 * x")), ("k", line("x + h")), ("m", Reduce("max", "k", ROWS))),
        ("chosen", line("where(k == m, 1, 0)")),
    )
    (launch,) = launches(LoopNest((4, 8), {"x": operand(x)}, lines, {"chosen": operand(chosen)}))
    assert not fused(compiler.cubin(launch.source, "sm_90").data)
    assert fused(compiler.cubin(launch.source.removeprefix(compiler.ROUNDED), "sm_90").data)
