"""ModelInputs: the shapes, values and opsets that a model declares, or that replace its declarations."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.core.dim import Dim
from puregraph.core.errors import (
    GraphError,
    ShapeError,
    quote,
    show,
)
from puregraph.core.shape import asShape
from puregraph.onnx import opregistry
from puregraph.onnx.graphbuilder import dimsFrom
from puregraph.onnx.modelfile import dtypeOf
from puregraph.onnx.onnxsequence import OnnxSequence
from puregraph.onnx.onnxvalue import OnnxValue


def known(info: Any, value: Any) -> Any:
    """An input with a given value, in the dtype that the model declares; None makes an absent optional.

    Raises    GraphError for a value of another kind or shape, or one that the dtype cannot hold
    """
    if value is None and info.type.WhichOneof("value") == "optional_type":
        return OnnxSequence([], isAbsent=True)
    dtype, shape = dtypeOf(info.type.tensor_type.elem_type), declaredShape(info)
    try:
        array = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise GraphError(f"values: input {quote(info.name)}: wanted an array, got {error}") from None
    fits = (
        shape is None
        or len(shape) == array.ndim
        and all(isinstance(n, Dim) or n == m for n, m in zip(shape, array.shape))
    )
    isOfKind = {array.dtype.kind, dtype.kind} <= {"i", "u"} or np.can_cast(array.dtype, dtype, "same_kind")
    if not isOfKind or not fits:
        wanted = f"{dtype}{'' if shape is None else show(shape)}"
        raise GraphError(f"values: input {quote(info.name)}: wanted {wanted}, got {array.dtype}{show(array.shape)}")
    return OnnxValue.of(info.name, held(info.name, array, dtype))


def held(name: str, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Values converted to another dtype of the same kind.

    Raises    GraphError naming the first integer that is outside its range, or float that becomes infinite
    """
    with np.errstate(over="ignore"):
        converted = array.astype(dtype)
    wrong = np.isfinite(array) & ~np.isfinite(converted) if dtype.kind == "f" else converted != array
    if wrong.any():
        limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
        within = f"{dtype} from {limits.min} to {limits.max}"
        raise GraphError(f"values: input {quote(name)}: wanted {within}, got {array[wrong].flat[0]}")
    return converted


def declaredShape(info: Any) -> Any:
    """The declared shape of an input, with symbols; None if it declares none."""
    if not info.type.tensor_type.HasField("shape"):
        return None
    dims = info.type.tensor_type.shape.dim
    sizes = [d.dim_value if d.HasField("dim_value") else d.dim_param for d in dims]
    return dimsFrom(sizes, info.name)


def chosenShape(info: Any, shape: Any) -> Any:
    """The shape of an input from the argument `shapes`; a size of None may be any.

    Raises    ShapeError naming the input if it is not a shape
    """
    try:
        named = [f"{info.name}_{i}" if n is None else n for i, n in enumerate(shape)] if isShaped(shape) else shape
        return dimsFrom(list(asShape(named)), info.name)
    except ShapeError as error:
        fault = error.faults[0]
        raise ShapeError(fault._replace(module=f"shapes: input {quote(info.name)}")) from None


def isShaped(shape: Any) -> bool:
    """True for a list or tuple of sizes."""
    return isinstance(shape, (tuple, list))


def opsetsOf(model: Any) -> dict[str, int]:
    """The version of each domain of operators. Files of the format's versions 1 and 2 name none: opset 1.

    Raises    GraphError for a version that is newer than supported, or below 1
    """
    versions = {"" if opset.domain == "ai.onnx" else opset.domain: opset.version for opset in model.opset_import}
    if not versions and 1 <= model.ir_version < 3:
        versions[""] = 1
    version = versions.get("", opregistry.NEWEST)
    if not 1 <= version <= opregistry.NEWEST:
        raise GraphError(
            f"opset {version}: wanted 1 to {opregistry.NEWEST}; convert the model with onnx.version_converter"
        )
    return versions
