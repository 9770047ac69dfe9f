"""Classes: labels, checked once, before anything is indexed with them."""

import numpy as np

from puregraph.cuda.axes import axesOf
from puregraph.cuda.launch import THREADS, Launch, spread, steps
from puregraph.cuda.source import defined, stored
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


@classIndex.cuda
def classIndex(index, labels, classes, ignored=None):
    """A thread a label. One that is no class becomes -2, from which costs are nan: nobody waits to raise."""
    if labels.dtype.kind not in "iub":
        return NotImplemented
    if not index.size:
        return []
    places = axesOf(index.shape, {"to": steps(index), "fromLabels": steps(labels)})
    names = {"I": stored(labels.dtype), "IS_IGNORED": "false" if ignored is None else "label == ignored"}
    text = defined(names) + places.defined("AXES") + INDEX
    sizes = (("long", index.size), ("long", classes), ("long", 0 if ignored is None else int(ignored)))
    slots = (("pointer", index), ("pointer", labels), *sizes, *places.slots)
    return [Launch("classIndex", text, "classIndex", slots, spread(index.size), (THREADS, 1, 1))]


INDEX = """
extern "C" __global__ void classIndex(int64* __restrict__ index, const I* __restrict__ labels, int64 count,
                                      int64 classes, int64 ignored, AXES_PARAMETERS) {
  for (AXES_COUNTER i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    AXES_OFFSETS
    const int64 label = labels[fromLabels];
    index[to] = IS_IGNORED ? -1 : label < 0 || label >= classes ? -2 : label;
  }
}
"""


@classIndex.device
def classIndex(labels, classes, ignored=None):
    """The same calls on CuPy arrays; the check waits for the GPU once."""
    return classIndex.reference(labels, classes, ignored)
