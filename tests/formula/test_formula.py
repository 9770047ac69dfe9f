"""Formula: the same text as numpy, as its derivative, as C, and as text."""

import copy
import ctypes
import inspect
import math
import pickle
import re
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
from formulas import BOOLS, X, Y, Z, applied, arguments, inTorch, slope
from hypothesis import given, settings
from hypothesis import strategies as st
from source import ROOT

from puregraph import Graph, Input, Pointwise
from puregraph.autodiff import Variable, grad
from puregraph.core.errors import DtypeError, FormulaError
from puregraph.ops.formula import Formula, interpreter
from puregraph.ops.formula.formula import cudaFrom, numpyFrom, preambleFrom
from puregraph.ops.formula.optable import ALIASES, FUNCTIONS

# ---- numpy ----------------------------------------------------------------------------------------------------


def test_a_formula_reads_as_the_numpy_it_looks_like():
    x, alpha = X, 0.7
    elu = Formula("where(x > 0, x, alpha * expm1(x))")
    np.testing.assert_array_equal(elu(x=x, alpha=alpha), np.where(x > 0, x, alpha * np.expm1(x)))
    np.testing.assert_array_equal(elu.numpy(["alpha", "x"])(alpha, x), elu(x=x, alpha=alpha))
    np.testing.assert_array_equal(Formula("-x ** 2 + 3 * x % 2 - x / 4")(x=x), -(x**2) + 3 * x % 2 - x / 4)
    np.testing.assert_array_equal(Formula("x if x > y else y")(x=X, y=Y), np.maximum(X, Y))


def test_other_names_of_a_function_are_read_as_its_own():
    assert Formula("max(x, min(y, 2)) + clamp(x, 0, 1) + expit(x)") == Formula(
        "maximum(x, minimum(y, 2)) + clip(x, 0, 1) + sigmoid(x)"
    )
    assert str(Formula("atanh(arctan2(asin(x), acosh(y)))")) == "arctanh(atan2(arcsin(x), arccosh(y)))"
    assert Formula("max * min").names == ("max", "min")  # they are no names of ours


def test_the_page_on_formulas_names_every_function():
    page = (ROOT / "docs" / "newmodule.md").read_text(encoding="utf-8")
    table = page[page.index("| kind | functions |") :].split("\n\n")[0]
    missing = {*FUNCTIONS, *ALIASES} - set(re.findall(r"\w+", table))
    assert not missing, f"docs/newmodule.md does not name {', '.join(sorted(missing))}"


def test_operators_have_the_precedence_of_python():
    for text in ("-2 ** 2", "2 ** 3 ** 2", "1 - 2 - 3", "7 / 2 / 2", "2 * -3 ** 2", "10 - 4 * 2 + 1", "(1 - 2) * 3"):
        assert Formula(text)() == eval(text), text
    assert Formula("not 1 > 2 and 3 < 4 or 1 == 2")()


def test_comparisons_chain_and_count_as_numbers_in_arithmetic():
    np.testing.assert_array_equal(Formula("-1 < x <= 1")(x=X), (X > -1) & (X <= 1))
    for dtype in (np.float32, np.float64):
        count = Formula("(x > 0) + (x > 1) - 2 * (x < -1)")(x=X.astype(dtype))
        np.testing.assert_array_equal(count, (X > 0).astype(int) + (X > 1) - 2 * (X < -1))
        assert count.dtype == dtype


def test_statements_name_parts_of_a_formula():
    formula = Formula("""
        s = sigmoid(x)
        t = s * s
        x * t + s
    """)
    assert (
        formula == Formula("s = sigmoid(x); x * (s * s) + s") == Formula("x * (sigmoid(x) * sigmoid(x)) + sigmoid(x)")
    )
    assert formula.names == ("x",)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_function_keeps_each_float_type_and_agrees_across_them(name, dtype):
    values = [a if a.dtype == bool else a.astype(dtype) for a in arguments(name)]
    found = applied(name).numpy(applied(name).names)(*values)
    exact = applied(name).numpy(applied(name).names)(*[a if a.dtype == bool else a.astype(float) for a in values])
    assert found.dtype == (bool if name in BOOLS else dtype)
    np.testing.assert_allclose(found, exact, rtol=8 * np.finfo(dtype).eps, atol=8 * np.finfo(dtype).eps)


def test_results_have_the_promoted_type_and_other_arguments_follow_it():
    f = Formula("x * y + 0.1")
    x = X.astype(np.float32)
    assert f(x=x, y=0.3).dtype == np.float32
    assert f(x=x, y=np.arange(40)).dtype == np.float32
    assert f(x=x, y=np.float32(2)).dtype == np.float32
    assert f(x=x, y=X).dtype == np.float64
    assert f(x=x, y=X.astype(np.float16)).dtype == np.float32
    assert f(x=np.arange(3), y=2).dtype == np.float64
    assert f(x=2, y=3) == 6.1
    assert Formula("where(x > 0, 1, 0)")(x=x).dtype == np.float32
    assert Formula("where(m, x, 0)")(m=X > 0, x=x).dtype == np.float32


