"""Every operation of the formula language in native code gives what numpy gives, over the whole range."""

import numpy as np
import pytest
from natively import ENTRY, load, needsNative

from puregraph.ops.formula import Formula
from puregraph.ops.formula.expr import TRUTHS
from puregraph.ops.formula.optable import TABLE
from puregraph.ops.native.math import emit

pytestmark = needsNative
DTYPES = {"f32": np.float32, "f64": np.float64}
EDGES = [0, -0.0, 1, -1, 0.5, -0.5, np.inf, -np.inf, np.nan, 88, -88, 88.72, -87.3, -87.4, -103, 710, -745, 1e4, -1e4]
EDGES += [2, 3, -2, -3, 1e-10, -1e-10, 1e30, -1e30, 1e-30, 16, 17, 1e8, 0.9, 0.46875, 4, 0.25, 0.75, 1e-38, 33000]
ULPS = {"exp": 2, "log": 2, "tanh": 4, "erf": 4, "sigmoid": 4, "expm1": 2, "log1p": 2, "sin": 2, "cos": 2, "exp2": 2}
ULPS |= {"tan": 4, "rsqrt": 2, "logsigmoid": 4, "softplus": 4, "log2": 2, "log10": 2}
ULPS |= dict.fromkeys("+ - * / % fmod neg maximum minimum clip relu abs sign floor ceil round trunc sqrt".split(), 0.51)
ULPS |= dict.fromkeys("copysign square reciprocal heaviside where".split(), 0.51)


def native(write, kind, lanes, arrays):
    """What `write(code, values)` makes of arrays as long as a multiple of the lanes."""

    def whole(code):
        places = [code.pointer(f"x{i}", kind) for i in range(len(arrays))]
        y, n = code.pointer("y", kind), code.integer("n")
        with code.loop(0, n, lanes) as i:
            y.store(i, code.splat(code.convert(write(code, [x.load(i, lanes) for x in places]), kind), lanes))

    library = load(whole)
    y = np.full_like(arrays[0], 7)
    slots = np.array([*(x.ctypes.data for x in arrays), y.ctypes.data, len(y)], dtype=np.int64)
    ENTRY(library.address)(slots.ctypes.data, 0, 0)
    return y


def operation(op):
    def write(code, values):
        truths = TRUTHS.get(op, (False,) * len(values))
        return emit.EMIT[op](code, *[emit.asTruth(v) if t else v for v, t in zip(values, truths)])

    return write


