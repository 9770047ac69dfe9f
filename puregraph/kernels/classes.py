"""Classes: labels, checked once, before anything is indexed with them."""

import numpy as np

from puregraph.errors import DataError
from puregraph.kernel import kernel


@kernel
def classIndex(labels, classes, ignored=None):
    """The labels as int64, with -1 for those that are ignored.

    Shapes    labels (any) -> index of that shape
    Raises    DataError for a label that is no class, or labels that are no whole numbers
    """
    if labels.dtype.kind not in "iub":
        raise DataError(f"wanted labels as whole numbers, got {labels.dtype}; convert them with .astype('int64')")
    index = labels.astype(np.int64)
    absent = index == ignored
    wrong = ((index < 0) | (index >= classes)) & ~absent
    if wrong.any():
        other = "" if ignored is None else f" (or {ignored}, ignored)"
        raise DataError(
            f"wanted labels from 0 to {classes - 1}{other} for {classes} classes, got label {int(index[wrong][0])}"
        )
    return np.where(absent, -1, index)


@classIndex.shape
def classIndex(labels, classes, ignored=None):
    """As the labels, in int64."""
    return labels.shape, np.dtype(np.int64)


@classIndex.device
def classIndex(labels, classes, ignored=None):
    """The same calls on CuPy arrays; the check waits for the GPU once."""
    return classIndex.reference(labels, classes, ignored)
