"""backwardOnnx: a model and its gradients as one ONNX model."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from puregraph.autodiff.joint.addbackward import add_backward_pass, graph_of, names_of
from puregraph.core.arguments import Count, FilePath, Types, takes
from puregraph.core.errors import GraphError, misfit
from puregraph.onnx.modelexport import shapesFor, store, toOnnx
from puregraph.onnx.onnxwriter import typesFor


@takes(path=FilePath | None, opset=Count | None, dtypes=Types | None)
def backwardOnnx(
    model: Any,
    inputs: Any,
    outputs: Any,
    path: Any = None,
    shapes: Any = None,
    opset: int | None = None,
    dtypes: Any = None,
    **kept: Any,
) -> Any:
    """An ONNX model that computes a model's outputs and the gradients of some values with respect to others.

    `model`     a Graph, an ONNX model, or the path of one
    `inputs`, `outputs`   names of inputs, parameters and values, as for `add_backward_pass`
    `shapes`    of the inputs: symbols become named dimensions, if gradient rules are the same for any size
    `path`, `opset`, `dtypes`   as for `toOnnx`
    `kept`      `data_forwarding_strategy`, `data_to_recompute` or `budget` of `add_backward_pass`: which
                forward values are kept, and which are recomputed

    The model takes the inputs and then the gradients of the outputs, `gradient_<output>`; it gives the outputs and then
    `gradient_<input>` for each input.

    Raises    AutoDiffException as `add_backward_pass` does; GraphError listing every node whose rule cannot be written
    """
    graph = graph_of(model)
    names_of(graph)
    inputShapes = shapesFor(graph, shapes)
    kinds = typesFor(graph, len(inputShapes)) if dtypes is None else [np.dtype(dtype) for dtype in dtypes]
    if kept.get("budget") is not None:
        kept = {**kept, "shapes": inputShapes}
    joint = add_backward_pass(graph, outputs, inputs, **kept)
    inferred = graph.infer(list(inputShapes), dtypes=kinds)
    faults = [row.fault for row in inferred.rows if row.fault]
    if faults:
        raise misfit(faults)
    known: dict[int, tuple[Any, Any]] = dict(zip(graph.steps().inputs, zip(inputShapes, kinds)))
    for row in inferred.rows:
        if row.shapes is not None:
            known.update(zip(row.step.visible, zip(row.shapes, row.dtypes)))
    seeds = [known[number] for number in joint.targets]
    if any(dtype is None for _, dtype in seeds):
        raise GraphError("backwardOnnx: the dtype of an output is not known: declare that of inputs, or give dtypes=")
    every = [*inputShapes, *(shape for shape, _ in seeds)]
    made = toOnnx(joint, None, every, opset, [*kinds, *(dtype for _, dtype in seeds)])
    nameOutputs(made, dict(zip([info.name for info in made.graph.output][-len(joint.grad_names) :], joint.grad_names)))
    if path is not None:
        store(made, path)
    return made


def nameOutputs(model: Any, names: dict[str, str]) -> None:
    """Call outputs of a model by other names."""
    clean = {old: re.sub(r"[./]+", "_", new) for old, new in names.items()}
    for node in model.graph.node:
        for ends in (node.input, node.output):
            ends[:] = [clean.get(name, name) for name in ends]
    for info in model.graph.output:
        info.name = clean.get(info.name, info.name)