def test_float16_is_computed_in_float32_and_rounded_once():
    x = np.array([300.0, 1000.0, 0.0004], np.float16)
    np.testing.assert_array_equal(Formula("x * x / 1000")(x=x), (x.astype(np.float32) ** 2 / 1000).astype(np.float16))
    np.testing.assert_array_equal(Formula("log(exp(x))")(x=np.array([60], np.float16)), [60])


def test_out_receives_the_result_whatever_its_type():
    for text in ("x + y", "where(x > y, x, y)", "x", "2", "x > y"):
        for dtype in (np.float16, np.float32, np.float64):
            out = np.full(40, 7, dtype)
            assert Formula(text).numpy(["x", "y"])(X, Y, out=out) is out
            np.testing.assert_array_equal(out, np.broadcast_to(Formula(text).numpy(["x", "y"])(X, Y), 40).astype(dtype))
    x = X.copy()
    assert Formula("x * x + 1")(x=x, out=x) is x
    np.testing.assert_array_equal(x, X * X + 1)


@pytest.mark.parametrize("kind", ["bool", "int8", "uint64", "float32"])
@pytest.mark.parametrize("name", ["floor", "ceil", "round", "trunc"])
def test_integers_are_rounded_into_the_array_that_is_given(name, kind):
    x = np.array([0, 1, 1], kind)
    out = np.zeros_like(x)
    assert Formula(f"{name}(x)")(x=x, out=out) is out and np.array_equal(out, x)


def test_arguments_are_never_written():
    x = X.copy()
    x.flags.writeable = False
    Formula("relu(x) + x * 2 - square(x)")(x=x)
    np.testing.assert_array_equal(x, X)


def test_nothing_warns_however_large_the_argument():
    x = np.array([-1e4, -200, -88, -1e-3, 0, 1e-3, 88, 200, 1e4])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in FUNCTIONS:
            f = applied(name)
            for g in [f] + [f.derivative(n) for n in f.names]:
                for dtype in (np.float32, np.float64):
                    g.numpy(f.names)(*[x.astype(dtype)] * len(f.names))


