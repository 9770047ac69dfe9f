"""OldOpsets: nodes of opsets 1 to 6, with the attributes and inputs that opset 7 gives their operators.

Source    https://github.com/onnx/onnx/blob/main/docs/Changelog.md, versions 1 to 6 of the operators
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.errors import quote, show
from puregraph.modules.reshaping import Unsqueeze

if TYPE_CHECKING:
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.onnxvalue import OnnxValue

Values = list[Any]  # OnnxValues; None for an optional input that is left out
OLDEST_OPSET = 7  # the oldest opset whose operators are read as they are
UNUSED = ("consumed_inputs", "is_test", "output_sequence")  # hints for the memory and the mode of one runtime
REWRITERS: dict[str, Callable[[OnnxNode, Values], Values]] = {}


def renewed(op: OnnxNode, inputs: Values) -> Values:
    """The inputs of a node of an old opset as opset 7 has them. The attributes are changed in place.

    Raises    GraphError for attributes that do not fit the inputs
    """
    for name in UNUSED:
        op.attributes.pop(name, None)
    rewrite = REWRITERS.get(op.type)
    return inputs if rewrite is None else rewrite(op, inputs)


def rewrites(*names: str) -> Callable[[Any], Any]:
    """Register the function below it for these operators."""

    def register(rewrite: Any) -> Any:
        REWRITERS.update(dict.fromkeys(names, rewrite))
        return rewrite

    return register


@rewrites("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")
def broadcasting(op: OnnxNode, inputs: Values) -> Values:
    """Give the second operand the axes of length one that the attribute `axis` implies.

    Raises    GraphError if `broadcast` is 0 and shapes differ, or if the second shape is not a part of the first
    """
    a, b = inputs
    axis, isBroadcast = op.attributes.pop("axis", None), op.attributes.pop("broadcast", 0)
    if a.shape is None or b.shape is None:
        if axis is not None and isBroadcast:
            op.rankOf(a if a.shape is None else b)  # raises, naming the value whose rank is unknown
        return inputs
    if not isBroadcast:
        if not allEqual(a.shape, b.shape):
            op.refuse(f"broadcast is 0: wanted two inputs of one shape, got {show(a.shape)} and {show(b.shape)}")
        return inputs
    rank, count = len(a.shape), len(b.shape)
    if isSingle(b.shape) and count <= rank:
        return inputs
    start = rank - count if axis is None else axis if axis >= 0 else axis + rank
    if not 0 <= start <= rank - count or not allEqual(a.shape[start : start + count], b.shape, orSingle=True):
        where = "at the end of" if axis is None else f"from axis {axis} on in"
        op.refuse(f"broadcast is 1: wanted sizes that stand {where} {show(a.shape)}, got {show(b.shape)}")
    return [a, trailing(op, b, rank - count - start)]


def isSingle(shape: tuple) -> bool:
    """True for the shape of one element."""
    return all(size == 1 for size in shape)


def allEqual(shape: tuple, other: tuple, orSingle: bool = False) -> bool:
    """True for equal shapes. A symbol fits every size, and a 1 in `other` does if `orSingle`."""
    return len(shape) == len(other) and all(
        n == m or not (isinstance(n, int) and isinstance(m, int)) or orSingle and m == 1 for n, m in zip(shape, other)
    )


def trailing(op: OnnxNode, x: OnnxValue, count: int) -> OnnxValue:
    """x with `count` more axes of length one at its end."""
    rank = op.rankOf(x)
    result: OnnxValue = op(Unsqueeze(tuple(range(rank, rank + count))), x) if count else x
    return result


@rewrites("Gemm")
def product(op: OnnxNode, inputs: Values) -> Values:
    """Remove `broadcast`: the bias of a product is broadcast according to its shape."""
    op.attributes.pop("broadcast", None)
    return inputs


@rewrites("PRelu")
def slopes(op: OnnxNode, inputs: Values) -> Values:
    """Put one slope for each channel at axis 1."""
    x, slope = inputs
    if op.rankOf(slope) != 1 or isSingle(slope.shape) or op.rankOf(x) < 3:
        return inputs
    return [x, trailing(op, slope, op.rankOf(x) - 2)]


@rewrites("BatchNormalization")
def statistics(op: OnnxNode, inputs: Values) -> Values:
    """Refuse statistics for each position of a picture.

    Raises    GraphError for them
    """
    if not op.attributes.pop("spatial", 1) and op.rankOf(inputs[0]) > 2:
        op.refuse("spatial: wanted 1, got 0: statistics for each position are not supported")
    return inputs


@rewrites("Reshape")
def target(op: OnnxNode, inputs: Values) -> Values:
    """Turn the attribute `shape` into an input.

    Raises    GraphError if an opset with that attribute has no value for it
    """
    if op.version >= 5:
        return inputs
    if "shape" not in op.attributes:
        op.refuse("its attribute shape is missing")
    return [inputs[0], op.constant(np.array(op.attributes.pop("shape"), np.int64))]


@rewrites("Cast")
def kind(op: OnnxNode, inputs: Values) -> Values:
    """Replace the name of a dtype by its number.

    Raises    GraphError for the name of no dtype
    """
    from onnx import TensorProto

    name = op.attributes["to"]
    if isinstance(name, str):
        if name.upper() not in TensorProto.DataType.keys():
            op.refuse(f"to: wanted the name of a dtype such as FLOAT, got {quote(name)}")
        op.attributes["to"] = TensorProto.DataType.Value(name.upper())
    return inputs


@rewrites("Concat")
def joined(op: OnnxNode, inputs: Values) -> Values:
    """Set the axis that opsets before 4 join along if none is named."""
    op.attributes.setdefault("axis", 1)
    return inputs


@rewrites("Selu")
def selu(op: OnnxNode, inputs: Values) -> Values:
    """Set the shorter coefficients that opsets before 6 have."""
    if op.version < 6:
        op.attributes = {"alpha": 1.6732, "gamma": 1.0507, **op.attributes}
    return inputs


@rewrites("LpPool", "GlobalLpPool")
def norm(op: OnnxNode, inputs: Values) -> Values:
    """Convert the power to an integer.

    Raises    GraphError for a power that is not an integer, or a missing window
    """
    power = op.get("p", 2)
    if not math.isfinite(power) or power != int(power):
        op.refuse(f"p: wanted a whole number, got {power!r}")
    if op.type == "LpPool" and "kernel_shape" not in op.attributes:
        op.refuse("its attribute kernel_shape is missing")
    op.attributes["p"] = int(power)
    return inputs


@rewrites("Pad")
def widths(op: OnnxNode, inputs: Values) -> Values:
    """Rename the widths of opset 1."""
    if "paddings" in op.attributes:
        op.attributes["pads"] = op.attributes.pop("paddings")
    return inputs


@rewrites("Tile")
def repeats(op: OnnxNode, inputs: Values) -> Values:
    """Expand the repeats of one axis to repeats of all axes.

    Raises    GraphError if repeats or axis depend on the data, or there is no such axis
    """
    if op.version >= 6:
        return inputs
    x, count, axis = inputs
    rank, times, along = op.rankOf(x), op.known(count, "the number of tiles"), op.known(axis, "the axis")
    if times.size != 1 or along.size != 1 or not -rank <= int(along.item()) < rank:
        op.refuse(f"wanted one number of tiles and one axis below {rank}, got {times.tolist()} and {along.tolist()}")
    counts = np.ones(rank, np.int64)
    counts[int(along.item())] = int(times.item())
    return [x, op.constant(counts)]


@rewrites("Upsample")
def scales(op: OnnxNode, inputs: Values) -> Values:
    """Make a list of the factors of height and width."""
    if "height_scale" in op.attributes:
        op.attributes["scales"] = [1.0, 1.0, *(op.attributes.pop(f"{side}_scale") for side in ("height", "width"))]
    return inputs
