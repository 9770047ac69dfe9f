"""Predicted and actual sequences of tokens, from texts, integers or scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.core import device
from puregraph.core.errors import DataError, show


def sequencesFrom(prediction: Any, target: Any, metric: Any) -> tuple[list[Any], list[Any]]:
    """Return (predicted, actual): a sequence of the units of `metric.divided` for each sample.

    Raises    DataError for different numbers of samples, a text in place of a list, or arrays of other shapes
    """
    predicted = listed(prediction, metric, "predictions", metric.axis)
    actual = listed(target, metric, "targets", None)
    needEqual(len(predicted), len(actual), metric.name)
    return [metric.divided(x) for x in predicted], [metric.divided(x) for x in actual]


def needEqual(predicted: int, actual: int, name: str) -> None:
    """Check that there are as many predictions as targets."""
    if predicted != actual:
        raise DataError(f"{name}: wanted as many predictions as targets, got {predicted} and {actual}")


def listed(values: Any, metric: Any, what: str, axis: int | None) -> list[Any]:
    """Return a text or list of integers for each sample; from scores, if there is an axis of classes."""
    if isinstance(values, str):
        raise DataError(f"{metric.name}: wanted {what} as a list of texts, got one text; write [text]")
    if isinstance(values, (list, tuple)):
        return [x if isinstance(x, str) else tokensIn(arrayOf(x), metric, what) for x in values]
    array = device.toHost(values)
    if axis is None or array.ndim == 2 and array.dtype.kind in "iu":
        if array.ndim != 2:
            raise DataError(f"{metric.name}: wanted {what} as integers (n, t), got shape {show(array.shape)}")
        return [tokensIn(row, metric, what) for row in array]
    if array.ndim != 3:
        wanted = "integers (n, t) or scores (n, t, classes)"
        raise DataError(f"{metric.name}: wanted {what} as {wanted}, got {array.dtype} of shape {show(array.shape)}")
    best = array.argmax(axis)
    return [tokensIn(merged(row, metric.blank), metric, what) for row in best]


def arrayOf(tokens: Any) -> np.ndarray:
    """Return a list, or an array on the host or a GPU, as an array of numpy."""
    return device.toHost(tokens) if hasattr(tokens, "shape") else np.asarray(tokens)


def tokensIn(row: np.ndarray, metric: Any, what: str) -> list[int]:
    """Return the integers of a sample without padding."""
    if row.ndim != 1 or row.size and row.dtype.kind not in "iu":
        raise DataError(f"{metric.name}: wanted {what} of texts or integers, got {row.dtype} of shape {row.shape}")
    return [token for token in row.tolist() if token != metric.ignore]


def merged(row: np.ndarray, blank: int | None) -> np.ndarray:
    """Return the labels of CTC's best alignment: repeated classes once, without blanks; the row if blank is None."""
    if blank is None:
        return row
    isNew = np.concatenate([[True], row[1:] != row[:-1]]) if len(row) else np.zeros(0, bool)
    return row[isNew & (row != blank)]