@pytest.mark.parametrize("text", ["sigmoid(x)", "softplus(x)", "logsigmoid(x)", "tanh(x)", "erf(x)", "x * sigmoid(x)"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_activations_and_their_derivatives_stay_finite_at_ten_thousand(text, dtype):
    x = np.array([-1e4, -200, -88, -1e-3, 0, 1e-3, 88, 200, 1e4], dtype)
    for f in (Formula(text), Formula(text).derivative("x")):
        assert np.isfinite(f(x=x)).all(), f


def test_sigmoid_and_softplus_have_their_exact_values():
    assert Formula("sigmoid(x)")(x=np.array([-1e4, 0, 1e4])).tolist() == [0, 0.5, 1]
    assert Formula("softplus(x)")(x=np.array([-1e4, 0, 1e4])).tolist() == [0, math.log(2), 1e4]
    assert Formula("softplus(x)").derivative("x")(x=np.array([-1e4, 0, 1e4])).tolist() == [0, 0.5, 1]
    np.testing.assert_allclose(Formula("sigmoid(x)")(x=np.float32([-20, -60])), np.exp([-20.0, -60.0]), rtol=1e-6)
    assert Formula("logaddexp(x, y)")(x=np.array([-np.inf, np.inf, 0]), y=np.array([-np.inf, 1, 0])).tolist() == [
        -np.inf,
        np.inf,
        math.log(2),
    ]


def test_a_shared_subexpression_is_computed_once():
    assert Formula("sin(x) * sin(x) + sin(x)").flops == 3
    assert Formula("x + 2 * 3 / sqrt(4)").flops == 1
    assert Formula("x ** 4").flops == Formula("square(square(x))").flops == 2


@pytest.mark.parametrize("n", [-3, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 5, 7, 8, 9, 12])
def test_powers_are_right_for_every_exponent(n):
    x = np.linspace(0.2, 2, 30)
    np.testing.assert_allclose(np.broadcast_to(Formula(f"x ** {n}")(x=x), 30), x**n, rtol=2e-15)
    np.testing.assert_allclose(Formula("x ** n")(x=x, n=n), x**n, rtol=2e-15)


def test_small_integer_powers_need_no_logarithm():
    np.testing.assert_array_equal(Formula("x ** 3")(x=np.array([-2.0, -1, 0])), [-8, -1, 0])
    assert "pow" not in Formula("x ** 7 + x ** 0.5 + x ** -2").cuda()


@pytest.mark.parametrize("layout", ["flat", "rows", "channels last", "broadcast", "strided"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_large_arrays_give_what_small_ones_give(layout, dtype, monkeypatch):
    x = np.random.default_rng(3).standard_normal((6, 8, 30, 40)).astype(dtype)
    y = x[::-1] * 2
    if layout == "channels last":
        x, y = (a.transpose(0, 3, 1, 2) for a in (x, y))
    elif layout == "broadcast":
        y = y[0, :, :1]
    elif layout == "strided":
        x, y = x[::2, :, 1::3], y[::2, :, 1::3]
    elif layout == "flat":
        y = y.copy()
    formula = Formula("where(x > y, relu(x) * y, sigmoid(y) - x) + 0.25")
    whole = formula(x=x, y=y)
    monkeypatch.setattr(interpreter, "BLOCK_ELEMENTS", 1000)
    out = np.empty(whole.shape, dtype)
    np.testing.assert_allclose(formula(x=x, y=y), whole, rtol=4 * np.finfo(dtype).eps)
    np.testing.assert_allclose(formula(x=x, y=y, out=out), whole, rtol=4 * np.finfo(dtype).eps)
    assert formula(x=x, y=y).strides == whole.strides
    several = numpyFrom([formula, Formula("x > 0"), Formula("y * 2")], ["x", "y"])(x, y)
    assert [a.shape for a in several] == [whole.shape, x.shape, y.shape]


def test_selecting_by_masks_equals_selecting_by_branches():
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(5000).astype(np.float32) for _ in range(2))
    a[::7], b[::5] = np.nan, np.inf
    for condition in (a > b, rng.random((3, 5000)) > 0.5, rng.random(5000) > 2):
        for no in (b, np.float32(-0.0), b[:1]):
            found = interpreter.select(condition, a, no)
            np.testing.assert_array_equal(found.view(np.int32), np.where(condition, a, no).view(np.int32))


def test_several_formulas_make_one_function_that_may_update_in_place():
    m, p, g = np.ones(5, np.float32), np.arange(5, dtype=np.float32), np.full(5, 2, np.float32)
    rule = numpyFrom([Formula("0.9 * m + 0.1 * g"), Formula("p - rate * (0.9 * m + 0.1 * g)")], ["p", "m", "g", "rate"])
    assert [a.dtype for a in rule(p, m, g, 0.5)] == [np.float32] * 2
    rule(p, m, g, 0.5, out=(m, p))
    np.testing.assert_allclose(m, np.full(5, 1.1), rtol=1e-6)
    np.testing.assert_allclose(p, np.arange(5) - 0.55, rtol=1e-6)


class Recorder(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of another library: only numpy's protocols."""

    def __init__(self, data):
        self.data = data

    dtype = property(lambda self: self.data.dtype)

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return Recorder(getattr(ufunc, method)(*[getattr(i, "data", i) for i in inputs], **kwargs))

    def __array_function__(self, function, types, args, kwargs):
        return Recorder(function(*[a.data if isinstance(a, Recorder) else a for a in args], **kwargs))


def test_arrays_of_other_libraries_work_through_numpys_protocols():
    formula = Formula("where(x > 0, log(x), alpha * expm1(x)) + maximum(x, 0.5) ** 2")
    x = X.astype(np.float32)
    found = formula(x=Recorder(x), alpha=0.3)
    assert isinstance(found, Recorder)
    np.testing.assert_array_equal(found.data, formula(x=x, alpha=0.3))


# ---- derivatives ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_derivative_of_every_function_matches_central_differences(name):
    values = dict(zip("abc", arguments(name)))
    for argument, value in values.items():
        if value.dtype != bool:
            found = applied(name).derivative(argument).numpy(tuple(values))(*values.values())
            wanted = np.broadcast_to(0.0, 40) if name in BOOLS else slope(applied(name), argument, values)
            np.testing.assert_allclose(np.broadcast_to(found, 40), wanted, rtol=2e-7, atol=2e-8)


@pytest.mark.parametrize("operator", ["a + b", "a - b", "a * b", "a / b", "a % b", "-a * -b", "(a * a) ** b"])
def test_the_derivative_of_every_operator_matches_central_differences(operator):
    values = {"a": X, "b": np.where(np.abs(Y) < 0.2, 0.7, Y)}
    for name, d in Formula(operator).gradient(["a", "b"]).items():
        wanted = slope(Formula(operator), name, values)
        np.testing.assert_allclose(np.broadcast_to(d.numpy("ab")(*values.values()), 40), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.peers
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "cbrt"])
def test_every_function_that_torch_has_agrees_with_torch(name):
    import torch

    f, values = applied(name), arguments(name)
    tensors = [torch.tensor(a, requires_grad=a.dtype != bool and name not in BOOLS) for a in values]
    orders = [t.value for t in f.term.args if t.op == "number"]
    y = inTorch(name)(*orders, *tensors)
    tolerance = 1e-8 if name in ("trigamma", "polygamma") else 1e-12  # there torch is the less accurate one
    np.testing.assert_allclose(f.numpy(f.names)(*values), y.detach(), rtol=tolerance, atol=1e-14)
    if y.dtype == torch.bool or name == "heaviside":
        return
    y.sum().backward()
    for letter, tensor in zip(f.names, tensors):
        if tensor.grad is not None:
            found = f.derivative(letter).numpy(f.names)(*values)
            np.testing.assert_allclose(np.broadcast_to(found, 40), tensor.grad.numpy(), rtol=1e-8, atol=1e-13)


KINKS = {
    "relu(x)": lambda torch, x: torch.relu(x),
    "maximum(x, 0)": lambda torch, x: torch.maximum(x, torch.zeros_like(x)),
    "minimum(0, x)": lambda torch, x: torch.minimum(torch.zeros_like(x), x),
    "maximum(x, x)": lambda torch, x: torch.maximum(x, x),
    "clip(x, -1, 1)": lambda torch, x: x.clamp(-1, 1),
    "clip(0.5, x, 1)": lambda torch, x: torch.full_like(x, 0.5).clamp(x, torch.ones_like(x)),
    "abs(x)": lambda torch, x: x.abs(),
    "sign(x) * x": lambda torch, x: x.sign() * x,
    "where(x > 0, x, 0.1 * x)": lambda torch, x: torch.where(x > 0, x, 0.1 * x),
    "x ** 0": lambda torch, x: x**0,
    "x ** 1": lambda torch, x: x**1,
    "x ** 2": lambda torch, x: x**2,
    "x ** 3": lambda torch, x: x**3,
    "x ** y": lambda torch, x: x ** torch.full_like(x, 2.0),
    "y ** x": lambda torch, x: torch.zeros_like(x) ** x,
    "softplus(x)": lambda torch, x: torch.nn.functional.softplus(x, threshold=1e9),
    "floor(x) + round(x) + x": lambda torch, x: x.floor() + x.round() + x,
}


@pytest.mark.peers
@pytest.mark.parametrize("text", KINKS)
def test_kinks_ties_and_zeros_have_the_derivative_of_torch(text):
    import torch

    points = np.array([-2, -1, -0.5, 0, 0.5, 1, 2.0])
    x = torch.tensor(points, requires_grad=True)
    KINKS[text](torch, x).sum().backward()
    other = 0.0 if text == "y ** x" else 2.0
    found = Formula(text).derivative("x").numpy(["x", "y"])(points, other)
    np.testing.assert_allclose(np.broadcast_to(found, 7), x.grad, rtol=1e-14)


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("op", ["maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_beside_a_nan_an_extreme_passes_the_gradient_to_both_as_in_torch(op, dtype):
    import torch

    nan, inf = np.nan, np.inf
    pairs = [(nan, 1), (1, nan), (nan, nan), (inf, nan), (nan, -inf), (1, 1), (1, 2), (2, 1), (0, -0.0), (inf, inf)]
    arrays = [np.array(column, dtype) for column in zip(*pairs)]
    theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
    getattr(torch, op)(*theirs).sum().backward()
    ours = [Variable(x, requires_grad=True) for x in arrays]
    results = {"Variable": grad(getattr(np, op)(*ours).sum(), ours)}
    inputs = [Input(name=name).node() for name in "ab"]
    graph = Graph(inputs, Pointwise(formula=f"{op}(a, b)").node(*inputs))
    graph(*arrays)
    graph.backward(np.ones(len(pairs), dtype))
    program = graph.compile([x.shape for x in arrays], train=True, dtypes=[dtype] * 2)
    program.run(*arrays, np.ones(len(pairs), dtype))
    results |= {"graph": graph.grad, "program": program.grad}
    for way, grads in results.items():
        for x, result in zip(theirs, grads):
            np.testing.assert_array_equal(np.asarray(result), x.grad, err_msg=way)


def test_what_a_condition_discards_cannot_make_a_gradient_nan():
    x = np.array([-200.0, -1, 0, 1, 200])
    elu = Formula("where(x > 0, x, alpha * expm1(x))").derivative("x")
    for dtype in (np.float16, np.float32, np.float64):
        np.testing.assert_allclose(elu(x=x.astype(dtype), alpha=2), [0, 2 * np.exp(-1), 2, 1, 1], 1e-3, 1e-30)
    log = Formula("where(x > 0, log(x), 0)").derivative("x")
    np.testing.assert_array_equal(log(x=x), [0, 0, 0, 1, 1 / 200])
    root = Formula("where(x > 0, sqrt(x), 0) + where(x > 1, 2 * sqrt(x), 0)").derivative("x")
    np.testing.assert_allclose(root(x=x), [0, 0, 0, 0.5, 1.5 / np.sqrt(200)])
    nested = Formula("where(x > 0, where(x < 100, exp(sqrt(x)) / x, 1), log(1 - x))").derivative("x")
    assert np.isfinite(nested(x=x)).all()


def test_a_condition_met_again_inside_its_own_branch_is_settled():
    f = Formula("where(x > 0, 2 * x, where(x > 0, 3 * x, where(not x > 0, 5 * x, 7 * x)))")
    assert str(f.derivative("x")) == "where(x > 0, 2, 5)"
    deeper = Formula("where(y > 0, where(x > 0, x, where(y > 0, 3 * x, x * y)), 0)").derivative("x")
    np.testing.assert_array_equal(deeper(x=np.array([-1, 1, -1.0]), y=np.array([1, 1, -1.0])), [3, 1, 0])


def test_guards_hold_in_second_derivatives():
    second = Formula("where(x > 0, x * log(x), 0)").derivative("x").derivative("x")
    np.testing.assert_array_equal(second(x=np.array([-1, 0, 2.0])), [0, 0, 0.5])


def test_derivatives_of_any_order():
    f = Formula("sin(x) * exp(-x)")
    for n in range(1, 7):  # the fourth derivative of exp(-x) sin(x) is -4 exp(-x) sin(x)
        f = f.derivative("x")
        if n == 4:
            np.testing.assert_allclose(f(x=X), -4 * np.exp(-X) * np.sin(X), atol=1e-13)
    np.testing.assert_allclose(f(x=0.0), 8.0)  # Im of (-1 + i)^6 = 8i


def test_gradients_of_several_variables_share_one_sweep():
    found = Formula("x * y + sin(x)").gradient()
    assert found == {"x": Formula("cos(x) + y"), "y": Formula("x")}
    assert list(Formula("x * y").gradient(["y", "z"]).values()) == [Formula("x"), Formula("0")]


def test_a_seed_multiplies_inside_branches():
    assert Formula("relu(x)").gradient(["x"], seed="g") == {"x": Formula("where(x > 0, g, 0)")}
    assert Formula("2 * x").gradient(["x"], seed="g / 4")["x"] == Formula("2 * (g / 4)")


def test_a_gradient_may_read_the_value_instead_of_computing_it_again():
    assert Formula("tanh(x)").gradient(["x"], "g", output="y")["x"] == Formula("g * (1 - y * y)")
    assert Formula("exp(a * x)").gradient(["x"], "g", output="out")["x"] == Formula("a * (g * out)")
    with pytest.raises(FormulaError, match="has a variable y; give its value another name"):
        Formula("x * y").gradient(output="y")


def test_derivatives_read_as_one_would_write_them():
    assert str(Formula("where(x > 0, x, alpha * expm1(x))").derivative("x")) == "where(x > 0, 1, alpha * exp(x))"
    assert str(Formula("x ** 3").derivative("x")) == "3 * x ** 2"
    assert str(Formula("softplus(x)").derivative("x")) == "sigmoid(x)"
    assert str(Formula("floor(x) + sign(y)").derivative("x")) == "0"
    assert str(Formula("exp(-x * x)").derivative("x")) == "-2 * (x * exp(-x * x))"
    assert str(Formula("x ** 5").derivative("x").derivative("x")) == "20 * x ** 3"
    assert str(Formula("lgamma(x)").derivative("x").derivative("x")) == "trigamma(x)"
    assert str(Formula("trigamma(x)").derivative("x").derivative("x")) == "polygamma(3, x)"


def test_the_order_of_a_polygamma_is_what_has_no_derivative():
    with pytest.raises(FormulaError, match="polygamma has no derivative by its argument 1, 'n'"):
        Formula("2 * polygamma(n, x)").derivative("n")
    with pytest.raises(FormulaError, match=r"iv has no derivative by its argument 1, 'n . 1'"):
        Formula("iv(n + 1, x)").gradient(["n"])
    assert Formula("y * polygamma(n, x)").derivative("y") == Formula("polygamma(n, x)")


def test_a_name_may_be_any_kind_of_text():
    assert Formula("x * x").derivative(np.str_("x")) == Formula("2 * x")


def test_an_exponent_that_is_nan_stays_one():
    assert np.isnan(Formula("x ** ((-1) ** 0.5)")(x=2.0))


# ---- text -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "a - (b - c)",
        "(a - b) - c",
        "a / (b * c) / -d",
        "-(a * b) + -a * b",
        "-a ** 2 + (-a) ** 2 + 2 ** -a",
        "(a ** b) ** c + a ** b ** c",
        "(-2) ** a + -2 * a - -2",
        "a < b and not (c or d) or a == (b > c)",
        "where(a > 0, a, where(b, 0.1, 1e-05))",
        "0.1 + 1 + 1.0 + 2.50 + pi * e - inf + -pi",
        "a if b else c",
        "--a",
    ],
)
def test_text_parses_back_to_the_same_formula(text):
    f = Formula(text)
    assert Formula(str(f)) == f
    assert str(Formula(str(f))) == str(f)


def test_numbers_keep_their_text():
    assert str(Formula("0.1 * x + 2 * y + 3.0 + pi")) == "0.1 * x + 2 * y + 3.0 + pi"
    assert Formula("2 * x") != Formula("2.0 * x")


def test_equal_formulas_are_equal_whatever_their_spelling():
    assert Formula("x+ y*2") == Formula("(x) + (y * 2)")
    assert hash(Formula("x+ y*2")) == hash(Formula("x + y * 2"))
    assert Formula("x + y") != Formula("y + x")
    assert Formula("x") != "x"
    assert repr(Formula("x+y")) == "Formula('x + y')"
    assert Formula(Formula("x")) is Formula("x") is Formula(" x ")
    assert Formula(0.5) == Formula("0.5") and Formula(-2) == Formula("-2")


def test_formulas_can_be_copied_and_pickled():
    f = Formula("x * sigmoid(beta * x)")
    assert pickle.loads(pickle.dumps(f)) == copy.deepcopy(f) == copy.copy(f) == f


def test_put_substitutes_all_names_at_once():
    assert Formula("x * y").put(x="y + 1", y="x") == Formula("(y + 1) * x")
    assert str(Formula("where(x > 0, x, alpha * expm1(x))").put(alpha=1)) == "where(x > 0, x, expm1(x))"
    assert Formula("relu(x)").put(x=Formula("x + b")).names == ("x", "b")
    assert str(Formula("a * x + b").put(a=0, b=-0.5)) == "0 * x + -0.5"
    with pytest.raises(FormulaError, match=r"'x \* y' has no z; its variables are x, y"):
        Formula("x * y").put(z=1)
    with pytest.raises(FormulaError, match="nan is not a number that a formula may have"):
        Formula("x").put(x=math.nan)


def test_long_formulas_are_written_in_pieces_and_never_overflow_the_stack():
    gate, deep = Formula("x * sigmoid(x)"), Formula("x")
    for _ in range(100):  # written without names for its parts this text would have 2 ** 100 terms
        deep = gate.put(x=deep)
    for _ in range(3000):
        deep = Formula("x + 1").put(x=deep)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 150)
    try:
        assert len(str(deep)) < 40_000
        assert Formula(str(deep)) == deep == copy.deepcopy(deep)
        slopeOfDeep = deep.derivative("x")
        assert slopeOfDeep.flops > 300
        assert len(cudaFrom([slopeOfDeep], ["y"])) < 100_000
        assert np.isfinite(slopeOfDeep(x=0.1))
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "there is no result at its end"),
        ("x +", "invalid syntax"),
        ("y = x", "there is no result at its end"),
        ("import os; x", "only `name = formula` may come before the result"),
        ("x.real", "Attribute is not allowed"),
        ("x[0]", "Subscript is not allowed"),
        ("[x]", "List is not allowed"),
        ("lambda: x", "Lambda is not allowed"),
        ("(y := x)", "NamedExpr is not allowed"),
        ("x @ y", "MatMult is not allowed"),
        ("x | y", "BitOr is not allowed"),
        ("x in y", "In is not allowed"),
        ("~x", "Invert is not allowed"),
        ("'text'", "'text' is not a number"),
        ("True", "True is not a number"),
        ("1j * x", "1j is not a number"),
        ("9" * 400, "an integer is too large"),
        ("__import__('os')", "__import__ is not one of the functions"),
        ("x.exp()", "this is not one of the functions"),
        ("gelu(x)", "gelu is not one of the functions"),
        ("exp(x, y)", "exp wants 1 argument, got 2"),
        ("where(x, y)", "where wants 3 arguments, got 2"),
        ("exp(a=x)", "exp wants 1 argument, got 1"),
        ("exp(*x)", "Starred is not allowed"),
        ("exp + 1", "exp cannot be the name of a variable"),
        ("pi = 3; pi", "pi cannot be the name of a variable"),
        ("f(x) = 3; x", "cannot assign to function call"),
        ("x[0] = 3; x", "Subscript is not allowed"),
        ("λ * x", "λ cannot be the name of a variable"),
        ("x\0", "null bytes"),
        ("(" * 300 + "x" + ")" * 300, "too many nested parentheses"),
        ("x" + " + x" * 20000, "recursion"),
    ],
)
def test_what_is_no_formula_is_refused_with_what_is_allowed(text, message):
    with pytest.raises(FormulaError, match="cannot read the formula") as caught:
        Formula(text)
    assert message in str(caught.value)
    assert "a formula may have names, numbers" in str(caught.value)
    assert len(str(caught.value)) < 1500


