"""ShapeWriters: modules that reshape, transpose, slice, join and repeat arrays, and shapes as values."""

from __future__ import annotations

import numpy as np

from puregraph import modules
from puregraph.core.errors import GraphError
from puregraph.onnx.onnxwriter import OnnxStep, isWhole, kindOf, writesOnnx
from puregraph.onnx.writers.operatorwriters import checkTypes

LAST_INDEX = (1 << 63) - 1


@writesOnnx(modules.Flatten)
def flatten(step: OnnxStep) -> None:
    """Flatten, or a Reshape that keeps the other axes."""
    module, x = step.module, step.shapes[0]
    start, end = module.start + len(x) * (module.start < 0), module.end % max(1, len(x))
    if module.asMatrix or start == 1 and end == len(x) - 1:
        step.op("Flatten", step.x, out=step.y, axis=start)
        return
    sizes = step.whole(*[0] * start, -1, *[n if isWhole(n) else 0 for n in x[end + 1 :]])
    if not all(map(isWhole, x[end + 1 :])):
        behind = step.op("Slice", step.op("Shape", step.x), *(step.whole(n) for n in (end + 1, LAST_INDEX, 0, 1)))
        sizes = step.op("Concat", step.whole(*[0] * start, -1), behind, axis=0)
    step.op("Reshape", step.x, sizes, out=step.y)


@writesOnnx(modules.Reshape)
def reshape(step: OnnxStep) -> None:
    """Reshape."""
    sizes = step.inputs[1] if step.module.shape is None else step.whole(*step.module.shape)
    step.op("Reshape", step.x, sizes, out=step.y, allowzero=int(step.module.keepsZero) or None)


@writesOnnx(modules.Transpose)
def transpose(step: OnnxStep) -> None:
    """Transpose."""
    step.op("Transpose", step.x, out=step.y, perm=list(step.module.order(len(step.shapes[0]))) or None)


@writesOnnx(modules.Concat)
def concat(step: OnnxStep) -> None:
    """Concat."""
    step.op("Concat", *step.inputs, out=step.y, axis=step.module.axis)


@writesOnnx(modules.Split)
def split(step: OnnxStep) -> None:
    """Split, with the sizes of the parts."""
    module = step.module
    if module.sections is None:
        step.op("Split", *step.inputs, out=list(step.outputs), axis=module.axis)
        return
    axis = module.axis % len(step.shapes[0])
    sizes = [shape[axis] for shape in step.outshapes]
    if not all(isinstance(size, int) for size in sizes):
        raise GraphError("the sizes of its parts have symbols")
    step.op("Split", step.x, step.whole(*sizes), out=list(step.outputs), axis=module.axis)


@writesOnnx(modules.Slice)
def cut(step: OnnxStep) -> None:
    """Slice; integers drop an axis, None adds one."""
    module, rank = step.module, len(step.shapes[0])
    if module.axes is not None:
        _, starts, ends, *steps = step.inputs
        step.op("Slice", step.x, starts, ends, step.whole(*module.axes), *steps, out=step.y)
        return
    named = sum(part is not None and part is not ... for part in module.key)
    parts = []
    for part in module.key:
        parts += [slice(None)] * (rank - named) if part is ... else [part]
    axis, axes, dropped, chosen, added, y = 0, [], [], [], [], 0
    for part in parts:
        if part is None:
            added.append(y)
            y += 1
            continue
        if isinstance(part, slice):
            if part != slice(None):
                axes.append((axis, part))
            y += 1
        elif isWhole(step.shapes[0][axis]):
            axes.append((axis, slice(part, part + 1 if part != -1 else LAST_INDEX)))
            dropped.append(axis)
        else:
            chosen.append((axis, part))
        axis += 1
    result = step.x
    if axes:
        limits = [endsOf(part) for _, part in axes]
        begins, stops, strides = (step.whole(*numbers) for numbers in zip(*limits))
        out = last(step, dropped, chosen, added)
        result = step.op("Slice", result, begins, stops, step.whole(*[a for a, _ in axes]), strides, out=out)
    for i, (axis, part) in reversed(list(enumerate(chosen))):  # not slices: of an open axis they have no length
        out = last(step, dropped, chosen[:i], added)
        result = step.op("Gather", result, step.constant(part, np.int64), out=out, axis=axis or None)
        dropped = [a - (a > axis) for a in dropped]
    if dropped:
        result = step.op("Squeeze", result, step.whole(*dropped), out=last(step, added))
    if added:
        result = step.op("Unsqueeze", result, step.whole(*added), out=step.y)
    if result == step.x:
        step.op("Identity", result, out=step.y)


def last(step: OnnxStep, *later: list) -> str | None:
    """The name of the step's output for the last node; None if other nodes follow."""
    return None if any(later) else step.y


def endsOf(part: slice) -> tuple[int, int, int]:
    """Start, end and step of a slice in ONNX's form."""
    by = 1 if part.step is None else part.step
    start = (0 if by > 0 else LAST_INDEX) if part.start is None else part.start
    end = (LAST_INDEX if by > 0 else -LAST_INDEX) if part.stop is None else part.stop
    return start, end, by


