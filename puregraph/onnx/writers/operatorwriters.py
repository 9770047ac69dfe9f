"""OperatorWriters: modules that become a single operator with the same inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from puregraph import modules
from puregraph.core.base.dtype import isBfloat16
from puregraph.core.errors import GraphError
from puregraph.modules import gathering, scattering
from puregraph.modules.bits import BitCast, BitShift, Bitwise
from puregraph.modules.detection import NonMaxSuppression, RoiAlign, RoiPool
from puregraph.modules.dropout import Multinomial
from puregraph.modules.localnorm import LocalResponseNorm, LpNormalize
from puregraph.modules.product import Determinant
from puregraph.modules.quantization import Dequantize, Quantize
from puregraph.modules.softmax import HardMax
from puregraph.onnx.onnxwriter import OnnxStep, kindOf, schemaOf, writesOnnx

CALLEDRANDOM = {"uniform": "RandomUniformLike", "normal": "RandomNormalLike"}
CALLED = {"float32": "float", "float64": "double"}  # ONNX's names of dtypes
Attributes = dict[str, Any]
OPERATORS: dict[type, Callable[[Any], tuple[str, Attributes]]] = {  # attributes of None are left out
    gathering.ReverseSequence: lambda m: ("ReverseSequence", {"time_axis": m.time, "batch_axis": m.batch}),
    modules.DynamicSlice: lambda m: ("Slice", {}),
    modules.EyeLike: lambda m: ("EyeLike", {"k": m.diagonal or None, "dtype": kindOf(m.dtype)}),
    gathering.GatherElements: lambda m: ("GatherElements", {"axis": m.axis or None}),
    gathering.GatherND: lambda m: ("GatherND", {"batch_dims": m.batch or None}),
    scattering.ScatterElements: lambda m: ("ScatterElements", {"axis": m.axis or None, "reduction": reductionOf(m)}),
    scattering.ScatterND: lambda m: ("ScatterND", {"reduction": reductionOf(m)}),
    modules.TensorScatter: lambda m: (
        "TensorScatter",
        {"axis": m.axis, "mode": "circular" if m.circular else "linear"},
    ),
    modules.Einsum: lambda m: ("Einsum", {"equation": f"{','.join(m.inputLetters)}->{m.output}"}),
    modules.Compress: lambda m: ("Compress", {"axis": m.axis}),
    modules.Unique: lambda m: ("Unique", {"axis": m.axis, "sorted": int(m.isSorted)}),
    modules.NonZero: lambda m: ("NonZero", {}),
    Bitwise: lambda m: (f"Bitwise{m.function.capitalize()}", {}),
    BitCast: lambda m: ("BitCast", {"to": kindOf(m.dtype)}),
    BitShift: lambda m: ("BitShift", {"direction": m.direction.upper()}),
    Determinant: lambda m: ("Det", {}),
    NonMaxSuppression: lambda m: ("NonMaxSuppression", {"center_point_box": int(m.fromCenter) or None}),
    RoiAlign: lambda m: ("RoiAlign", regionsOf(m)),
    RoiPool: lambda m: ("MaxRoiPool", {"pooled_shape": list(m.size), "spatial_scale": float(m.scale)}),
    Multinomial: lambda m: ("Multinomial", {"sample_size": m.samples, "dtype": kindOf(m.dtype)}),
    modules.RandomLike: lambda m: (CALLEDRANDOM[m.kind], randomOf(m)),
    HardMax: lambda m: ("Hardmax", {"axis": m.axis}),
    modules.ScaleMaps: lambda m: ("BatchNormalization", {"epsilon": m.epsilon}),
    LpNormalize: lambda m: ("LpNormalization", {"p": int(m.p), "axis": m.axis}),
    LocalResponseNorm: lambda m: ("LRN", {"size": m.size, "alpha": m.alpha, "beta": m.beta, "bias": m.bias}),
    Quantize: lambda m: ("QuantizeLinear", {**scalingOf(m), "output_dtype": None}),
    Dequantize: lambda m: (
        "DequantizeLinear",
        {**scalingOf(m), "output_dtype": None if m.dtype is None else kindOf(m.dtype)},
    ),
}


def reductionOf(module: Any) -> str | None:
    """The reduction of updates with existing elements; None if they replace them."""
    return None if module.reduction == "none" else str(module.reduction)


def regionsOf(module: Any) -> Attributes:
    """The attributes of a RoiAlign."""
    return {
        "output_height": module.size[0],
        "output_width": module.size[1],
        "spatial_scale": float(module.scale),
        "sampling_ratio": module.samples,
        "mode": module.mode,
        "coordinate_transformation_mode": "half_pixel" if module.isCentred else "output_half_pixel",
    }


def randomOf(module: Any) -> Attributes:
    """The attributes of random numbers: dtype, and range or mean and deviation."""
    start, scale, dtype = float(module.start), float(module.scale), kindOf(module.dtype)
    isUniform = module.kind == "uniform"
    return {"dtype": dtype} | ({"low": start, "high": start + scale} if isUniform else {"mean": start, "scale": scale})


def scalingOf(module: Any) -> Attributes:
    """The attributes of quantization: the axis of the scales, and the number of elements of each."""
    return {"axis": module.axis if module.axis != 1 else None, "block_size": module.block or None}


@writesOnnx(*OPERATORS)
def operator(step: OnnxStep) -> None:
    """Write the operator of a module, without unused trailing outputs."""
    made = next(made for c in type(step.module).__mro__ if (made := OPERATORS.get(c)))
    kind, attributes = made(step.module)
    checkTypes(step, kind)
    inputs = list(step.inputs)
    if isinstance(step.module, Quantize) and (len(inputs) < 3 or inputs[2] is None):
        inputs = [*inputs[:2], step.constant(np.zeros(step.shapes[1]), step.module.dtype)]
    step.op(kind, *inputs, out=list(step.outputs), name=step.path, **attributes)


def checkTypes(step: OnnxStep, kind: str) -> None:
    """Check that the opset's operator accepts inputs of these dtypes.

    Raises    GraphError for a dtype that it does not accept
    """
    schema = schemaOf(kind, step.opset)
    if schema is None:  # reported when the node is added
        return
    allowed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
    for i, dtype in enumerate(step.indtypes):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        if dtype is not None:
            name = "bfloat16" if isBfloat16(dtype) else str(dtype)
            if f"tensor({CALLED.get(name, name)})" not in allowed.get(formal.type_str, [formal.type_str]):
                raise GraphError(f"{kind} of opset {step.opset} takes no {name}; that of a newer one may")