def test_wrong_arguments_are_named():
    with pytest.raises(FormulaError, match=r"'x \+ y' wants x, y; got x, z"):
        Formula("x + y")(x=1, z=2)
    with pytest.raises(FormulaError, match=r"wanted a formula of x, got one of y too"):
        Formula("x + y").numpy(["x"])
    with pytest.raises(FormulaError, match=r"wants 2 arrays \(x, y\), got 1"):
        Formula("x + y").numpy()(1)
    with pytest.raises(DtypeError, match="wants arrays of float, int or bool; y is complex128"):
        Formula("x + y")(x=X, y=X + 1j)


def test_the_same_text_is_parsed_once():
    first = Formula("x * 17.25 + tanh(x)")
    assert all(Formula("x * 17.25 + tanh(x)") is first for _ in range(3000))
    assert first.numpy(["x"]) is first.numpy(["x"])
    assert first.derivative("x") is first.derivative("x")


# ---- C --------------------------------------------------------------------------------------------------------

HEADER = """
#include <math.h>
#include <stdbool.h>
#include <tgmath.h>
#define __device__
#define rsqrt(x) (1 / sqrt(x))
#define INVERSE(name, low, high, function) \
  static double name(double p) { \
    long double a = -40, b = 40; \
    if (p <= low || p >= high || p != p) return p == low ? -INFINITY : p == high ? INFINITY : NAN; \
    for (int i = 0; i < 200; i++) { const long double x = (a + b) / 2; if (function < p) a = x; else b = x; } \
    return b; }
INVERSE(erfinv, -1, 1, erfl(x))
INVERSE(normcdfinv, 0, 1, erfcl(-x / sqrtl(2)) / 2)
static double erfcx(double x) {
  if (x < 25) return expl((long double)x * x) * erfcl(x);
  return (1 - (0.5 - 0.75 / (x * x)) / (x * x)) / (x * sqrt(M_PI));
}
typedef {ctype} T;
"""
COMPILER = shutil.which("cc")
needsCompiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here to run the CUDA text with")


