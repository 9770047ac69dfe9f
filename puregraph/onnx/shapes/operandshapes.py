"""OperandShapes: the rank and sizes that an operator requires of an operand, from weights, permutations and windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from puregraph.core.dim import Dim
from puregraph.core.shape import valueOf
from puregraph.onnx.graphbuilder import dimsFrom

Demand = tuple[int | None, dict[int, Any]]  # the rank, if known, and sizes by axis, which may be negative
RANKS = {"RoiAlign": 4, "MaxRoiPool": 4, "GRU": 3, "LSTM": 3, "RNN": 3}


def settleOperand(kind: str, attributes: dict[str, Any], inputs: list[Any]) -> None:
    """Record the rank and sizes that an operator requires of its first operand, if still unknown."""
    if kind in RANKS:
        settle(inputs[0], RANKS[kind], {})
    elif kind in DEMANDS:
        settle(inputs[0], *DEMANDS[kind](attributes, inputs, [None if v is None else v.shape for v in inputs[1:]]))


def settle(value: Any, rank: int | None, sizes: dict[int, Any]) -> None:
    """Record a rank and sizes of a value. Known ones are not replaced, because the rule reports misfits better."""
    if value.array is not None or valueOf(value.shape) is not None:
        return
    if value.shape is None and rank is not None:
        value.shape = dimsFrom([None] * rank, value.name or "value")
    if value.shape is None or rank not in (None, len(value.shape)):
        return
    shape = list(value.shape)
    for axis, size in sizes.items():
        if -len(shape) <= axis < len(shape) and isinstance(shape[axis], Dim) and isinstance(size, int):
            shape[axis] = size
    value.shape = tuple(shape)


def convolved(attributes: Any, inputs: Any, others: Any) -> Demand:
    """The rank is that of the weight, which also has the number of channels."""
    W = others[0]
    if W is None or len(W) < 2:
        return None, {}
    isWhole = isinstance(W[1], int)
    return len(W), {1: W[1] * attributes.get("group", 1) if isWhole else None}


def multiplied(attributes: Any, inputs: Any, others: Any) -> Demand:
    """The last axis has as many elements as the matrix has rows."""
    W = others[0]
    return None, {-1: W[-2]} if W is not None and len(W) >= 2 else {}


def resized(attributes: Any, inputs: Any, others: Any) -> Demand:
    """There is a factor or size for each axis."""
    lists = [*others[1:], *others[:1]] if len(others) > 1 else others
    lengths = [shape[0] for shape in lists if shape is not None and len(shape) == 1 and isinstance(shape[0], int)]
    isAll = attributes.get("axes") is None
    return next((length for length in lengths if length and isAll), None), {}


def squeezed(attributes: Any, inputs: Any, others: Any) -> Demand:
    """Squeezed axes have length one."""
    known = inputs[1].numbers if len(inputs) > 1 and inputs[1] is not None else attributes.get("axes")
    return None, dict.fromkeys([] if known is None else map(int, known), 1)


def normalized(attributes: Any, inputs: Any, others: Any) -> Demand:
    """There is a scale for each channel."""
    scale = others[0]
    return None, {1: scale[0]} if scale is not None and len(scale) == 1 else {}


def scaled(attributes: Any, inputs: Any, others: Any) -> Demand:
    """The last axes have the shape of the scale."""
    scale, axis = others[0], attributes.get("axis", -1)
    isSuffix = scale is not None and axis < 0 and len(scale) == -axis
    return None, {i - len(scale): n for i, n in enumerate(scale)} if isSuffix else {}


def padded(attributes: Any, inputs: Any, others: Any) -> Demand:
    """There are two widths for each axis, unless an input names the axes."""
    pads = others[0] if others else (len(attributes.get("pads", ())),)
    isAll = len(others) < 3 and pads is not None and len(pads) == 1 and isinstance(pads[0], int)
    return pads[0] // 2 or None if isAll else None, {}


def counted(attributes: Any, inputs: Any, others: Any) -> Demand:
    """There is a number for each axis."""
    counts = others[0]
    isKnown = counts is not None and len(counts) == 1 and isinstance(counts[0], int)
    return counts[0] if isKnown else None, {}


def product(attributes: Any, inputs: Any, others: Any) -> Demand:
    """The operand is a matrix; the axis that is summed over has the length of that of the other one."""
    W = others[0]
    inner = None if W is None or len(W) != 2 else W[1 if attributes.get("transB") else 0]
    return 2, {0 if attributes.get("transA") else 1: inner}


DEMANDS: dict[str, Callable[[Any, Any, Any], Demand]] = {
    **dict.fromkeys(("Conv", "ConvInteger", "DeformConv"), convolved),
    "ConvTranspose": lambda attributes, inputs, others: (
        (None, {}) if others[0] is None else (len(others[0]), {1: others[0][0]})
    ),
    "QLinearConv": lambda attributes, inputs, others: convolved(attributes, inputs, others[2:]),
    **dict.fromkeys(("MatMul", "MatMulInteger"), multiplied),
    "Gemm": product,
    **dict.fromkeys(("Resize", "Upsample"), resized),
    "Squeeze": squeezed,
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), normalized),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), scaled),
    "Pad": padded,
    "Tile": counted,
    "Transpose": lambda attributes, inputs, others: (len(attributes["perm"]) if "perm" in attributes else None, {}),
    **dict.fromkeys(
        ("MaxPool", "AveragePool", "LpPool", "MaxUnpool"),
        lambda attributes, inputs, others: (2 + len(attributes.get("kernel_shape", ())), {}),
    ),
    "GridSample": lambda attributes, inputs, others: (None if others[0] is None else len(others[0]), {}),
}
