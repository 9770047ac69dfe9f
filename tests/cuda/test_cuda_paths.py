"""Sums over alignments and over paths of a transducer on a GPU: in the emulator, against the references."""

import numpy as np
import pytest
from launches import emulated, needsEmulator

from puregraph.ops.alignment.reference import alignments
from puregraph.ops.alignment.transducer import transductions
from puregraph.ops.reduction.reference import logSoftmax

pytestmark = needsEmulator
NEAR = {"float32": 2e-5, "float64": 1e-11}
SIZES = [(3, 11, 6, 4), (1, 1, 2, 1), (2, 40, 33, 17), (2, 7, 3, 0), (1, 300, 4, 140), (3, 2, 5, 6), (0, 4, 3, 2)]


def drawn(rng, kernel, dtype, n, time, classes, labels):
    """Logarithms that are far apart, repeated labels, blanks among them, every length."""
    blank = int(rng.integers(0, classes))
    shape = (n, time, classes) if kernel is alignments else (n, time, labels + 1, classes)
    logs = logSoftmax(8 * rng.standard_normal(shape), -1).astype(dtype)
    index, counts = rng.integers(0, classes, (n, labels)), rng.integers(0, labels + 1, n)
    for row, count in zip(index, counts):
        row[count:] = -1
    return logs, index, rng.integers(0, time + 1, n), counts, blank


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("kernel", [alignments, transductions], ids=str)
def test_they_are_those_of_the_reference(rng, kernel, size, dtype):
    if kernel is transductions and size[1] == 300:
        size = (1, 30, 4, 40)
    for _ in range(4):
        arguments = drawn(rng, kernel, dtype, *size)
        costs, chances = emulated(kernel, *arguments)
        logs, *others = arguments
        wantedCosts, wantedChances = kernel.reference(logs.astype(np.float64), *others)
        np.testing.assert_allclose(costs, wantedCosts, NEAR[dtype], NEAR[dtype])
        np.testing.assert_allclose(chances, wantedChances, 0, 50 * NEAR[dtype])


@pytest.mark.parametrize("kernel", [alignments, transductions], ids=str)
def test_whole_samples_and_repeats(rng, kernel):
    for _ in range(4):
        logs, index, lengths, counts, blank = drawn(rng, kernel, "float64", 4, 9, 4, 4)
        lengths[:], counts[:] = 9, 4
        index[index < 0] = 1
        index[0] = (blank + 1) % 4
        index[1] = blank
        found = emulated(kernel, logs, index, lengths, counts, blank)
        wanted = kernel.reference(logs, index, lengths, counts, blank)
        for one, other in zip(found, wanted):
            np.testing.assert_allclose(one, other, 1e-11, 1e-11)
        again = emulated(kernel, logs, index, lengths, counts, blank)
        assert all(np.array_equal(one, other) for one, other in zip(found, again))


@pytest.mark.parametrize("kernel", [alignments, transductions], ids=str)
def test_strided_arguments_are_packed(rng, kernel):
    logs, index, lengths, counts, blank = drawn(rng, kernel, "float32", 3, 5, 4, 3)
    gapped = [np.repeat(x, 2, axis=-1)[..., ::2] for x in (logs, index, lengths, counts)]
    for one, other in zip(emulated(kernel, *gapped, blank), emulated(kernel, logs, index, lengths, counts, blank)):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kernel", [alignments, transductions], ids=str)
def test_a_label_that_is_no_class_makes_the_cost_nan_and_lengths_are_kept_within_the_arrays(rng, kernel):
    logs, index, lengths, counts, blank = drawn(rng, kernel, "float32", 3, 8, 4, 2)
    lengths[:], counts[:], index[:] = (8, 99, 8), (2, 2, 99), 1 + blank % 3
    index[0, 1] = -2
    costs, _ = emulated(kernel, logs, index, lengths, counts, blank)
    assert np.isnan(costs[0])
    lengths, counts = np.minimum(lengths, 8), np.minimum(counts, 2)
    index[0, 1] = index[0, 0]
    wanted, _ = kernel.reference(logs, index, lengths, counts, blank)
    np.testing.assert_allclose(costs[1:], wanted[1:], 1e-5)


@pytest.mark.parametrize("kernel", [alignments, transductions], ids=str)
def test_logarithms_and_results_of_several_sizes(rng, kernel):
    for given, made in (("float16", "float32"), ("float32", "float16"), ("float64", "float32")):
        logs, *others = drawn(rng, kernel, given, 3, 9, 5, 3)
        found = emulated(kernel, logs, *others, strides=lambda shape, dtype, made=made: np.empty(shape, made))
        wanted = kernel.reference(logs.astype(np.float64), *others)
        for one, other in zip(found, wanted):
            np.testing.assert_allclose(one, other, 1e-3 if made == "float16" else 2e-5, 1e-3)


@pytest.mark.parametrize("kernel", [alignments, transductions], ids=str)
def test_integers_of_32_bits_are_left_to_others(rng, kernel):
    logs, index, lengths, counts, blank = drawn(rng, kernel, "float32", 3, 5, 4, 3)
    outs = [np.empty(*one) for one in kernel.shapeRule(logs, index, lengths, counts, blank)]
    launches = kernel.implementations["cuda"]
    assert launches(outs, logs, index.astype(np.int32), lengths, counts, blank) is NotImplemented