def compiled(formulas, folder, ctype="double"):
    """Each formula as a C function (n, y, inputs...) on arrays, made from its CUDA text."""
    source = [HEADER.replace("{ctype}", ctype), preambleFrom(formulas)]
    for i, f in enumerate(formulas):
        pointers = "".join(f", const T* {name}_" for name in f.names)
        loads = "".join(f"const T {name} = {name}_[i]; " for name in f.names)
        body = f"for (int i = 0; i < n; i++) {{ {loads}T result;\n{f.cuda('result')}\nresult_[i] = result; }}"
        source.append(f"void f{i}(int n, T* result_{pointers}) {{ {body} }}")
    (folder / "f.c").write_text("\n".join(source))
    command = [COMPILER, "-std=gnu11", "-w", "-shared", "-fPIC", "-o", folder / "f.so", folder / "f.c", "-lm"]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[:2000]
    library = ctypes.CDLL(str(folder / "f.so"))

    def function(i):
        def call(*arrays):
            arrays = [
                np.ascontiguousarray(a, np.dtype(ctype.replace("double", "f8").replace("float", "f4"))) for a in arrays
            ]
            y = np.empty_like(arrays[0])
            library[f"f{i}"](y.size, *[ctypes.c_void_p(a.ctypes.data) for a in (y, *arrays)])
            return y

        return call

    return [function(i) for i in range(len(formulas))]