def samples(op, dtype):
    """For each argument: every edge with every edge, then numbers of all sizes."""
    rng, count = np.random.default_rng(3), len(TABLE[op].pulls)
    edges = np.array(EDGES)
    grids = [np.repeat(edges, len(edges)), np.tile(edges, len(edges)), rng.permutation(np.tile(edges, len(edges)))]
    size = 4000
    columns = []
    for i in range(count):
        spread = np.exp(rng.uniform(-80, 80, size)) * rng.choice([-1, 1], size)
        parts = [edges if count == 1 else grids[i]]
        parts += [rng.standard_normal(size) * 3, rng.uniform(-1, 1, size), rng.uniform(-100, 100, size), spread]
        column = np.concatenate([*parts, rng.uniform(-1e4, 1e4, size)]).astype(dtype)
        columns.append(column[: len(column) // 16 * 16])
    return columns


def reference(op, arrays):
    meaning = TABLE[op].numpy
    with np.errstate(all="ignore"):
        if isinstance(meaning, str):
            return np.asarray(Formula(meaning)(**dict(zip("abc", arrays))))
        return np.asarray(np.where(arrays[0] != 0, *arrays[1:]) if op == "where" else meaning(*arrays))


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("op", emit.EMIT)
def test_an_operation_gives_what_numpy_gives(op, kind):
    arrays = samples(op, DTYPES[kind])
    found = native(operation(op), kind, 16, arrays)
    wanted = reference(op, arrays).astype(DTYPES[kind])
    if op in ("logndtr", "ndtr", "sinc", "logaddexp", "polygamma", "lgamma", "digamma", "iv", "ive", "trigamma"):
        tolerance = 1e-3 if kind == "f32" else 1e-9  # formulas that lose digits, in numpy too
    else:
        tolerance = 2e-6 if kind == "f32" else 6e-15
    tiny = 4 * np.finfo(DTYPES[kind]).tiny
    if op in ("sinc", "lgamma", "digamma"):
        tiny = 1e-6  # next to their zeros
    close = np.isclose(found, wanted, rtol=tolerance, atol=tiny, equal_nan=True)
    assert close.all(), [[*(x[i] for x in arrays), found[i], wanted[i]] for i in np.flatnonzero(~close)[:5]]


@pytest.mark.parametrize("op", ULPS)
def test_float32_is_within_units_of_the_last_place(op):
    arrays = samples(op, np.float32)
    found = native(operation(op), "f32", 16, arrays)
    exact = reference(op, [x.astype(np.float64) for x in arrays])
    with np.errstate(all="ignore"):
        wanted = exact.astype(np.float32)
        normal = np.isfinite(wanted) & (np.abs(wanted) > np.finfo(np.float32).tiny)
        off = np.abs(found[normal] - exact[normal]) / np.spacing(np.abs(wanted[normal]))
    assert off.max() <= ULPS[op]


@pytest.mark.parametrize("op", ["exp", "log", "tanh", "erf", "sigmoid", "expm1", "log1p", "sin"])
def test_float32_between_all_powers_of_two(op):
    """A million numbers, evenly among all that float32 has."""
    x = np.arange(0, 2**32, 4093, dtype=np.uint32).view(np.float32)
    x = np.ascontiguousarray(x[: len(x) // 16 * 16])
    found = native(operation(op), "f32", 16, [x])
    with np.errstate(all="ignore"):
        exact = reference(op, [x.astype(np.float64)])
        wanted = exact.astype(np.float32)
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    assert np.array_equal(np.isinf(found), np.isinf(wanted))
    normal = np.isfinite(wanted) & (np.abs(wanted) > np.finfo(np.float32).tiny)
    off = np.abs(found[normal] - exact[normal]) / np.spacing(np.abs(wanted[normal]))
    assert off.max() <= ULPS[op]


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 32])
def test_lanes_do_not_change_a_result(lanes):
    text = "where(x > 0 and not isnan(x), log1p(x) * tanh(x), sin(x)) + maximum(x, -0.5) % 2"
    x = (np.random.default_rng(1).standard_normal(512) * 5).astype(np.float32)
    one, many = (native(lambda code, v: emit.emit(code, text, {"x": v[0]}), "f32", n, [x]) for n in (1, lanes))
    assert np.array_equal(one, many)


@pytest.mark.parametrize("kind", DTYPES)
def test_a_formula_shares_its_parts_and_equals_numpy(kind):
    x = np.random.default_rng(2).standard_normal((2, 320)).astype(DTYPES[kind])
    formula = Formula("x * sigmoid(beta * x)")
    gradient = formula.gradient(["x"], "g")["x"].put(beta=1.5)
    names = {"x": x[0].copy(), "g": x[1].copy()}
    found = native(lambda code, v: emit.emit(code, gradient, dict(zip(names, v))), kind, 16, [*names.values()])
    np.testing.assert_allclose(found, gradient(**names), rtol=3e-6 if kind == "f32" else 1e-13, atol=1e-7)


def test_conditions_and_values_convert_into_each_other():
    x = np.array([-2, -1, 0, 1, 2, np.nan, 0.5, 3] * 2, dtype=np.float32)
    for text in ["x > 1", "(x > 0) * 2 + 1", "where(x, 1, 2)", "not x", "x and x < 2", "3", "1e300 * x"]:
        found = native(lambda code, v, t=text: emit.emit(code, t, {"x": v[0]}), "f32", 16, [x])
        wanted = Formula(text)(**({"x": x} if "x" in text else {}))
        assert np.array_equal(found, np.broadcast_to(wanted, x.shape).astype(np.float32), equal_nan=True), text


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("op", ["polygamma", "ive", "iv"])
def test_functions_of_an_order(op, kind):
    rng = np.random.default_rng(6)
    n = rng.choice([0, 1, 2, 3, 5, 10, 30, 31, 149, 150, -1, 2.5, np.nan], 2048)
    edges = rng.choice([0, -0.0, np.inf, -np.inf, np.nan, -1, -2, 1, 0.5, -0.5, 1e-8, 1e10, 29, 31, 500], 1024)
    x = np.concatenate([rng.uniform(-8, 8, 512), rng.uniform(0, 300, 512), edges])
    arrays = [n.astype(DTYPES[kind]), x.astype(DTYPES[kind])]
    found, wanted = native(operation(op), kind, 16, arrays), reference(op, arrays)
    tiny = np.finfo(DTYPES[kind]).tiny * 4
    np.testing.assert_allclose(found, wanted, rtol=1e-5 if kind == "f32" else 1e-11, atol=tiny)


def test_every_operation_is_there():
    assert set(TABLE) == set(emit.EMIT)
    assert emit.lacking("exp(x) + y", "x ** 2") == []
