"""Nests: fused formulas and folds as native code, against numpy."""

import numpy as np
import pytest
from natively import needsNative, run

from puregraph.ops.formula import Formula
from puregraph.ops.formula.loopnest import LoopNest, Operand, Reduce
from puregraph.ops.native.nests.nestcode import nestCalls

pytestmark = needsNative
KINDS = {"float32": "f32", "float64": "f64", "bool": "bool", "int32": "i32", "int64": "i64"}
ROWS, COLUMNS = frozenset([1]), frozenset([0])


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def operand(array, shape=None):
    """An array as an operand, repeated to a shape."""
    shown = array if shape is None else np.broadcast_to(array, shape)
    strides = [s // array.itemsize if n > 1 else 0 for n, s in zip(shown.shape, shown.strides)]
    return Operand(KINDS[array.dtype.name], array, tuple(strides))


def line(text):
    return Formula(text)


def compute(space, loads, lines, stores, kind="f32"):
    """Run a nest; how many works it took."""
    found = nestCalls(LoopNest(space, loads, tuple(lines), stores, kind), lambda count: zeros(count))
    run(found)
    return len(found)


def close(got, wanted, tolerance=2e-6):
    scale = max(float(np.abs(wanted).max(initial=0)), 1e-6)
    assert np.abs(got - wanted).max(initial=0) <= tolerance * scale


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("n, c", [(5, 7), (64, 10), (1, 33), (33, 300), (100, 2000), (3, 40000)])
def test_a_softmax_is_one_pass_over_its_rows(rng, n, c):
    x, y, m = normal(rng, n, c), zeros(n, c), zeros(n, 1)
    lines = [
        ("m", Reduce("max", "x", ROWS)),
        ("u", line("exp(x - m)")),
        ("s", Reduce("sum", "u", ROWS)),
        ("y", line("u / s")),
    ]
    assert compute((n, c), {"x": operand(x)}, lines, {"y": operand(y), "m": Operand("f32", m, (1, 0))}) == 1
    e = np.exp(x.astype(float) - x.max(1, keepdims=True))
    close(y, e / e.sum(1, keepdims=True))
    assert np.array_equal(m, x.max(1, keepdims=True))


@pytest.mark.parametrize("shape", [(7, 5, 9), (64, 512), (100000,), (3, 1000, 3), (1,), (2, 1, 17)])
def test_operands_are_repeated_where_their_strides_are_zero(rng, shape):
    x, b, y = normal(rng, *shape), normal(rng, shape[-1]), zeros(*shape)
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


@pytest.mark.parametrize("n, c", [(1, 5), (64, 10), (64, 512), (5000, 16), (5001, 64), (3000, 300), (700, 5000)])
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
def test_statistics_of_channels_in_either_layout(rng, last):
    n, c, h, w = 8, 24, 13, 11
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
    close(s, wide.sum((0, 2, 3)))
    close(q, (wide * wide).sum((0, 2, 3)) - wide.sum((0, 2, 3)))


def test_a_sum_over_the_middle_axis(rng):
    x, s = normal(rng, 6, 50, 40), zeros(6, 40)
    compute((6, 50, 40), {"x": operand(x)}, [("s", Reduce("sum", "x", ROWS))], {"s": Operand("f32", s, (40, 0, 1))})
    close(s, x.sum(1, dtype=float))


@pytest.mark.parametrize("n", [1, 1000, 65537, 1000000])
def test_a_norm_is_exact_however_long(rng, n):
    x, r = normal(rng, n), zeros(1)
    lines = [("p", line("x * x")), ("s", Reduce("sum", "p", COLUMNS)), ("r", line("sqrt(s)"))]
    compute((n,), {"x": operand(x)}, lines, {"r": Operand("f32", r, (0,))})
    close(r, np.sqrt((x.astype(float) ** 2).sum()), 1e-7)


@pytest.mark.parametrize("n, d", [(30, 40), (1024, 256), (2001, 384), (7, 3)])
def test_rows_and_columns_of_a_gradient_in_one_pass(rng, n, d):
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
    loads = {
        "g": operand(g),
        "x": operand(x),
        "w": operand(w, (n, d)),
        "m": operand(m, (n, d)),
        "f": operand(f, (n, d)),
    }
    compute((n, d), loads, lines, {"gx": operand(gx), "gw": Operand("f32", gw, (0, 1))})
    z, h = ((x - m) * f).astype(float), (g * w).astype(float)
    close(gx, (h - h.mean(1, keepdims=True) - z * (h * z).mean(1, keepdims=True)) * f, 1e-5)
    close(gw, (g * z).sum(0), 1e-5)


def test_an_index_along_an_axis_picks_by_class(rng):
    x, labels, y = normal(rng, 20, 13), rng.integers(0, 13, 20), zeros(20)
    lines = [("p", line("where(axis1 == t, x, 0)")), ("y", Reduce("sum", "p", ROWS))]
    compute((20, 13), {"x": operand(x), "t": Operand("i64", labels, (1, 0))}, lines, {"y": Operand("f32", y, (1, 0))})
    assert np.array_equal(y, x[np.arange(20), labels])


def test_results_do_not_depend_on_how_many_threads_there_are(rng):
    x, found = normal(rng, 5000, 48), []
    for threads in (1, 2, 3, 4):
        s = zeros(48)
        nest = LoopNest(
            x.shape, {"x": operand(x)}, (("s", Reduce("sum", "x", COLUMNS)),), {"s": Operand("f32", s, (0, 1))}
        )
        run(nestCalls(nest, lambda count: zeros(count)), threads)
        found.append(s)
    assert all(np.array_equal(found[0], s) for s in found)


def test_a_result_may_be_written_over_an_operand(rng):
    x, v, g = normal(rng, 50, 33), normal(rng, 50, 33), normal(rng, 50, 33)
    wanted = 0.9 * v + g, x - 0.1 * (0.9 * v + g)
    loads = {"x": operand(x), "v": operand(v), "g": operand(g)}
    lines = [("w", line("0.9 * v + g")), ("y", line("x - 0.1 * (0.9 * v + g)"))]
    compute(x.shape, loads, lines, {"w": operand(v), "y": operand(x)})
    close(v, wanted[0])
    close(x, wanted[1])


def test_booleans_and_integers_are_loaded_and_stored(rng):
    x, b, k = normal(rng, 9, 21), rng.random((9, 21)) > 0.5, rng.integers(0, 5, (9, 21)).astype(np.int32)
    y, p = zeros(9, 21), np.zeros((9, 21), bool)
    loads = {"x": operand(x), "b": operand(b), "k": operand(k)}
    compute(
        (9, 21), loads, [("p", line("b and x > k")), ("y", line("where(b, x, k)"))], {"y": operand(y), "p": operand(p)}
    )
    assert np.array_equal(p, b & (x > k))
    assert np.array_equal(y, np.where(b, x, k).astype(np.float32))


def test_float64_has_the_digits_of_float64(rng):
    x, y, s = rng.standard_normal((40, 70)), zeros(40, 70, dtype=np.float64), zeros(40, dtype=np.float64)
    lines = [("y", line("x / (1 + x * x)")), ("s", Reduce("sum", "y", ROWS))]
    compute((40, 70), {"x": operand(x)}, lines, {"y": operand(y), "s": Operand("f64", s, (1, 0))}, "f64")
    close(y, x / (1 + x * x), 1e-15)
    close(s, (x / (1 + x * x)).sum(1), 1e-14)


def test_reductions_that_do_not_fit_are_refused(rng):
    lines = (
        ("a", Reduce("sum", "x", frozenset([0]))),
        ("b", Reduce("sum", "x", ROWS)),
        ("c", Reduce("sum", "x", frozenset([2]))),
    )
    x, y = normal(rng, 3, 4, 5), zeros(1)
    nest = LoopNest(x.shape, {"x": operand(x)}, lines, {n: Operand("f32", y, (0, 0, 0)) for n in "abc"})
    with pytest.raises(ValueError, match="do not fit in one nest"):
        nestCalls(nest, lambda count: zeros(count))


@pytest.mark.parametrize("axes", [ROWS, COLUMNS], ids=["rows", "columns"])
@pytest.mark.parametrize("n, c", [(5, 7), (70, 90), (3000, 4), (4, 3000), (20000, 3)])
def test_what_follows_a_reduction_may_be_written_over_what_it_reads(rng, n, c, axes):
    """As an update does with the gradient of a bias: each result reads what another one is written over."""
    x, left = normal(rng, n, c), n if axes == ROWS else c
    shape = (n, 1) if axes == ROWS else (1, c)
    a, b = normal(rng, left).reshape(shape), normal(rng, left).reshape(shape)
    total = x.sum(axis=tuple(axes), dtype=np.float64).reshape(shape)
    wanted = total + b, total * a + b
    lines = [("s", Reduce("sum", "x", axes)), ("p", line("s + b")), ("q", line("s * a + b"))]
    loads = {"x": operand(x), "a": operand(a, (n, c)), "b": operand(b, (n, c))}
    compute((n, c), loads, lines, {"p": operand(a, (n, c)), "q": operand(b, (n, c))})
    for got, each in zip((a, b), wanted):
        assert np.abs(got - each).max() <= 1e-5 * np.abs(each).max() + 1e-5 * np.sqrt(x.size)
