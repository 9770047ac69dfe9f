"""Padding: sequences of different lengths as one array, and what recurrent modules make of it."""

import numpy as np
import pytest

from puregraph import LSTM, Graph, Input
from puregraph.core.errors import DataError
from puregraph.data import padded


def test_sequences_are_padded_behind_with_their_lengths():
    array, lengths = padded([[1, 2, 3], [4], np.array([5, 6])])
    assert array.tolist() == [[1, 2, 3], [4, 0, 0], [5, 6, 0]] and lengths.tolist() == [3, 1, 2]
    assert array.dtype == lengths.dtype == np.int64


def test_other_axes_dtypes_lengths_and_values_are_kept():
    array, lengths = padded([np.ones((2, 3), "f4"), np.ones((1, 3), "f4")], length=4, value=-1)
    assert array.shape == (2, 4, 3) and array.dtype == np.float32
    assert array[:, :, 0].tolist() == [[1, 1, -1, -1], [1, -1, -1, -1]] and lengths.tolist() == [2, 1]


def test_an_lstm_with_lengths_gives_what_it_gives_of_each_sequence_alone(rng):
    sequences = [rng.standard_normal((n, 4)).astype("f4") for n in (7, 1, 5)]
    array, lengths = padded(sequences, length=9, value=1e3)
    lstm = LSTM(4, 6, outputs="h")
    steps, count = Input(name="steps").node(), Input(name="lengths", dtype=np.int64).node()
    together = Graph([steps, count], lstm.node(steps, lengths=count))(array, lengths)
    alone = np.concatenate([np.asarray(lstm(x[None])) for x in sequences])
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "sequences, length, wanted",
    [
        ([], None, "wanted at least one sequence"),
        ([[1], []], None, "sequence 1: wanted at least one time step, got none"),
        ([[1], [1, 2, 3]], 2, "sequence 1: wanted at most 2 time steps, got 3; cut it: sequence[:2]"),
        ([np.ones((2, 3)), np.ones((2, 4))], None, "sequence 1: wanted shape (t, 3) as sequence 0, got (2, 4)"),
        ([[1], 3], None, "sequence 1: wanted numbers along time, got shape ()"),
        (["text"], None, "sequence 0: wanted numbers along time"),
        ([[1], [[1], [1, 2]]], None, "sequence 1: wanted an array (t, ...)"),
    ],
)
def test_a_sequence_that_does_not_fit_is_named(sequences, length, wanted):
    with pytest.raises(DataError) as found:
        padded(sequences, length)
    assert wanted in str(found.value)
