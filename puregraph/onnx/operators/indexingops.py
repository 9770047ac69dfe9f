"""IndexingOps: elements chosen and put by index, sorted, counted, one in a class."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph import modules
from puregraph.modules.gathering import GatherElements, GatherND, ReverseSequence
from puregraph.modules.scattering import ScatterElements, ScatterND
from puregraph.modules.selection import TopKValues
from puregraph.onnx.modules.controlled import TopCount
from puregraph.onnx.modules.onehotvalues import OneHotValues
from puregraph.onnx.modules.scattersequence import ScatterSequence
from puregraph.onnx.opregistry import onnxOp


@onnxOp("Gather")
def gather(op: Any, x: Any, index: Any) -> Any:
    """Gather."""
    return op(modules.Gather(op.get("axis", 0), fromEnd=True), x, index)


@onnxOp("GatherElements")
def gatherElements(op: Any, x: Any, index: Any) -> Any:
    """GatherElements."""
    return op(GatherElements(op.get("axis", 0)), x, index)


@onnxOp("GatherND")
def gatherPoints(op: Any, x: Any, index: Any) -> Any:
    """GatherND."""
    return op(GatherND(op.get("batch_dims", 0)), x, index)


@onnxOp("ScatterElements", "Scatter")
def scatterElements(op: Any, x: Any, index: Any, updates: Any) -> Any:
    """ScatterElements, Scatter."""
    return op(ScatterElements(op.get("axis", 0), op.get("reduction", "none")), x, index, updates)


@onnxOp("ScatterND")
def scatterPoints(op: Any, x: Any, index: Any, updates: Any) -> Any:
    """ScatterND."""
    return op(ScatterND(op.get("reduction", "none")), x, index, updates)


@onnxOp("TensorScatter")
def tensorScatter(op: Any, x: Any, updates: Any, starts: Any = None) -> Any:
    """TensorScatter."""
    return op(ScatterSequence(op.get("axis", -2), op.get("mode", "linear") == "circular"), x, updates, starts)


@onnxOp("Compress")
def compress(op: Any, x: Any, condition: Any) -> Any:
    """Compress."""
    return op(modules.Compress(op.get("axis"), mayBeShorter=True), x, condition)


@onnxOp("NonZero")
def nonZero(op: Any, x: Any) -> Any:
    """NonZero."""
    return op(modules.NonZero(), x)


@onnxOp("Unique")
def unique(op: Any, x: Any) -> Any:
    """Unique."""
    return tuple(op(modules.Unique(op.get("axis"), bool(op.get("sorted", 1))), x))


@onnxOp("OneHot")
def oneHot(op: Any, index: Any, depth: Any, values: Any) -> Any:
    """OneHot."""
    if depth.numbers is not None and np.any(depth.numbers < 0):
        op.refuse(f"depth: wanted a length of at least 0, got {depth.numbers.item()}")
    return op(OneHotValues(op.get("axis", -1)), index, depth, values)


@onnxOp("ReverseSequence")
def reverseSequence(op: Any, x: Any, lengths: Any) -> Any:
    """ReverseSequence."""
    return op(ReverseSequence(op.get("time_axis", 0), op.get("batch_axis", 1)), x, lengths)


@onnxOp("TopK")
def topK(op: Any, x: Any, count: Any = None) -> Any:
    """The count is an attribute before opset 10."""
    axis, largest = op.get("axis", -1), bool(op.get("largest", 1))
    known = np.array([op.get("k")]) if count is None else count.numbers
    module = TopCount(axis, largest) if known is None else TopKValues(int(known.ravel()[0]), axis, largest)
    return tuple(op(module, x, count) if known is None else op(module, x))
