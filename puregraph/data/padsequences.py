"""Padding: sequences of different lengths as one array, with the length of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from puregraph.core import device
from puregraph.core.arguments import Scalar, Size, takes
from puregraph.core.base.dtype import isNumeric
from puregraph.core.errors import DataError, show


@takes(length=Size | None, value=Scalar)
def padded(sequences: Sequence[object], length: int | None = None, value: float = 0) -> tuple[np.ndarray, np.ndarray]:
    """Stack sequences of different lengths, padded with `value` to `length` time steps; returns (array, lengths).

    `length`  time steps of the array; by default those of the longest sequence. A network compiled for one length
              needs the same length for new data.

    `LSTM`, `GRU` and `RNN` take the lengths as `lengths=`; `value` then changes no result.

    Shapes    sequence i (t_i, ...) -> array (n, length, ...), in their common dtype; lengths (n,) of int64
    Raises    DataError naming the first sequence that is empty, longer than `length`, no array, or of another shape
    """
    try:
        items = list(sequences)
    except TypeError:
        raise DataError(f"padded: wanted a list of sequences, got {type(sequences).__name__}") from None
    arrays = [arrayFrom(sequence, i) for i, sequence in enumerate(items)]
    if not arrays:
        raise DataError("padded: wanted at least one sequence, got none")
    inner = arrays[0].shape[1:]
    lengths = np.array([len(array) for array in arrays], np.int64)
    most = int(lengths.max()) if length is None else length
    for i, array in enumerate(arrays):
        if array.shape[1:] != inner:
            raise DataError(
                f"padded: sequence {i}: wanted shape {show(('t', *inner))} as sequence 0, got {show(array.shape)}"
            )
        if len(array) == 0:
            raise DataError(f"padded: sequence {i}: wanted at least one time step, got none")
        if len(array) > most:
            raise DataError(
                f"padded: sequence {i}: wanted at most {most} time steps, got {len(array)}; cut it: sequence[:{most}]"
            )
    stacked = np.full((len(arrays), most, *inner), value, np.result_type(*{array.dtype for array in arrays}))
    for row, array in zip(stacked, arrays, strict=True):
        row[: len(array)] = array
    return stacked, lengths


def arrayFrom(sequence: Any, i: int) -> np.ndarray:
    """A sequence as an array of numbers with an axis for time."""
    try:
        array = np.asarray(device.toHost(sequence) if device.isDeviceArray(sequence) else sequence)
    except ValueError as error:
        raise DataError(f"padded: sequence {i}: wanted an array (t, ...), got values that make none: {error}") from None
    if array.ndim == 0 or not isNumeric(array.dtype):
        raise DataError(
            f"padded: sequence {i}: wanted numbers along time, got shape {show(array.shape)} of {array.dtype}"
        )
    return array
