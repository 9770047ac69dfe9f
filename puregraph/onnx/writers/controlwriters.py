"""ControlWriters: modules that run graphs of their own, as nodes with graphs in their attributes."""

from __future__ import annotations

from puregraph.errors import GraphError
from puregraph.onnx.modules.control.ifelse import If
from puregraph.onnx.onnxwriter import OnnxStep, writesOnnx


@writesOnnx(If)
def ifElse(step: OnnxStep) -> None:
    """If: both graphs read what they take by the names that it has outside; one of a known condition stands alone."""
    names, count = [str(name) for name in step.inputs[1:]], len(step.module.outputNames)
    shapes, dtypes = step.shapes[1:], step.indtypes[1:]
    chosen = step.module.candidates(step.shapes[0])
    if len(chosen) == 1 and not step.module.misfit:
        inside = step.writer.within(chosen[0], names, shapes, dtypes)
        step.writer.nodes += inside.nodes
        for number, out in zip(inside.steps.outputs, step.outputs):
            step.op("Identity", inside.values[number], out=out, name=out)
        return
    if step.module.misfit:
        raise GraphError("one of its branches was not read, as it fits no data of these shapes")
    graphs = {
        f"{key}_branch": step.writer.inner(graph, names, shapes, dtypes, 0, f"{step.path}:{key}")
        for key, graph in step.module.held.items()
    }
    step.op("If", step.x, out=step.outputs[:count], name=step.path, **graphs)
