"""The initialisers of an ONNX model by name, without building the network; external data in the model's folder too.

Initialisers of graphs in attributes (of If, Loop, Scan) are named node/attribute/name, or by the number of the node
where it has no name. Constant nodes are not listed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Any, BinaryIO

import numpy as np

from puregraph.core.base.budget import Budget
from puregraph.core.errors import CheckpointError, printable, quote
from puregraph.core.storage.hdf import RANK
from puregraph.onnx.modelfile import ModelFile, checkTexts, needOnnx
from puregraph.serialize.weights.narrowfloats import storedType, widened
from puregraph.serialize.weights.weightfile import StoredTensor, WeightFile

DTYPES = {  # of element types that ONNX names differently
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e5m2": "float8_e5m2",
}
NUMPY = {"bool", "float16", "float32", "float64", *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64))}
NARROW = {"float8_e4m3fn", "float8_e5m2", "int4", "uint4"}  # which ModelFile does not read
MAX_LEVELS = 50  # graphs in graphs


def opened(file: BinaryIO, source: str) -> WeightFile:
    """Describe the initialisers of a model."""
    needOnnx()
    model = modelOf(file)
    budget = Budget(file.seek(0, 2))
    tensors: dict[str, StoredTensor] = {}
    skipped = []
    for name, tensor in tensorsOf(model.proto.graph, budget):
        if name in tensors:
            raise CheckpointError(f"it has the initialiser {quote(name)} twice")
        dtype = dtypeName(tensor)
        if any(size < 0 for size in tensor.dims) or len(tensor.dims) > RANK or prod(tensor.dims) >= 1 << 60:
            raise CheckpointError(f"{quote(name)} has the shape {tuple(tensor.dims)}, which is not possible")
        if dtype is None:
            skipped.append(name)
        else:
            checkSize(name, tensor, dtype)
            tensors[name] = StoredTensor(name, tuple(tensor.dims), dtype, partial(fetch, model, tensor, dtype))
    skipped += [sparse.values.name for sparse in model.proto.graph.sparse_initializer]
    metadata: dict[str, Any] = {"ir_version": model.proto.ir_version}
    metadata["opset"] = {row.domain: row.version for row in model.proto.opset_import}
    metadata |= {"skipped": skipped} if skipped else {}
    return WeightFile("onnx", source, tensors, metadata, file.close)


def modelOf(file: BinaryIO) -> ModelFile:
    """The model of an open file, by its path where it has one, so that arrays beside it are found."""
    path = getattr(file, "name", None)
    if isinstance(path, (str, bytes)):
        return ModelFile(os.fsdecode(path))
    import onnx

    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(file.read())
    except Exception as error:  # the decoders raise their own, and differ
        raise CheckpointError(f"it cannot be decoded as ONNX: {printable(str(error)):.200}") from error
    checkTexts(proto)
    return ModelFile(proto)


def tensorsOf(graph: Any, budget: Budget, prefix: str = "", level: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the initialisers of a graph and of the graphs in its nodes' attributes."""
    if level > MAX_LEVELS:
        raise CheckpointError(f"its graphs are nested more than {MAX_LEVELS} deep")
    for tensor in graph.initializer:
        budget.spend("characters of paths", len(prefix))
        yield prefix + tensor.name, tensor
    for number, node in enumerate(graph.node):
        for attribute in node.attribute:
            inner = [attribute.g] if attribute.HasField("g") else []
            for i, body in enumerate([*inner, *attribute.graphs]):
                label = f"{prefix}{node.name or number}/{attribute.name}{i or ''}/"
                budget.spend("nodes", 1)
                yield from tensorsOf(body, budget, label, level + 1)


def dtypeName(tensor: Any) -> str | None:
    """The name of the elements of a tensor; None for texts and complex numbers."""
    from onnx import TensorProto

    kinds = TensorProto.DataType
    name = kinds.Name(tensor.data_type).lower() if tensor.data_type in kinds.values() else "undefined"
    name = DTYPES.get(name, name)
    return name if name in NUMPY | NARROW or name == "bfloat16" else None


def checkSize(name: str, tensor: Any, dtype: str) -> None:
    """Check that the elements in the model fill the shape, before memory is taken for them."""
    if not tensor.HasField("raw_data"):
        return
    bits = 4 if dtype in ("int4", "uint4") else 8 * storedType(dtype).itemsize
    wanted = -(-prod(tensor.dims) * bits // 8)
    if len(tensor.raw_data) != wanted:
        raise CheckpointError(f"{quote(name)} needs {wanted} bytes, its data has {len(tensor.raw_data)}")


def fetch(model: ModelFile, tensor: Any, dtype: str) -> np.ndarray:
    """Read a tensor; numbers of 4 bits as int8 or uint8."""
    if dtype not in NARROW and dtype != "bfloat16":
        return model.array(tensor)
    from onnx import TensorProto, numpy_helper

    if tensor.data_location == TensorProto.EXTERNAL and dtype != "bfloat16":
        raise CheckpointError(f"{quote(tensor.name)}: {dtype} in another file is not supported")
    try:
        values = model.array(tensor) if dtype == "bfloat16" else numpy_helper.to_array(tensor)
        if dtype in ("int4", "uint4"):
            return values.astype(dtype.replace("4", "8")).reshape(tuple(tensor.dims))
        bits = values.view(np.uint16 if dtype == "bfloat16" else np.uint8)
        return widened(bits, dtype).reshape(tuple(tensor.dims))
    except (ValueError, TypeError, OverflowError) as error:
        raise CheckpointError(f"{quote(tensor.name)}: its data does not fill its shape: {error}") from error
