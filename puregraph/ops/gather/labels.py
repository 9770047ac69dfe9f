"""Class labels, and targets from 0 to 1, checked once, before anything is computed from them."""

import numpy as np

from puregraph.core.errors import DataError
from puregraph.core.tracer import tracerOf
from puregraph.ops.cuda.nests.axes import axesOf
from puregraph.ops.cuda.runtime.launch import THREADS, Launch, gridFor, stridesOf
from puregraph.ops.cuda.runtime.preprocess import defined, stored
from puregraph.ops.kernel import kernel


@kernel
def classIndex(labels, classes, ignored=None):
    """The labels as int64, with -1 for ignored ones.

    Shapes    labels (any) -> index of that shape
    Raises    DataError for a label that is not a class, or labels that are not integers
    """
    if labels.dtype.kind not in "iub":
        raise DataError(f"wanted labels as whole numbers, got {labels.dtype}; convert them with .astype('int64')")
    fault = labelFault(labels, classes, ignored)
    if fault:
        raise DataError(fault)
    index = labels.astype(np.int64)
    return index if ignored is None else np.where(index == ignored, -1, index)


def labelFault(labels, classes, ignored=None, option="ignoreIndex"):
    """A message about labels out of range, with the position of the first; empty if all are classes or ignored.

    `option` is the argument by which the caller leaves a label out.
    """
    wrong = (labels < 0) | (labels >= classes)
    if ignored is not None:
        wrong &= labels != ignored
    if not wrong.any():
        return ""
    first = tuple(np.argwhere(wrong)[0].tolist())
    label, other = int(labels[first]), "" if ignored is None else f" (or {ignored}, ignored)"
    wanted = f"wanted labels from 0 to {classes - 1}{other} for {classes} classes, got label {label}{positionOf(first)}"
    return f"{wanted}; {labelHint(np.unique(labels).tolist(), label, classes, option)}"


def positionOf(index):
    """The sample of an element of a batch, and its position in that, in words."""
    if not index:
        return ""
    position = f" at position {index[1] if len(index) == 2 else index[1:]}" if index[1:] else ""
    return f" for sample {index[0]} of the batch{position}"


def labelHint(present, label, classes, option):
    """A hint, from all distinct labels and the first wrong one."""
    if present == [-1, 1]:
        return "classes are counted from 0: give (labels + 1) // 2 in place of -1 and 1"
    if present[0] >= 1 and present[-1] == classes:
        return "classes are counted from 0: give labels - 1"
    if label < 0 or label >= 255:
        return f"if it says that there is no class, leave such positions out with {option}={label}"
    return f"the network gives {classes} classes: make its output wider, or look at the labels"


@classIndex.shape
def classIndex(labels, classes, ignored=None):
    """Shape of the labels, in int64."""
    return labels.shape, np.dtype(np.int64)


@classIndex.cuda
def classIndex(index, labels, classes, ignored=None):
    """A thread per label. A label out of range becomes -2, which makes costs nan: no kernel can raise."""
    if labels.dtype.kind not in "iub":
        return NotImplemented
    if not index.size:
        return []
    axes = axesOf(index.shape, {"to": stridesOf(index), "fromLabels": stridesOf(labels)})
    names = {"I": stored(labels.dtype), "IS_IGNORED": "false" if ignored is None else "label == ignored"}
    text = defined(names) + axes.defined("AXES") + INDEX
    sizes = (("long", index.size), ("long", classes), ("long", 0 if ignored is None else int(ignored)))
    slots = (("pointer", index), ("pointer", labels), *sizes, *axes.slots)
    return [Launch("classIndex", text, "classIndex", slots, gridFor(index.size), (THREADS, 1, 1))]


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


@classIndex.bounds
def classIndex(labels, classes, ignored=None):
    """Each label is a class, or the ignored label."""
    return labels, 0, classes, None if ignored is None else int(ignored)


@kernel
def fractions(target):
    """The targets as they are.

    Raises    DataError for one that is not from 0 to 1, with its position
    """
    wrong = ~((target >= 0) & (target <= 1))
    if wrong.any():
        first = tuple(np.argwhere(wrong)[0].tolist())
        isSigned = set(np.unique(target).tolist()) == {-1, 1}
        other = "scale them, or take another cost, such as MSE"
        hint = "give (target + 1) / 2 in place of -1 and 1" if isSigned else other
        raise DataError(f"wanted targets from 0 to 1, got {target[first]}{positionOf(first)}; {hint}")
    return target


@fractions.device
def fractions(target):
    """The same calls on CuPy arrays; the check waits for the GPU once."""
    return fractions.reference(target)


def checkFractions(target):
    """Refuse targets that are not from 0 to 1; a tracer has no values to check."""
    if tracerOf((target,)) is None:
        fractions(target)