def test_cuda_text_is_what_one_would_write():
    assert Formula("x * x + 0.5").cuda() == "y = ((x * x) + (T)0.5);"
    assert Formula("maximum(x, 0)").cuda("out") == "out = (x > (T)0.0 || x != x ? x : (T)0.0);"
    assert Formula("exp(x) + exp(x)").cuda() == "const T t1 = exp(x);\ny = (t1 + t1);"
    assert Formula("where(x > 0, t1, x > 0)").cuda() == (
        "const bool t2 = (x > (T)0.0);\ny = (t2 ? t1 : (t2 ? (T)1.0 : (T)0.0));"
    )
    assert Formula("exp(x) * 2").cuda(T="float") == "y = (exp((float)x) * (float)2.0);"
    assert Formula("x * 2").preamble() == ""


def test_a_kernel_body_may_assign_to_its_own_inputs():
    body = cudaFrom([Formula("0.9 * m + g"), Formula("p - 0.1 * (0.9 * m + g)"), Formula("m")], ["m", "p", "old"])
    *before, m, p, old = body.splitlines()
    assert all(line.startswith("const T t") for line in before)
    assert "m" not in p[1:] and "m" not in old.split("=")[1]


def test_the_preamble_holds_just_the_functions_that_are_called():
    text = Formula("digamma(x) % 2").preamble("float")
    assert "static float digamma(float x)" in text and "static float modulo(float a, float b)" in text
    assert "trigamma" not in text and " T " not in text
    text = Formula("trigamma(x)").preamble()
    assert text.index("T hurwitz(T s") < text.index("T polygamma(T n")
    assert "INFINITY" in Formula("minimum(x, inf)").preamble()


