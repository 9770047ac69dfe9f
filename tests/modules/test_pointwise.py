"""Modules that are one formula: what a user writes in three lines, shapes that broadcast, and what is made of both."""

import inspect

import numpy as np
import pytest
from peers import ours

from puregraph import Graph, Input, Mean, Param, Pointwise, Sequential, Sum, checkModule
from puregraph.core.errors import FormulaError
from puregraph.modules.costs import PointwiseCost
from puregraph.ops.formula import Formula


class Mish(Pointwise):
    """Misra 2019, arXiv:1908.08681."""

    formula = "x * tanh(softplus(x))"


class Affine(Pointwise):
    """Two inputs and two parameters that broadcast."""

    formula = "where(x > 0, x, slope * x) * exp(scale) + t"

    def __init__(self, size=3, name=None):
        super().__init__(name)
        self.slope = Param((size,), 0.25)
        self.scale = Param((), 0.1)


def test_three_lines_make_a_module_that_passes_every_check():
    for module, shapes in [*Mish.examples(), *Affine.examples(), (Affine(), [(2, 3), (4, 2, 3)])]:
        checkModule(module, shapes)
    x = np.linspace(-3, 3, 7)
    np.testing.assert_allclose(Mish()(x), x * np.tanh(np.log1p(np.exp(x))), rtol=1e-15)


def test_its_documentation_is_written_from_the_formula():
    assert inspect.getdoc(Mish).splitlines() == [
        "Misra 2019, arXiv:1908.08681.",
        "",
        "y = x * tanh(softplus(x))",
        "dy/dx = tanh(softplus(x)) + x * (sigmoid(x) * (1 - tanh(softplus(x)) * tanh(softplus(x))))",
        "",
        "Shapes    x (any) -> y the same",
    ]
    assert "dy/dslope = where(x > 0, 0, x * exp(scale))" in Affine.__doc__
    assert "Shapes    x, slope, scale, t broadcast -> y their broadcast" in Affine.__doc__


def test_a_docstring_that_is_missing_complete_or_impossible():
    class Bare(Pointwise):
        formula = "x * x"

    class Complete(Pointwise):
        """y = x^2

        Shapes    x (any) -> y the same
        """

        formula = "x * x"

    class Wrong(Pointwise):
        """Never made."""

        formula = "x * nothing(x)"

    class Narrow(Bare):
        """As Bare."""

    assert Bare.__doc__ == "y = x * x\ndy/dx = 2 * x\n\nShapes    x (any) -> y the same"
    assert Complete.__doc__.startswith("y = x^2") and "dy/dx" not in Complete.__doc__
    assert Wrong.__doc__ == "Never made." and Narrow.__doc__ == "As Bare."


def test_constants_stand_in_the_class_by_name_and_in_the_module_by_value():
    class Sine(Pointwise):
        formula = "sin(omega * x)"

        def __init__(self, omega=30.0, name=None):
            super().__init__(name, omega=omega)

    assert "dy/dx = omega * cos(omega * x)" in Sine.__doc__ and "dy/domega" not in Sine.__doc__
    assert Sine(2.0).describe().splitlines()[:2] == ["y = sin(2.0 * x)", "dy/dx = 2.0 * cos(2.0 * x)"]
    long = Pointwise(formula="s = x * sigmoid(x); t = s * sigmoid(s); t * sigmoid(t)").describe()
    *parts, result = long.split("\n\n")[0].splitlines()
    assert result.startswith("dy/dx = ") and sum("y = " in line for line in parts) == 1
    assert all(len(line) < 200 for line in long.splitlines())


