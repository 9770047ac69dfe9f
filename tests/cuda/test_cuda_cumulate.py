"""Cumulative sums, products, maxima and log-sum-exps on a GPU: in the emulator, against the reference."""

import numpy as np
import pytest
from launches import emulated, needsEmulator
from orderings import AlongAxis

from puregraph.ops.reduction.cumulate import UFUNCS, cumulate

pytestmark = [needsEmulator, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
NEAR = {"float16": 5e-3, "float32": 1e-4, "float64": 1e-12}


@pytest.mark.parametrize("kind", UFUNCS)
@pytest.mark.parametrize("dtype", [*NEAR, "int8", "int32", "int64"])
def test_any_layout_and_axis(kind, dtype):
    if kind == "logSumExp" and dtype not in NEAR:
        pytest.skip("of floats alone")
    for seed in range(6):
        drawn = AlongAxis([seed, 5], (1, 2, 3, 33, 70, 300), 4000)
        x, exclusive, reverse = drawn.laidOut(drawn.values(dtype)), drawn.isOn(), drawn.isOn()
        found = emulated(cumulate, x, drawn.axis, kind, exclusive, reverse)
        wanted = cumulate.reference(x, drawn.axis, kind, exclusive, reverse)
        near = 0 if kind == "maximum" else NEAR.get(dtype, 0)
        np.testing.assert_allclose(found, wanted, near, 10 * near, err_msg=f"{x.shape} {drawn.axis}")


@pytest.mark.parametrize(("shape", "axis"), [((2, 3000), 1), ((33, 2000), 0), ((5, 2000, 3), 0), ((1, 1), 0)], ids=str)
def test_long_lines_and_many(rng, shape, axis):
    x = rng.standard_normal(shape)
    for exclusive in (False, True):
        wanted = cumulate.reference(x, axis, "sum", exclusive)
        np.testing.assert_allclose(emulated(cumulate, x, axis, "sum", exclusive), wanted, 1e-12, 1e-11)


def test_of_nothing():
    for shape in ((0, 3), (3, 0)):
        assert emulated(cumulate, np.zeros(shape), 0).shape == shape


def test_what_begins_with_a_zero_keeps_its_sign():
    for count in (3, 40):
        assert np.signbit(emulated(cumulate, np.full(count, -0.0), 0)).all()
