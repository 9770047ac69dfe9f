"""How many digits functions, sums and kernels keep, eager and compiled, next to float64: docs/accuracy.md in small."""

import sys

import numpy as np
import pytest
from natively import needsNative
from source import ROOT

if str(ROOT / "scripts") not in sys.path:
    sys.path.append(str(ROOT / "scripts"))

import accuracy

import puregraph as pg
from puregraph.ops.formula import Formula
from puregraph.ops.reduction.reference import average, total

EAGER, COMPILED = 4.1, 1.5  # ulp
LOST = {"logaddexp": 2e3, "logndtr": 400, "ndtr": 400, "gelu": 200, "gelu by tanh": 300, "mish": 4, "swish": 4}
LOST |= {"sinc": np.inf, "iv": 4, "sigmoid": 2.5, "rsqrt": 2, "softplus": 2, "logsigmoid": 2, "hardswish": 2.5}
LOST |= {"xlogy": 2, "xlog1py": 2}
# the largest error on processors with vectors of 256 and of 512 bits, with room for others
CONVOLUTIONS = {"conv 3x3 64->64 @56": 5e-6, "conv 3x3 256->256 @14": 6e-6, "conv 3x3 512->512 @7": 6e-6}
CONVOLUTIONS |= {"conv 3x3/2 64->128 @56": 4e-6, "conv 5x5 32->48 @20": 3e-6, "conv 7x7/2 3->64 @64": 3e-6}


@needsNative
@pytest.mark.parametrize("name", accuracy.formulas())
def test_a_function_keeps_its_digits(name):
    row = accuracy.function(name, accuracy.formulas()[name], 800)
    assert not row.eager.wrong and not row.compiled.wrong
    assert row.eager.largest <= max(EAGER, LOST.get(name, 0))
    assert row.compiled.largest <= LOST.get(name, COMPILED)


def test_the_tail_of_gelu_is_not_lost_in_a_difference():
    x = np.linspace(-9, -3, 1001, dtype=np.float32)
    for name in ("gelu", "gelu by tanh"):
        formula = Formula(accuracy.ACTIVATIONS[name])
        exact = formula(x=x.astype(np.float64))
        assert (np.abs(formula(x=x) - exact) <= 2e-5 * np.abs(exact)).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2, -2, (0, 1), (0, 2), (1, 2), (2, 0), (), None])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_sums_over_any_axis_are_as_exact_as_over_the_last(order, axis, keepdims, dtype):
    rng = np.random.default_rng(1)
    mean = 0.1 if dtype == np.float16 else 1.0  # whose sums are not to overflow
    x = (mean + rng.standard_normal((1200, 5, 67))).astype(dtype).transpose(order)
    for found, exact in (
        (total(x, axis, keepdims), x.sum(axis=axis, keepdims=keepdims, dtype=np.longdouble)),
        (average(x, axis, keepdims), x.mean(axis=axis, keepdims=keepdims, dtype=np.longdouble)),
    ):
        assert found.dtype == dtype and found.shape == exact.shape
        scale = np.sqrt(np.mean(exact**2))
        units = 50 if dtype == np.float64 else 4  # which has digits to spare, and keeps numpy's order
        assert np.abs(found - exact).max() <= units * float(np.finfo(dtype).eps) * scale


@pytest.mark.parametrize("rows", [31, 32, 33, 64, 1000, 1024, 1025, 33333])
def test_long_sums_of_any_length_are_exact_and_leave_their_argument_alone(rows):
    x = (1 + np.random.default_rng(2).standard_normal((rows, 4))).astype(np.float32)
    before = x.copy()
    exact = x.sum(axis=0, dtype=np.float64)
    for part in (x, x[::-1], np.asfortranarray(x)):
        assert np.abs(total(part, 0) - exact).max() <= 5e-7 * np.abs(exact).max()
    same = np.broadcast_to(x[:1], x.shape)  # whose rounding errors all have one sign
    assert np.abs(total(same, 0) - rows * x[0].astype(np.float64)).max() <= 3e-6 * rows * np.abs(x[0]).max()
    assert (x == before).all()


@pytest.mark.parametrize("name", [n for n in accuracy.cases() if n.startswith(("batchnorm (4096", "linear 2048"))])
def test_the_gradients_of_biases_and_scales_are_exact(name):
    for row in accuracy.kernel(name, accuracy.cases()[name]):
        if row.name.endswith(("dscale", "dbias", "db")):
            assert max(row.eager.largest, row.compiled.largest) <= 3e-6


@needsNative
@pytest.mark.parametrize("shape", [(32, 24, 784), (2, 24, 20000), (700, 24, 49), (2000, 24, 7), (1, 24, 60000)])
def test_compiled_sums_over_samples_and_positions_are_taken_in_short_chains(shape):
    x = (1 + np.random.default_rng(2).standard_normal(shape)).astype(np.float32)
    found = accuracy.compiledOf(pg.Sum((0, 2)), [x])[0]
    assert np.sqrt(np.mean((found / x.sum((0, 2), dtype=np.float64) - 1) ** 2)) <= 1e-7


@needsNative
@pytest.mark.parametrize(("name", "limits"), [("rnn", {"db": 1.3e-6, "dU": 3e-6}), ("gru", {"dd": 1.3e-6, "dU": 6e-6})])
def test_a_compiled_recurrent_layer_adds_its_inputs_and_its_state_in_chains_of_their_own(name, limits):
    name = f"{name} 96 -> 128, 40 time steps"
    rows = {row.name.split()[-1]: row.compiled for row in accuracy.kernel(name, accuracy.cases()[name])}
    assert {which: rows[which].largest for which, limit in limits.items() if rows[which].largest > limit} == {}


@needsNative
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_compiled_convolution_is_near_the_exact_sums(name):
    y, dx, *_ = accuracy.kernel(name, accuracy.cases()[name])
    assert max(y.compiled.largest, dx.compiled.largest) <= CONVOLUTIONS[name]
    assert max(y.compiled.mean, dx.compiled.mean) <= 6e-7


@pytest.mark.slow
@pytest.mark.peers
@needsNative
@pytest.mark.timeout(1800)
def test_nothing_is_further_off_than_twice_pytorch_without_a_reason():
    import torch

    rows = list(accuracy.measured(torch=torch))
    assert {row.name: row.faults for row in rows if "" in accuracy.reasonsFor(row)} == {}