SHAPES = [
    [(), ()],
    [(), (2, 2)],
    [(1,), (4,)],
    [(2, 1, 3), (5, 1)],
    [(4, 1), (1,)],
    [(3,), (5, 1, 2, 3)],
    [(0, 3), (3,)],
    [(1, 3), (0, 1)],
    [(2, 0), ()],
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("text", ["a * tanh(b) + a", "floor(a) + 0 * b", "floor(a) * round(b)", "maximum(a, b)"])
def test_gradients_have_the_shapes_and_dtypes_of_their_inputs(text, shapes):
    module = Pointwise(formula=text)
    whole = np.broadcast_shapes(*shapes)
    for dtype in (np.float16, np.float32, np.float64):
        rng = np.random.default_rng(0)
        a, b = (np.asarray(rng.standard_normal(s), dtype) for s in shapes)
        y = module(a, b)
        assert (y.shape, y.dtype) == (whole, dtype) and module.dataShapeFrom(*shapes) == whole
        module.backward(np.ones_like(y))
        for grad, x in zip(module.grad, (a, b)):
            assert (grad.shape, grad.dtype) == (x.shape, dtype)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_what_was_broadcast_is_summed_back(shapes):
    rng = np.random.default_rng(1)
    a, b = (np.asarray(rng.standard_normal(s)) for s in shapes)
    seed = np.asarray(rng.standard_normal(np.broadcast_shapes(*shapes)))
    _, ga, gb = ours(Pointwise(formula="a * tanh(b) + a"), [a, b], seed)
    wide = [np.broadcast_to(x, seed.shape) for x in (a, b)]
    for got, full, shape in ((ga, np.tanh(wide[1]) + 1, shapes[0]), (gb, wide[0] / np.cosh(wide[1]) ** 2, shapes[1])):
        total = np.zeros(shape)
        for index in np.ndindex(seed.shape):  # one element at a time
            own = index[len(index) - len(shape) :]
            total[tuple(0 if n == 1 else i for i, n in zip(own, shape))] += (seed * full)[index]
        np.testing.assert_allclose(got, total, rtol=1e-12, atol=1e-13)
    checkModule(Pointwise(formula="a * tanh(b) + a"), shapes)


def test_a_formula_of_two_inputs_is_reduced_along_an_axis_by_mean_and_sum():
    x, t = Input(name="x").node(), Input(name="t").node()
    huber = Pointwise(formula="d = x - t; where(abs(d) < 1, 0.5 * d * d, abs(d) - 0.5)")
    net = Graph([x, t], Sum(axis=0)(Mean(axis=1)(huber(x, t))))
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((4, 5)) * 2, rng.standard_normal((4, 1))
    d = a - b
    assert net.dataShapeFrom([("N", 5), ("N", 1)]) == ()
    np.testing.assert_allclose(net([a, b]), np.where(abs(d) < 1, d * d / 2, abs(d) - 0.5).mean(axis=1).sum())
    net.backward()
    np.testing.assert_allclose(net.grad[0], np.clip(d, -1, 1) / 5)
    np.testing.assert_allclose(net.grad[1], -np.clip(d, -1, 1).sum(axis=1, keepdims=True) / 5)


def test_a_cost_is_the_mean_of_a_formula_of_any_number_of_elements():
    cost = PointwiseCost(formula="xlogy(target, target) - xlogy(target, x) + x - target")  # Poisson's deviance
    for shape in [(), (1,), (0, 3), (2, 3)]:
        for dtype in (np.float16, np.float32, np.float64):
            x = np.full(shape, 2, dtype)
            found = cost(x, np.zeros(shape, dtype))
            cost.backward()
            assert (found.shape, found.dtype, found) == ((), dtype, 2 if x.size else 0)
            assert (cost.grad[0].shape, cost.grad[0].dtype) == (shape, dtype)
            np.testing.assert_allclose(cost.grad[0], 1 / max(x.size, 1), rtol=1e-3)


def test_a_formula_in_c_has_the_preamble_that_it_needs():
    """Activations of special functions are whole in the text for the GPU too."""
    for text in ("lgamma(x) * digamma(x)", "iv(0, x) - ndtri(sigmoid(x))"):
        f = Formula(text).derivative("x")
        called = f.cuda()
        for name in ("digamma", "polygamma", "ive"):
            assert (f"{name}(" in called) <= (f"T {name}(" in f.preamble())


def test_modules_of_one_formula_chain_as_any_other():
    net = Sequential(Mish(), Pointwise(formula="logsigmoid(x) + x"), Mish())
    x = np.linspace(-2, 2, 9)
    y = net(x)
    net.backward(np.ones(9))
    chain = Formula(Mish.formula).put(x=Formula("logsigmoid(x) + x")).put(x=Mish.formula)
    np.testing.assert_allclose(y, chain(x=x), rtol=1e-13)
    np.testing.assert_allclose(net.grad, chain.derivative("x")(x=x), rtol=1e-12)


def test_a_formula_that_was_given_as_the_name_is_asked_for():
    with pytest.raises(FormulaError, match=r"wanted a formula, as in Pointwise\(formula=.*got none"):
        Pointwise("2 * x")


def test_a_number_kept_as_an_attribute_is_not_taken_for_an_input():
    class Snake(Pointwise):
        """y = x + sin^2(a x) / a"""

        formula = "x + sin(a * x) ** 2 / a"

        def __init__(self, a=1.0, name=None):
            super().__init__(name)
            self.a = a

    with pytest.raises(FormulaError, match=r"Snake: 'a' of .* super\(\).__init__\(name, a=a\)"):
        Snake(2.0).dataShapeFrom((2, 3))
