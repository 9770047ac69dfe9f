"""Activations: known values, PyTorch's values and derivatives, kinks, extremes, and what they refuse."""

import copy
import math
import pickle

import numpy as np
import pytest
from peers import compare, ours

from puregraph.core.errors import FormulaError, ShapeError
from puregraph.graph.pointwise import Pointwise
from puregraph.modules import (
    Celu,
    Clip,
    Elu,
    Gelu,
    HardShrink,
    HardSigmoid,
    LeakyRelu,
    LogSigmoid,
    Mish,
    Power,
    QuickGelu,
    Relu,
    Relu6,
    Selu,
    Sigmoid,
    SoftPlus,
    SoftShrink,
    SoftSign,
    SquaredRelu,
    Swish,
    Tanh,
    TanhShrink,
    Threshold,
)

ALL = [Relu(), LeakyRelu(), Elu(), Sigmoid(), Tanh(), Gelu(), Gelu(True), SoftPlus(), Swish(), Swish(0.3), Clip()]
WIDE = np.array([0.0, 1e-3, -1e-3, 3, -3, 20, -20, 88, -88, 1e4, -1e4])


def at(module, *points):
    """Values and derivatives at points."""
    x = np.array(points, np.float64)
    return ours(module, [x], np.ones_like(x))


@pytest.mark.parametrize(
    ("module", "x", "y", "d"),
    [
        (Relu(), 2.0, 2.0, 1.0),
        (Relu(), -2.0, 0.0, 0.0),
        (Relu(), 0.0, 0.0, 0.0),
        (LeakyRelu(), -2.0, -0.02, 0.01),
        (LeakyRelu(0.2), 0.0, 0.0, 0.2),
        (Elu(), -1.0, math.expm1(-1), math.exp(-1)),
        (Elu(0.5), 0.0, 0.0, 0.5),
        (Elu(2.0), 3.0, 3.0, 1.0),
        (Sigmoid(), 0.0, 0.5, 0.25),
        (Sigmoid(), math.log(3), 0.75, 0.1875),
        (Tanh(), math.atanh(0.5), 0.5, 0.75),
        (SoftPlus(), 0.0, math.log(2), 0.5),
        (SoftPlus(), 100.0, 100.0, 1.0),
        (SoftPlus(), -100.0, math.exp(-100), math.exp(-100)),
        (Swish(), 0.0, 0.0, 0.5),
        (Swish(2.0), 1.0, 1 / (1 + math.exp(-2)), None),
        (Clip(), 7.0, 6.0, 0.0),
        (Clip(), 6.0, 6.0, 1.0),
        (Clip(), 0.0, 0.0, 1.0),
        (Clip(-1, 1), 0.5, 0.5, 1.0),
        (Relu6(), 6.0, 6.0, 0.0),
        (Relu6(), 0.0, 0.0, 0.0),
        (Relu6(), 5.0, 5.0, 1.0),
        (HardSigmoid(), -3.0, 0.0, 0.0),
        (HardSigmoid(), 1.5, 0.75, 1 / 6),
        (HardSigmoid(), 3.0, 1.0, 0.0),
        (HardShrink(), 0.5, 0.0, 0.0),
        (HardShrink(), -0.75, -0.75, 1.0),
        (SoftShrink(0.25), -1.0, -0.75, 1.0),
        (SoftShrink(0.25), 0.25, 0.0, 0.0),
        (Threshold(2.0, 5.0), 2.0, 5.0, 0.0),
        (Threshold(2.0, 5.0), 2.5, 2.5, 1.0),
        (TanhShrink(), 1e-3, 1e-3 - math.tanh(1e-3), math.tanh(1e-3) ** 2),
        (SoftSign(), -3.0, -0.75, 1 / 16),
        (LogSigmoid(), -100.0, -100.0, 1.0),
        (SquaredRelu(), 3.0, 9.0, 6.0),
        (Selu(), 1.0, 1.0507009873554805, 1.0507009873554805),
        (Celu(2.0), -2.0, 2 * math.expm1(-1), math.exp(-1)),
        (SoftPlus(2.0), 0.0, math.log(2) / 2, 0.5),
        (Mish(), 0.0, 0.0, 0.6),
        (QuickGelu(), 0.0, 0.0, 0.5),
        (Gelu(), 1.0, 0.8413447460685429, 0.8413447460685429 + math.exp(-0.5) / math.sqrt(2 * math.pi)),
        (Gelu(), -1.0, -0.15865525393145707, 0.15865525393145707 - math.exp(-0.5) / math.sqrt(2 * math.pi)),
        (Power(3), -2.0, -8.0, 12.0),
        (Power(0.5), 4.0, 2.0, 0.25),
        (Power(-1), 2.0, 0.5, -0.25),
    ],
    ids=str,
)
def test_known_values(module, x, y, d):
    value, derivative = at(module, x)
    assert value[0] == pytest.approx(y, rel=1e-13, abs=0)
    assert d is None or derivative[0] == pytest.approx(d, rel=1e-13, abs=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("module", ALL, ids=str)
def test_far_out_everything_stays_finite(module, dtype):
    for result in ours(module, [WIDE], np.ones_like(WIDE), dtype):
        assert result.dtype == dtype and np.isfinite(result).all()


@pytest.mark.parametrize("module", ALL, ids=str)
def test_half_precision_is_computed_in_single_and_rounded_once(module):
    x = np.linspace(-6, 6, 101).astype(np.float16)
    wanted = module(x.astype(np.float32)).astype(np.float16)
    assert module(x).dtype == np.float16 and np.array_equal(module(x), wanted)


def test_gelu_keeps_its_digits_in_the_left_tail():
    (y, d), x = at(Gelu(), -10.0), -10.0
    tail = 0.5 * math.erfc(10 / math.sqrt(2))
    assert y[0] == pytest.approx(x * tail, rel=1e-12)
    assert d[0] == pytest.approx(tail + x * math.exp(-50) / math.sqrt(2 * math.pi), rel=1e-12)


def test_the_approximate_gelu_is_near_the_exact_one():
    x = np.linspace(-5, 5, 1001)
    gap = np.abs(Gelu()(x) - Gelu(approximate=True)(x)).max()
    assert 1e-4 < gap < 5e-4


def torchRules():
    import torch
    from torch.nn import functional as F

    return {
        "relu": (Relu(), F.relu),
        "leaky": (LeakyRelu(0.1), lambda x: F.leaky_relu(x, 0.1)),
        "elu": (Elu(0.7), lambda x: F.elu(x, 0.7)),
        "sigmoid": (Sigmoid(), torch.sigmoid),
        "tanh": (Tanh(), torch.tanh),
        "gelu": (Gelu(), F.gelu),
        "gelutanh": (Gelu(approximate=True), lambda x: F.gelu(x, approximate="tanh")),
        "softplus": (SoftPlus(), lambda x: F.softplus(x, threshold=1000)),
        "silu": (Swish(), F.silu),
        "swish": (Swish(1.7), lambda x: x * torch.sigmoid(1.7 * x)),
        "clip": (Clip(-0.5, 0.75), lambda x: torch.clamp(x, -0.5, 0.75)),
        "power": (Power(3), lambda x: x**3),
    }


@pytest.mark.peers
@pytest.mark.parametrize("name", "relu leaky elu sigmoid tanh gelu gelutanh softplus silu swish clip power".split())
def test_values_and_derivatives_are_those_of_torch(name, rng):
    module, rule = torchRules()[name]
    compare(module, rule, rng, np.concatenate([3 * rng.standard_normal(500), [0.0, -0.5, 0.75, -20, 20]]))


@pytest.mark.parametrize(
    ("module", "reads"),
    [(Sigmoid(), ("y",)), (Tanh(), ("y",)), (Relu(), ("x",)), (Pointwise(formula="x + t"), ()), (Swish(), ("x",))],
    ids=str,
)
def test_a_gradient_reads_no_more_than_it_must(module, reads):
    assert module.reads == reads


# Pointwise itself ---------------------------------------------------------------------------------------------------


def test_a_formula_is_a_module_without_a_class():
    module = Pointwise(formula="x * sigmoid(beta * x)", beta=1.5)
    x = np.array([[-2.0, 0.5]])
    assert module.arguments == ("x",) and module.dataShapeFrom(("N", 2)) == ("N", 2)
    assert np.array_equal(module(x), Swish(1.5)(x))
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert repr(twin) == repr(module) == "Pointwise(formula='x * sigmoid(beta * x)', beta=1.5)"
        assert np.array_equal(twin(x), module(x))


def test_inputs_come_in_the_order_of_the_formula_or_of_the_class():
    class Ordered(Pointwise):
        formula = "t - x"
        inputs = ("x", "t")

    assert Pointwise(formula="t - x").arguments == ("t", "x")
    assert Ordered().arguments == ("x", "t")
    assert Ordered()(np.array([1.0]), np.array([5.0])).tolist() == [4.0]


def test_several_inputs_broadcast_and_their_gradients_are_summed_back():
    module = Pointwise(formula="a * b + floor(a)")
    a, b, g = np.array([[1.5], [2.0]]), np.array([3.0, 4.0, 5.0]), np.arange(6.0).reshape(2, 3)
    y, ga, gb = ours(module, [a, b], g)
    assert y.tolist() == [[5.5, 7.0, 8.5], [8.0, 10.0, 12.0]]
    assert ga.tolist() == (g @ b[:, None]).tolist() and gb.tolist() == (a * g).sum(axis=0).tolist()


def test_a_derivative_of_zero_has_the_shape_of_its_input():
    y, gx = ours(Pointwise(formula="floor(x)"), [np.array([1.5, -0.5])], np.ones(2))
    assert y.tolist() == [1, -1] and gx.tolist() == [0, 0]


def test_a_constant_must_leave_something_of_the_inputs():
    with pytest.raises(FormulaError, match=r"x \*\* exponent with .*0.* has no x left"):
        Power(0)


def test_shapes_that_do_not_broadcast_are_refused():
    with pytest.raises(ShapeError, match=r"wanted shapes that broadcast, got \[\(2, 3\), \(4,\)\]"):
        Pointwise(formula="a + b").dataShapeFrom((2, 3), (4,))


def test_bounds_in_the_wrong_order_are_refused():
    with pytest.raises(ValueError, match="wanted low <= high, got 1 and 0"):
        Clip(1, 0)
