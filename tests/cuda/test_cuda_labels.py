"""Labels, lengths and diagonals on a GPU: in the emulator, against the references."""

import numpy as np
import pytest
from launches import emulated, needsEmulator, poison, runAll

from puregraph.ops.gather.labels import classIndex
from puregraph.ops.product.einsum import ontoDiagonal
from puregraph.ops.recurrent.reference import alive
from puregraph.ops.reduction.entropy import entropyGrad, ofScores

pytestmark = needsEmulator


@pytest.mark.parametrize(("dtype", "ignored"), [("i8", 4), ("u1", None)])
def test_labels_become_indices(rng, dtype, ignored):
    labels = rng.integers(0, 9, (31, 33)).astype(dtype)[::2, 3:]
    wanted = classIndex.reference(labels, 9, ignored)
    np.testing.assert_array_equal(emulated(classIndex, labels, 9, ignored), wanted)


def test_a_label_that_is_no_class_is_marked():
    assert emulated(classIndex, np.array([0, 3, -7, -100, 2, 2**40]), 3, -100).tolist() == [0, -2, -2, -1, 2, -2]
    assert emulated(classIndex, np.zeros(0, "i8"), 3).shape == (0,)
    assert classIndex.implementations["cuda"](np.empty(1, "i8"), np.zeros(1), 3) is NotImplemented


@pytest.mark.parametrize("count", [1, 33])
def test_moments_within_lengths(rng, count):
    lengths = rng.integers(0, count + 1, 257)
    np.testing.assert_array_equal(emulated(alive, lengths, count), alive.reference(lengths, count))
    np.testing.assert_array_equal(emulated(alive, lengths[::3], count), alive.reference(lengths[::3], count))
    assert emulated(alive, lengths[:0], count).shape == (0, count)


@pytest.mark.parametrize(
    ("letters", "values", "shape", "dtype"),
    [
        ("ii", (33,), (33, 33), "f4"),
        ("ii", (1,), (5, 5), "f4"),
        ("iji", (4, 7), (4, 7, 4), "f2"),
        ("kiik", (3, 1), (3, 5, 5, 3), "f8"),
    ],
)
def test_values_go_to_diagonals(rng, letters, values, shape, dtype):
    values = rng.standard_normal(values).astype(dtype)
    wanted = ontoDiagonal.reference(values, letters, shape)
    np.testing.assert_array_equal(emulated(ontoDiagonal, values, letters, shape), wanted)
    if values.ndim > 1:
        found = emulated(ontoDiagonal, np.asfortranarray(values), letters, shape)
        np.testing.assert_array_equal(found, wanted)


CLOSE = {"float64": 1e-14, "float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}


def scored(rng, *shape):
    """Scores, of which some are far from the others, with their softmax, weights, classes and a scale."""
    x = rng.standard_normal(shape) * rng.choice([1.0, 20.0], (shape[0], *(1 for _ in shape[1:])))
    peak = x.max(axis=1, keepdims=True)
    total = np.exp(x - peak).sum(axis=1, keepdims=True)
    index = rng.integers(-1, shape[1], (shape[0], *shape[2:]))
    weight = (index >= 0) * rng.uniform(0.5, 2.0, index.shape)
    return x, peak, total, weight, index, np.array(0.25)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("shape", [(33, 7), (5, 257), (3, 31, 2, 5)], ids=str)
def test_the_gradient_of_a_cross_entropy_needs_no_probabilities(rng, shape, dtype):
    x, peak, total, weight, index, scale = scored(rng, *shape)
    wide, half = np.float64 if dtype == "float64" else np.float32, dtypeOf(dtype)
    wanted = entropyGrad.reference(np.exp(x - peak) / total, weight, index, scale)
    p, x = (np.exp(x - peak) / total).astype(wide), x.astype(half)
    peak, total, weight, scale = (each.astype(wide) for each in (peak, total, weight, scale))
    np.testing.assert_allclose(emulated(entropyGrad, p, weight, index, scale), wanted, rtol=0, atol=CLOSE["float32"])
    peak = x.max(axis=1, keepdims=True).astype(wide)  # of the scores as they are stored
    total = np.exp(x.astype(wide) - peak).sum(axis=1, keepdims=True)
    wanted = entropyGrad.reference(np.exp(x.astype(np.float64) - peak) / total, weight, index, scale)
    turned = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    for lies in (x, turned):
        dx = poison(np.empty_like(lies))
        runAll(ofScores(dx, lies, peak, total, weight, index, scale))
        np.testing.assert_allclose(dx.astype(np.float64), wanted, rtol=0, atol=CLOSE[dtype])


def dtypeOf(name):
    return np.dtype(pytest.importorskip("ml_dtypes").bfloat16 if name == "bfloat16" else name)
