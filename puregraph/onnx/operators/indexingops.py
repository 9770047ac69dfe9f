"""IndexingOps: gather and scatter elements by index, sort and count them, one-hot vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph import modules
from puregraph.modules.gathering import GatherElements, GatherND, ReverseSequence
from puregraph.modules.scattering import ScatterElements, ScatterND
from puregraph.modules.selection import TopKValues
from puregraph.onnx.opregistry import onnxOp

if TYPE_CHECKING:
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.onnxvalue import OnnxValue


@onnxOp("Gather")
def gather(op: OnnxNode, x: OnnxValue, index: OnnxValue) -> OnnxValue:
    """Gather."""
    return op(modules.Gather(op.get("axis", 0), fromEnd=True), x, index)


@onnxOp("GatherElements")
def gatherElements(op: OnnxNode, x: OnnxValue, index: OnnxValue) -> OnnxValue:
    """GatherElements."""
    return op(GatherElements(op.get("axis", 0)), x, index)


@onnxOp("GatherND")
def gatherPoints(op: OnnxNode, x: OnnxValue, index: OnnxValue) -> OnnxValue:
    """GatherND."""
    return op(GatherND(op.get("batch_dims", 0)), x, index)


@onnxOp("ScatterElements", "Scatter")
def scatterElements(op: OnnxNode, x: OnnxValue, index: OnnxValue, updates: OnnxValue) -> OnnxValue:
    """ScatterElements, Scatter."""
    return op(ScatterElements(op.get("axis", 0), op.get("reduction", "none")), x, index, updates)


@onnxOp("ScatterND")
def scatterPoints(op: OnnxNode, x: OnnxValue, index: OnnxValue, updates: OnnxValue) -> OnnxValue:
    """ScatterND."""
    return op(ScatterND(op.get("reduction", "none")), x, index, updates)


@onnxOp("TensorScatter")
def tensorScatter(op: OnnxNode, x: OnnxValue, updates: OnnxValue, starts: OnnxValue | None = None) -> OnnxValue:
    """TensorScatter."""
    return op(modules.TensorScatter(op.get("axis", -2), op.get("mode", "linear") == "circular"), x, updates, starts)


@onnxOp("Compress")
def compress(op: OnnxNode, x: OnnxValue, condition: OnnxValue) -> OnnxValue:
    """Compress."""
    return op(modules.Compress(op.get("axis"), mayBeShorter=True), x, condition)


@onnxOp("NonZero")
def nonZero(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """NonZero."""
    return op(modules.NonZero(), x)


@onnxOp("Unique")
def unique(op: OnnxNode, x: OnnxValue) -> tuple[OnnxValue, ...]:
    """Unique."""
    return tuple(op(modules.Unique(op.get("axis"), bool(op.get("sorted", 1))), x))


@onnxOp("OneHot")
def oneHot(op: OnnxNode, index: OnnxValue, depth: OnnxValue, values: OnnxValue) -> OnnxValue:
    """OneHot."""
    if depth.numbers is not None and np.any(depth.numbers < 0):
        op.refuse(f"depth: wanted a length of at least 0, got {depth.numbers.item()}")
    return op(modules.OneHot(None, axis=op.get("axis", -1)), index, depth, values)


@onnxOp("ReverseSequence")
def reverseSequence(op: OnnxNode, x: OnnxValue, lengths: OnnxValue) -> OnnxValue:
    """ReverseSequence."""
    return op(ReverseSequence(op.get("time_axis", 0), op.get("batch_axis", 1)), x, lengths)


@onnxOp("TopK")
def topK(op: OnnxNode, x: OnnxValue, count: OnnxValue | None = None) -> tuple[OnnxValue, ...]:
    """The count is an attribute before opset 10."""
    axis, largest = op.get("axis", -1), bool(op.get("largest", 1))
    known = np.array([op.get("k")]) if count is None else count.numbers
    module = TopKValues(None if known is None else int(known.ravel()[0]), axis, largest)
    return tuple(op(module, x, count) if known is None else op(module, x))