@writesOnnx(modules.Squeeze, modules.Unsqueeze)
def lengthOne(step: OnnxStep) -> None:
    """Squeeze, Unsqueeze."""
    axes = step.inputs[1:] if step.module.axes is None else [step.whole(*step.module.axes)]
    step.op(type(step.module).__name__, step.x, *axes, out=step.y)


@writesOnnx(modules.Expand)
def expand(step: OnnxStep) -> None:
    """Expand."""
    sizes = step.inputs[1] if step.module.shape is None else step.whole(*step.module.shape)
    step.op("Expand", step.x, sizes, out=step.y)


@writesOnnx(modules.Tile)
def tile(step: OnnxStep) -> None:
    """Tile."""
    sizes = step.inputs[1] if step.module.times is None else step.whole(*step.module.times)
    step.op("Tile", step.x, sizes, out=step.y)


@writesOnnx(modules.Shape)
def shape(step: OnnxStep) -> None:
    """Shape."""
    step.op("Shape", step.x, out=step.y, start=step.module.start or None, end=step.module.end)


@writesOnnx(modules.Size)
def size(step: OnnxStep) -> None:
    """Size."""
    step.op("Size", step.x, out=step.y)


@writesOnnx(modules.Range)
def ranged(step: OnnxStep) -> None:
    """Range."""
    inputs = step.inputs
    kind = step.indtypes[0]
    start = inputs[0] if len(inputs) > 1 else step.constant(0, kind)
    stop = inputs[1] if len(inputs) > 1 else inputs[0]
    by = inputs[2] if len(inputs) > 2 else step.constant(1, kind)
    step.op("Range", start, stop, by, out=step.y)


@writesOnnx(modules.Cast)
def cast(step: OnnxStep) -> None:
    """Cast."""
    step.op("Cast", step.x, out=step.y, to=kindOf(step.module.dtype))


@writesOnnx(modules.Gather)
def gather(step: OnnxStep) -> None:
    """Gather; for modules that do not count from the end, Where gives zeros for index -1."""
    if step.module.fromEnd:
        step.op("Gather", *step.inputs, out=step.y, axis=step.module.axis or None)
        return
    axis, kind = step.module.axis % len(step.shapes[0]), step.indtypes[1]
    none, index = step.constant(0, kind), step.inputs[1]
    y = step.op("Gather", step.x, step.op("Max", index, none), axis=axis or None)
    isThere = step.op("GreaterOrEqual", index, none)
    rank = len(step.shapes[1])
    later = [rank + i for i in range(len(step.shapes[0]) - axis - 1)]
    if later:
        isThere = step.op("Unsqueeze", isThere, step.whole(*later))
    step.op("Where", isThere, y, step.constant(0, step.dtypes[0]), out=step.y)


@writesOnnx(modules.OneHot)
def oneHot(step: OnnxStep) -> None:
    """OneHot for a depth that is an input, else Equal: 1 at the index of the class."""
    module, kind = step.module, step.indtypes[0]
    if module.classes is None:
        checkTypes(step, "OneHot")
        step.op("OneHot", *step.inputs, out=step.y, axis=module.axis)
        return
    rank = len(step.shapes[0])
    axis = module.axis % (rank + 1)
    index = step.op("Unsqueeze", step.x, step.whole(axis))
    isBool = module.dtype.kind == "b"
    classes = step.constant(np.arange(module.classes).reshape(-1, *[1] * (rank - axis)), kind)
    y = step.op("Equal", index, classes, out=step.y if isBool else None)
    if not isBool:
        step.op("Cast", y, out=step.y, to=kindOf(module.dtype))


@writesOnnx(modules.Pad)
def pad(step: OnnxStep) -> None:
    """Pad of all axes; if pads are an input, since opset 18 also of some. ONNX lists all starts before all ends."""
    module, rank, axes = step.module, len(step.shapes[0]), None
    names = dict(zip(module.arguments, step.inputs))
    fill: str | None = names.get("fill")
    pads: str | None
    pairs: str | None = names.get("pads")
    if module.pad is not None:
        widths = module.widths(rank)
        pads = step.whole(*[before for before, _ in widths], *[after for _, after in widths])
    else:
        count = step.shapes[1][0] if len(step.shapes[1]) == 2 else step.shapes[1][0] // 2
        chosen = [*module.axesFrom(rank, count)]
        pairs = pairs if step.indtypes[1] == np.int64 else step.op("Cast", pairs, to=kindOf(np.dtype(np.int64)))
        isPairs = len(step.shapes[1]) == 2
        if isPairs and chosen == [*range(rank - count, rank)] and count < rank:  # no padding of other axes
            pairs = step.op("Concat", step.constant(np.zeros((rank - count, 2), np.int64)), pairs, axis=0)
            chosen = [*range(rank)]
        pads = step.op("Reshape", step.op("Transpose", pairs, perm=[1, 0]), step.whole(-1)) if isPairs else pairs
        axes = None if chosen == [*range(rank)] else step.whole(*chosen)
        if axes is not None and step.opset < 18:
            raise GraphError("pads of some axes that are an input can be written from opset 18 on")
    checkTypes(step, "Pad")
    if fill is None and module.mode == "constant":
        fill = step.constant(module.fillValue, step.dtypes[0])
    step.op("Pad", step.x, pads, fill, *([axes] if axes else []), out=step.y, mode=module.mode)
