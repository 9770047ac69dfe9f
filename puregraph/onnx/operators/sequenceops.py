"""SequenceOps: sequences and optionals of known length and presence, which become ordinary values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph import modules
from puregraph.modules.reshaping import Squeeze, Unsqueeze
from puregraph.onnx.onnxsequence import OnnxSequence
from puregraph.onnx.opregistry import onnxOp

if TYPE_CHECKING:
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.onnxvalue import OnnxValue


def itemsOf(op: OnnxNode, sequence: OnnxValue | OnnxSequence) -> list[OnnxValue]:
    """The values of a sequence.

    Raises    GraphError for other values
    """
    if not isinstance(sequence, OnnxSequence) or sequence.isAbsent:
        op.refuse("wanted a sequence of known length, got something else")
    return list(sequence.items)


def positionOf(op: OnnxNode, position: OnnxValue, length: int) -> int:
    """A position in a sequence, counted from its start.

    Raises    GraphError for one that is outside, or comes with the data
    """
    index = int(np.ravel(op.known(position, "the position"))[0])
    if not -length <= index < length:
        op.refuse(f"wanted a position from {-length} to {length - 1}, got {index}")
    return index % length


@onnxOp("SequenceEmpty")
def sequenceEmpty(op: OnnxNode) -> OnnxSequence:
    """SequenceEmpty."""
    return OnnxSequence([])


@onnxOp("SequenceConstruct")
def sequenceConstruct(op: OnnxNode, *xs: OnnxValue) -> OnnxSequence:
    """SequenceConstruct."""
    return OnnxSequence(list(xs))


@onnxOp("SequenceLength")
def sequenceLength(op: OnnxNode, sequence: OnnxValue | OnnxSequence) -> OnnxValue:
    """SequenceLength."""
    return op.constant(np.array(len(itemsOf(op, sequence)), np.int64))


@onnxOp("SequenceAt")
def sequenceAt(op: OnnxNode, sequence: OnnxValue | OnnxSequence, position: OnnxValue) -> OnnxValue:
    """SequenceAt."""
    items = itemsOf(op, sequence)
    return items[positionOf(op, position, len(items))]


@onnxOp("SequenceInsert")
def sequenceInsert(
    op: OnnxNode, sequence: OnnxValue | OnnxSequence, x: OnnxValue, position: OnnxValue | None = None
) -> OnnxSequence:
    """SequenceInsert; at the end where no position is given."""
    items = itemsOf(op, sequence)
    index = len(items)
    if position is not None:
        index = int(np.ravel(op.known(position, "the position"))[0])
        if not -len(items) <= index <= len(items):
            op.refuse(f"wanted a position from {-len(items)} to {len(items)}, got {index}")
        index += len(items) if index < 0 else 0
    return OnnxSequence([*items[:index], x, *items[index:]])


@onnxOp("SequenceErase")
def sequenceErase(op: OnnxNode, sequence: OnnxValue | OnnxSequence, position: OnnxValue | None = None) -> OnnxSequence:
    """SequenceErase; the last one where no position is given."""
    items = itemsOf(op, sequence)
    if not items:
        op.refuse("wanted a sequence with something in it, got an empty one")
    del items[-1 if position is None else positionOf(op, position, len(items))]
    return OnnxSequence(items)


@onnxOp("SplitToSequence")
def splitToSequence(op: Any, x: OnnxValue, sizes: OnnxValue | None = None) -> OnnxSequence:
    """SplitToSequence; one number is the length of every part but the last."""
    axis = op.get("axis", 0)
    length: Any = x.shape[axis] if x.shape is not None else None
    if not isinstance(length, int) or not np.isscalar(length):
        op.refuse("the length of the split axis is known only with the data: give shapes= of the model's inputs")
    lengths = np.array(1) if sizes is None else op.known(sizes, "the lengths of parts")
    if lengths.ndim == 0:
        part = int(lengths)
        if part < 1:
            op.refuse(f"wanted parts of a length of at least 1, got {part}")
        op.builder.budget.spend("outputs", -(-length // part))
        lengths = [min(part, length - start) for start in range(0, length, part)]
    parts = op(modules.Split(axis, tuple(int(n) for n in lengths)), x) if len(lengths) else []
    parts = parts if isinstance(parts, list) else [parts]
    if sizes is None and not op.get("keepdims", 1):
        parts = [op(Squeeze((axis,)), part) for part in parts]
    return OnnxSequence(parts)


@onnxOp("ConcatFromSequence")
def concatFromSequence(op: OnnxNode, sequence: OnnxValue | OnnxSequence) -> OnnxValue:
    """ConcatFromSequence."""
    items, axis = itemsOf(op, sequence), op.get("axis")
    if not items:
        op.refuse("wanted a sequence with something in it, got an empty one")
    if op.get("new_axis", 0):
        items = [op(Unsqueeze((axis,)), item) for item in items]
    return op(modules.Concat(axis), *items)


@onnxOp("Optional")
def optional(op: OnnxNode, x: OnnxValue | OnnxSequence | None = None) -> OnnxValue | OnnxSequence:
    """Optional: its element, or an absent sequence if it is empty."""
    return x if x is not None else OnnxSequence([], isAbsent=True)


@onnxOp("OptionalHasElement")
def optionalHasElement(op: OnnxNode, x: OnnxValue | OnnxSequence | None = None) -> OnnxValue:
    """OptionalHasElement."""
    isEmpty = x is None or isinstance(x, OnnxSequence) and x.isAbsent
    return op.constant(np.array(not isEmpty))


@onnxOp("OptionalGetElement")
def optionalGetElement(op: OnnxNode, x: OnnxValue | OnnxSequence) -> OnnxValue | OnnxSequence:
    """OptionalGetElement."""
    if isinstance(x, OnnxSequence) and x.isAbsent:
        op.refuse("wanted an optional with something in it, got an empty one")
    return x
