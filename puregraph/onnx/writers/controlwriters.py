"""ControlWriters: modules that run graphs, as nodes with graphs in their attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from puregraph.core.errors import GraphError
from puregraph.core.shape import normalAxis
from puregraph.modules.control.ifelse import If
from puregraph.modules.control.loop import Loop
from puregraph.modules.control.scan import Scan
from puregraph.onnx.onnxwriter import OnnxStep, writesOnnx


@writesOnnx(If)
def ifElse(step: OnnxStep, isKept: bool = False) -> None:
    """If: both graphs read captured values by their outer names; if the condition is known, its graph is inlined.

    The gradient recomputes the branch, so that nothing is kept.
    """
    names, count = [str(name) for name in step.inputs[1:]], len(step.module.outputNames)
    shapes, dtypes = step.shapes[1:], step.indtypes[1:]
    chosen = step.module.candidates(step.shapes[0])
    if len(chosen) == 1 and not step.module.misfit:
        inside = step.writer.within(chosen[0], names, shapes, dtypes)
        step.writer.nodes += inside.nodes
        for number, out in zip(inside.steps.outputs, step.outputs[:count]):
            step.op("Identity", inside.values[number], out=out, name=out)
        return
    if step.module.misfit:
        raise GraphError("one of its branches was not read, as it fits no data of these shapes")
    graphs = {
        f"{key}_branch": step.writer.inner(graph, names, shapes, dtypes, 0, f"{step.path}:{key}")
        for key, graph in step.module.held.items()
    }
    step.op("If", step.x, out=step.outputs[:count], name=step.path, **graphs)


@writesOnnx(Loop)
def loop(step: OnnxStep, isKept: bool = False) -> None:
    """Loop; if a gradient needs them, the inputs of each run are stacked as further outputs."""
    m, count = step.module, len(step.module.outputNames)
    before = [(1,) * rank for rank in m.ranks]
    carried, alike = step.shapes[2 : 2 + m.carried], step.shapes[2 + m.carried :]
    shapes, _ = m.settled(before, carried, alike, step.shapes)
    kinds = [np.dtype(np.int64), np.dtype(bool), *step.indtypes[2:]]
    body = bodyOf(step, [*before, *shapes, *alike], kinds, 2 + m.carried)
    stacks = [step.fresh(f"start{i}") for i in range(1 + m.carried)] if isKept else []
    if isKept:
        keepStarts(step, body, [0, *range(2, 2 + m.carried)], stacks)
    step.op("Loop", *step.inputs[: 2 + m.carried], out=[*step.outputs[:count], *stacks], name=step.path, body=body)


@writesOnnx(Scan)
def scan(step: OnnxStep, isKept: bool = False) -> None:
    """Scan; attributes with their default are left out."""
    m, count = step.module, len(step.module.outputNames)
    carried, scanned, alike = m.parted(step.shapes)
    axes = [normalAxis(axis, len(shape)) for (axis, _), shape in zip(m.ins, scanned)]
    slices = [tuple(shape[:axis]) + tuple(shape[axis + 1 :]) for axis, shape in zip(axes, scanned)]
    shapes, _ = m.settled([], carried, [*slices, *alike], step.shapes)
    body = bodyOf(step, [*shapes, *slices, *alike], step.indtypes, m.carried + m.sliced)
    stacks = [step.fresh(f"start{i}") for i in range(m.carried)] if isKept else []
    if isKept:
        keepStarts(step, body, range(m.carried), stacks)
    outs = (*m.outs, *[(0, False)] * len(stacks))

    def unusual(values: tuple, index: int) -> list[int] | None:
        column = [int(value[index]) for value in values]
        return column if any(column) else None

    step.op(
        "Scan",
        *step.inputs[: m.carried + m.sliced],
        out=[*step.outputs[:count], *stacks],
        name=step.path,
        body=body,
        num_scan_inputs=m.sliced,
        scan_input_axes=unusual(m.ins, 0),
        scan_input_directions=unusual(m.ins, 1),
        scan_output_axes=unusual(outs, 0),
        scan_output_directions=unusual(outs, 1),
    )


def bodyOf(step: OnnxStep, shapes: list[Any], dtypes: list[Any], ownCount: int) -> Any:
    """The body of a Loop or Scan: names for its own inputs, and those outside for all else."""
    body = step.module.body
    names = [step.writer.unique(name) for name in body.arguments[:ownCount]]
    names += map(str, step.inputs[ownCount:])
    return step.writer.inner(body, names, shapes, dtypes, ownCount, f"{step.path}:body")


def keepStarts(step: OnnxStep, body: Any, inputs: Iterable[int], stacks: list[str]) -> None:
    """Add copies of some inputs to a body's outputs, which the node stacks as its last outputs."""
    for i in inputs:
        end = type(body.input[i])()
        end.CopyFrom(body.input[i])
        end.name = step.writer.unique(f"{end.name}:start")
        body.node.add(op_type="Identity", name=end.name, input=[body.input[i].name], output=[end.name])
        body.output.append(end)
    step.writer.starts[step.outputs[-1]] = stacks


def kept(write: Callable[..., None]) -> Callable[[OnnxStep], None]:
    """Wrap a writer for a module with a hidden output, its run: the run is kept if a gradient reads it."""

    def written(step: OnnxStep) -> None:
        inner = step.inside(step.writer)
        inner.module = step.module.inner
        isRead = step.row.step.outs[-1] in step.writer.steps.readValues
        write(inner, isKept=isRead)

    return written


KEEPING = {If: kept(ifElse), Loop: kept(loop), Scan: kept(scan)}
