"""ModelExport: a Graph as an ONNX model, which may be written to a file."""

from __future__ import annotations

import os
from copy import deepcopy
from pathlib import Path
from typing import Any

from puregraph.core.arguments import Count, FilePath, Types, takes
from puregraph.core.errors import GraphError, plural
from puregraph.core.param import DerivedKind
from puregraph.core.shape import asShape, isShape
from puregraph.core.storage.atomicwrite import whole
from puregraph.graph.lookup import few
from puregraph.onnx.modelfile import needOnnx
from puregraph.onnx.onnxwriter import ModelWriter
from puregraph.onnx.opregistry import NEWEST

EXTERNAL_BYTES = 1 << 30  # bytes of weights from which on they are stored in a separate file
OLDEST_OPSET = 13


@takes(path=FilePath | None, opset=Count | None, dtypes=Types | None)
def toOnnx(graph: Any, path: Any = None, shapes: Any = None, opset: int | None = None, dtypes: Any = None) -> Any:
    """The ONNX model of a graph as it is in evalMode; written to a file if there is a path.

    `shapes`    of the inputs, a list of them: symbols become named dimensions; not needed where Inputs declare them
    `opset`     of the operators, from 13 on; by default the newest
    `dtypes`    of the inputs, a list of them; by default those that rules ask for, and else the graph's own floats

    Weights of 1 GB and more are in a file beside it.

    Raises    GraphError listing every node whose module cannot be written; ShapeError for shapes that do not fit
    """
    needOnnx()
    if not hasattr(graph, "infer"):
        hint = "; Sequential(module) is one" if hasattr(graph, "dataShapeFrom") else ""
        raise GraphError(f"toOnnx: wanted a Graph, got {type(graph).__name__}{hint}")
    version = NEWEST if opset is None else opset
    if not OLDEST_OPSET <= version <= NEWEST:
        raise GraphError(f"toOnnx: wanted an opset from {OLDEST_OPSET} to {NEWEST}, got {version}")
    graph = bakedFor(graph)
    inputShapes = shapesFor(graph, shapes)
    if dtypes is not None and len(dtypes) != len(inputShapes):
        raise GraphError(f"toOnnx: wanted {plural(len(inputShapes), 'dtype')}, one for each input, got {len(dtypes)}")
    model = ModelWriter(graph, inputShapes, version, dtypes).model()
    if path is not None:
        store(model, path)
    return model


def bakedFor(graph: Any) -> Any:
    """The graph, or a copy in which arrays replace parameters that are computed from others.

    Raises    GraphError for a parameter that is the output of another node
    """
    if any(isinstance(step.module, DerivedKind) for step in graph.steps().items):
        graph = deepcopy(graph).evalMode().bake()
    handed = [f"{step.path}.{name}" for step in graph.steps().items for name, _ in step.handed]
    if handed:
        raise GraphError(f"toOnnx: {few(handed)} is computed by a node; ONNX is written with weights that are arrays")
    return graph


def shapesFor(graph: Any, shapes: Any) -> list[Any]:
    """One shape for each input: passed, or declared by the Input."""
    if shapes is None:
        declared = [getattr(node.module, "shape", None) for node in graph.inputs]
        if any(shape is None for shape in declared):
            raise GraphError("toOnnx: wanted shapes=, one for each input; symbols such as 'N' are open")
        return declared
    isOne = not isinstance(shapes, (tuple, list)) or isinstance(shapes, tuple) and isShape(shapes)
    return [asShape(shape) for shape in ([shapes] if isOne else shapes)]


@takes(path=FilePath)
def store(model: Any, path: Any) -> None:
    """Write a model, its large weights beside it."""
    import onnx

    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    if size < EXTERNAL_BYTES:
        with whole(path) as file:
            file.write(model.SerializeToString(deterministic=True))
        return
    beside = f"{Path(os.fspath(path)).name}.data"
    onnx.save(model, os.fspath(path), save_as_external_data=True, location=beside, size_threshold=1024)