@needsCompiler
@pytest.mark.parametrize("ctype, tolerance", [("double", 4e-14), ("float", 4e-6)])
def test_every_function_is_in_c_what_it_is_in_numpy(tmp_path, ctype, tolerance):
    formulas = [applied(name) for name in FUNCTIONS]
    formulas += [Formula(t) for t in ("a % b", "a / b", "a ** 5", "a < b", "not a > b or a != a", "-a * inf", "a ** b")]
    functions = compiled(formulas, tmp_path, ctype)
    special = np.array([0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, np.inf, -np.inf, np.nan])
    both = [a.reshape(-1) for a in np.meshgrid(special, special)]
    for f, function, name in zip(formulas, functions, FUNCTIONS + [None] * 7):
        samples = [arguments(name) if name else (X, Y)[: len(f.names)]]
        if name not in ("lgamma", "digamma", "trigamma", "polygamma"):  # they have poles
            samples.append((*both, both[0] + 1)[: len(f.names)])
        for values in samples:
            values = [v.astype(np.float32 if ctype == "float" else float) for v in values]
            wanted = f.numpy(f.names)(*values)
            np.testing.assert_allclose(function(*values), wanted, tolerance, tolerance / 10, err_msg=str(f))


@pytest.mark.gpu
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_and_its_derivatives_are_on_the_gpu_what_they_are_in_numpy(name):
    import cupy

    f, values = applied(name), [v.astype(float) for v in arguments(name)]
    for g in [f] + [f.derivative(n) for n in f.names]:
        body, preamble = cudaFrom([g], ["y"], "double"), preambleFrom([g], "double")
        inputs = ", ".join(f"float64 {n}" for n in f.names)
        fused = cupy.ElementwiseKernel(inputs, "float64 y", body, f"formula_{name}", preamble=preamble)
        wanted = np.broadcast_to(g.numpy(f.names)(*values), 40)
        found = cupy.asnumpy(fused(*map(cupy.asarray, values)))
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13, err_msg=body)


# ---- random expressions ---------------------------------------------------------------------------------------

SMOOTH = ["tanh({})", "sin({})", "cos({})", "erf({})", "sigmoid({})", "softplus({})", "arctan({})", "-({})"]
SMOOTH += ["exp(-softplus({}))", "sqrt(1 + square({}))", "log(1.5 + tanh({}))", "({}) ** 2", "({}) ** 3"]
JOINED = ["({}) + ({})", "({}) - ({})", "({}) * ({})", "({}) / (2.5 + tanh({}))", "where(x > 0.3, {}, {})"]
JOINED += ["where(y <= z and x < 1, {}, {})", "(1.1 + sigmoid({})) ** ({})", "logaddexp({}, {})"]
CORNERED = ["abs({})", "relu({})", "maximum({}, {})", "minimum({}, {})", "clip({}, -0.5, 0.7)"]
DISCRETE = ["floor({})", "sign({})", "not ({})", "({}) % ({})", "({}) < ({})", "({}) or ({})", "({}) ** ({})"]
POINTS = {"x": X[::4], "y": Y[::4] + 0.013, "z": Z[::4]}


def expressions(templates):
    leaves = st.sampled_from(["x", "y", "z", "0.7", "2", "pi"])

    def grow(parts):
        several = st.lists(parts, min_size=3, max_size=3)
        return st.builds(lambda template, parts: template.format(*parts), st.sampled_from(templates), several)

    return st.recursive(leaves, grow, max_leaves=8)


@given(expressions(SMOOTH + JOINED))
@settings(max_examples=150)
def test_random_gradients_match_central_differences(text):
    formula = Formula(f"({text}) + 0 * (x + y + z)")
    for name, gradient in formula.gradient(["x", "y", "z"]).items():
        found = np.broadcast_to(gradient.numpy("xyz")(*POINTS.values()), 10)
        coarse, fine = (slope(formula, name, POINTS, h) for h in (2e-4, 1e-4))
        wanted = fine + (fine - coarse) / 3  # Richardson: the error of order h^2 cancels
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6 * (1 + np.abs(formula(**POINTS)).max()))


@given(expressions(SMOOTH + JOINED + CORNERED + DISCRETE))
@settings(max_examples=300)
def test_random_texts_parse_back_to_the_same_formula(text):
    formula = Formula(text)
    assert Formula(str(formula)) == formula
    for gradient in formula.gradient(["x", "y"], seed="g").values():
        assert Formula(str(gradient)) == gradient


@given(expressions(SMOOTH + JOINED + CORNERED + DISCRETE))
@settings(max_examples=100)
def test_random_formulas_keep_float32_and_their_value_when_names_are_substituted(text):
    formula = Formula(f"({text}) + 0 * (x + y + z)")
    x = {name: value.astype(np.float32) for name, value in POINTS.items()}
    assert formula(**x).dtype == np.float32
    swapped = formula.put(x="y", y="x")
    np.testing.assert_array_equal(swapped(**POINTS), formula(**{**POINTS, "x": POINTS["y"], "y": POINTS["x"]}))


@needsCompiler
@given(st.lists(expressions(SMOOTH + JOINED + CORNERED), min_size=12, max_size=12))
@settings(max_examples=8)
def test_random_cuda_texts_compute_in_c_what_numpy_computes(tmp_path_factory, texts):
    formulas = [Formula(f"({text}) + 0 * (x + y + z)") for text in texts]
    formulas += [f.derivative("x") for f in formulas]
    formulas = [f for f in formulas if f.names]
    for f, function in zip(formulas, compiled(formulas, tmp_path_factory.mktemp("c"))):
        values = [POINTS[name] for name in f.names]
        np.testing.assert_allclose(function(*values), f.numpy()(*values), rtol=1e-9, atol=1e-9, err_msg=str(f))
