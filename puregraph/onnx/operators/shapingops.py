"""ShapingOps: reshape, transpose, join, split and repeat arrays; shapes as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph import modules
from puregraph.core.dim import Dim
from puregraph.core.errors import show
from puregraph.core.shape import MAX_AXES
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.scattering import ScatterElements
from puregraph.modules.selection import Trilu
from puregraph.modules.slice import cutAt
from puregraph.onnx.modelfile import dtypeOf
from puregraph.onnx.opregistry import onnxOp

if TYPE_CHECKING:
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.onnxvalue import OnnxValue

OPEN_END = 1 << 30  # an index from which on a slice has no end


@onnxOp("Constant")
def constant(op: OnnxNode) -> OnnxValue:
    """Constant."""
    (name, value), *rest = op.attributes.items() or [("", None)]
    if rest or name not in ("value", "value_float", "value_floats", "value_int", "value_ints"):
        op.refuse(f"a constant of {name or 'nothing'} is no array of numbers")
    dtype = {"value_f": np.float32, "value_i": np.int64}.get(name[:7])
    return op.constant(value if dtype is None else np.asarray(value, dtype))


@onnxOp("ConstantOfShape")
def constantOfShape(op: OnnxNode, sizes: OnnxValue) -> OnnxValue:
    """ConstantOfShape."""
    value = op.get("value", np.zeros(1, np.float32)).reshape(())
    return op(modules.Full(int(value) if value.dtype.kind == "b" else value.item(), value.dtype), sizes)


@onnxOp("Shape")
def shape(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Shape."""
    return op(modules.Shape(op.get("start", 0), op.get("end")), x)


@onnxOp("Size")
def size(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Size."""
    return op(modules.Size(), x)


@onnxOp("Reshape")
def reshape(op: OnnxNode, x: OnnxValue, sizes: OnnxValue) -> OnnxValue:
    """Reshape."""
    keepsZero = bool(op.get("allowzero", 0))
    known = sizes.numbers
    if known is None:
        return op(modules.Reshape(keepsZero=True) if keepsZero else modules.Reshape(), x, sizes)
    if known.size > MAX_AXES:
        op.refuse(f"wanted at most {MAX_AXES} axes, got {known.size}")
    target = tuple(known.tolist())
    options = {"keepsZero": True} if keepsZero else {}
    return op.view(modules.Reshape(target, **options), x, isOfFile=True)


@onnxOp("Flatten")
def flatten(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Flatten."""
    axis = op.get("axis", 1)
    if axis == 1 and x.shape is not None and len(x.shape) > 1:
        return op(modules.Flatten(), x)
    return op(modules.Flatten(axis, asMatrix=True), x)


@onnxOp("Transpose")
def transpose(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Transpose."""
    axes = op.get("perm")
    return op.view(modules.Transpose(None if axes is None else tuple(axes)), x, isOfFile=True)


@onnxOp("Squeeze", "Unsqueeze")
def lengthOne(op: OnnxNode, x: OnnxValue, axes: OnnxValue | None = None) -> OnnxValue:
    """The axes are an attribute before opset 13."""
    axisNumbers = op.get("axes") if axes is None else axes.numbers
    if axes is not None and axisNumbers is None:
        return op(modules.Squeeze() if op.type == "Squeeze" else modules.Unsqueeze(), x, axes)
    if axisNumbers is None:
        return op(modules.Squeeze(), x)
    chosen = tuple(int(axis) for axis in np.ravel(axisNumbers))
    return op.view(modules.Squeeze(chosen) if op.type == "Squeeze" else modules.Unsqueeze(chosen), x, isOfFile=True)


@onnxOp("Concat")
def concat(op: OnnxNode, *xs: OnnxValue) -> OnnxValue:
    """Concat."""
    return op(modules.Concat(op.get("axis")), *xs)


@onnxOp("Split")
def split(op: OnnxNode, x: OnnxValue, sizes: OnnxValue | None = None) -> OnnxValue | list[OnnxValue]:
    """The sizes are an attribute before opset 13; without sizes, all parts but the last are equal."""
    axis, count = op.get("axis", 0), max(len(op.proto.output), 1)
    lengths = op.get("split") if sizes is None else sizes.numbers
    if sizes is not None and lengths is None:
        return op(modules.Split(axis, count=count), x, sizes)
    if lengths is None:
        wanted = op.get("num_outputs", count)
        if wanted != count:
            op.refuse(f"wanted {wanted} outputs as num_outputs says, got {count}")
        length = None if x.shape is None else x.shape[axis]
        if not isinstance(length, int) or length % count == 0 and length:
            return op(modules.Split(axis, count), x)
        part = -(-length // count)
        lengths = [max(0, min(part, length - part * i)) for i in range(count)]
    if len(lengths) != len(op.proto.output):
        op.refuse(f"wanted {len(op.proto.output)} sizes, one for each output, got {list(map(int, lengths))}")
    return op(modules.Split(axis, tuple(int(n) for n in lengths)), x)


@onnxOp("Slice")
def sliced(
    op: OnnxNode,
    x: OnnxValue,
    starts: OnnxValue | None = None,
    ends: OnnxValue | None = None,
    axes: OnnxValue | None = None,
    steps: OnnxValue | None = None,
) -> OnnxValue:
    """The ends are attributes before opset 10."""
    if starts is None:
        starts, ends = op.constant(np.array(op.get("starts"))), op.constant(np.array(op.get("ends")))
        axes = None if op.get("axes") is None else op.constant(np.array(op.get("axes")))
    if axes is None:
        count = len(starts.numbers) if starts.numbers is not None else starts.shape[0]
        along = tuple(range(count))
    else:
        if axes.numbers is None:
            return op(modules.DynamicSlice(), x, starts, ends, axes, steps)
        along = tuple(int(axis) for axis in axes.numbers)
    known = [None if v is None else v.numbers for v in (starts, ends, steps)]
    counts = [len(k) for k in known if k is not None]
    if set(counts) - {len(along)}:
        op.refuse(f"wanted starts, ends and steps for {len(along)} axes, got {counts} of them")
    if x.shape is not None and len({axis % max(1, len(x.shape)) for axis in along}) != len(along):
        op.refuse(f"wanted different axes, got {list(along)}")
    isBackward = steps is not None and (known[2] is None or min(known[2], default=1) < 0)
    if known[0] is None or known[1] is None or isBackward and known[2] is None:
        if isBackward:
            axes = op.constant(np.array(along)) if axes is None else axes
            return op(modules.DynamicSlice(), x, starts, ends, axes, steps)
        return op(modules.Slice(axes=along), x, starts, ends, steps)
    lists = [[1] * len(along) if k is None else k.tolist() for k in known]
    key = [slice(None)] * op.rankOf(x)
    for axis, start, end, step in zip(along, *lists):
        size = x.shape[axis]
        if step < 0 and start < -1 and isinstance(size, Dim):
            return op(modules.DynamicSlice(), x, starts, ends, op.constant(np.array(along)), steps)
        isFar = end >= OPEN_END if step > 0 else end <= -OPEN_END
        key[axis] = cutAt(start, None if isFar else end, step, size)
    return op(modules.Slice(tuple(key)), x)


@onnxOp("Expand")
def expand(op: OnnxNode, x: OnnxValue, sizes: OnnxValue) -> OnnxValue:
    """Expand."""
    known = sizes.numbers
    return op(modules.Expand(), x, sizes) if known is None else op(modules.Expand(tuple(known.tolist())), x)


@onnxOp("Tile")
def tile(op: OnnxNode, x: OnnxValue, repeats: OnnxValue) -> OnnxValue:
    """Tile."""
    known = repeats.numbers
    return op(modules.Tile(), x, repeats) if known is None else op(modules.Tile(tuple(known.tolist())), x)


@onnxOp("Pad")
def pad(
    op: OnnxNode, x: OnnxValue, pads: OnnxValue | None = None, value: OnnxValue | None = None, axes: Any = None
) -> OnnxValue:
    """The widths are an attribute before opset 11; negative ones cut elements off."""
    mode = op.get("mode", "constant")
    if pads is None:
        pads = op.constant(np.array(op.get("pads"), np.int64))
    fill = op.get("value", 0.0) if value is None else value.numbers
    rank = op.rankOf(x)
    if axes is not None and axes.numbers is None:
        axes, pads = None, spread(op, pads, axes, rank)
    chosen = tuple(range(rank)) if axes is None else tuple(int(a) % rank for a in axes.numbers)
    known = None if pads.numbers is None or fill is None else pads.numbers.tolist()  # the fill's input is after pads
    pairs = None if known is None else tuple(zip(known[: len(chosen)], known[len(chosen) :], strict=True)) or None
    fillValue = 0.0 if fill is None else np.ravel(fill)[0].item()
    while mode == "reflect" and pairs and axes is None and any(isBeyond(n, both) for n, both in zip(x.shape, pairs)):
        parts = [tuple(min(side, n - 1) if n > 1 else side for side in both) for n, both in zip(x.shape, pairs)]
        pairs = tuple((a - b, c - d) for (a, c), (b, d) in zip(pairs, parts))
        x = op(modules.Pad(tuple(parts), mode), x)
    module = modules.Pad(pairs, mode, fillValue, axes=None if chosen == tuple(range(rank)) else chosen)
    return op(module, x, *([] if pairs else [pads]), *([value] if fill is None else []))


def isBeyond(size: Any, both: tuple) -> bool:
    """True if a reflection is longer than the axis, so that it reflects again."""
    return isinstance(size, int) and size > 1 and max(both) >= size


def spread(op: OnnxNode, pads: OnnxValue, axes: OnnxValue, rank: int) -> OnnxValue:
    """Pads of all axes; 0 for axes that the input does not name."""
    around = op.constant(np.array(rank, axes.dtype))
    none = op.constant(np.zeros(rank, np.int64))
    chosen = op(modules.Mod(), axes, around)
    ends = op(modules.Split(0, 2), pads)
    return op(modules.Concat(0), *[op(ScatterElements(0), none, chosen, end) for end in ends])


@onnxOp("Trilu")
def trilu(op: OnnxNode, x: OnnxValue, diagonal: OnnxValue | None = None) -> OnnxValue:
    """Trilu."""
    upper = bool(op.get("upper", 1))
    if diagonal is not None and diagonal.numbers is None:
        return op(Trilu(upper, None), x, diagonal)
    return op(Trilu(upper, 0 if diagonal is None else int(diagonal.numbers.ravel()[0])), x)


@onnxOp("Range")
def ranged(op: OnnxNode, start: OnnxValue, stop: OnnxValue, step: OnnxValue) -> OnnxValue:
    """Range; its limits may have one axis, of length one, as functions of the standard write them; none is trained."""
    known = [op.constant(limit.array) if limit.isWeight else limit for limit in (start, stop, step)]
    limits = [op(modules.Squeeze((0,)), limit) if limit.shape == (1,) else limit for limit in known]
    return op(modules.Range(), *limits)


@onnxOp("EyeLike")
def eyeLike(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """EyeLike."""
    kind = op.get("dtype")
    return op(modules.EyeLike(op.get("k", 0), x.dtype if kind is None else dtypeOf(kind)), x)


@onnxOp("DepthToSpace")
def depthToSpace(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """DepthToSpace."""
    b = op.get("blocksize")
    c, h, w = pictureOf(op, x)
    maps, isDepthFirst = c // (b * b), op.choice("mode", "DCR", "CRD") == "DCR"
    parts, order = ((b, b, maps), (0, 3, 4, 1, 5, 2)) if isDepthFirst else ((maps, b, b), (0, 1, 4, 2, 5, 3))
    lengths = op(modules.Shape(2), x)
    transposed = op(modules.Transpose(order), reshaped(op, x, x, parts, (h, w), lengths))
    scaled = op(Pointwise(formula="n * b", b=b), lengths)
    return reshaped(op, transposed, x, (maps,), (h * b, w * b), scaled)


@onnxOp("SpaceToDepth")
def spaceToDepth(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """SpaceToDepth."""
    b = op.get("blocksize")
    c, h, w = pictureOf(op, x)
    order = (0, 3, 5, 1, 2, 4) if op.choice("mode", "DCR", "CRD") == "DCR" else (0, 1, 3, 5, 2, 4)
    halves = op(Pointwise(formula="n // b", b=b), op(modules.Shape(2), x))
    high, wide = op(modules.Split(0, 2), halves)
    transposed = op(modules.Transpose(order), reshaped(op, x, x, (c,), (h // b, b, w // b, b), high, b, wide, b))
    return reshaped(op, transposed, x, (c * b * b,), (h // b, w // b), halves)


def pictureOf(op: OnnxNode, x: OnnxValue) -> tuple:
    """Channels, height and width of pictures; lengths may be symbols.

    Raises    GraphError where the channels are not known
    """
    if op.rankOf(x) != 4 or isinstance(x.shape[1], Dim):
        op.refuse(f"wanted pictures (n, c, h, w) with a number for c, got {show(x.shape)}: give shapes=")
    return x.shape[1:]


def reshaped(
    op: OnnxNode, x: OnnxValue, batch: OnnxValue, maps: tuple, area: tuple, *lengths: OnnxValue | int
) -> OnnxValue:
    """x reshaped to (samples of `batch`, *maps, *area); if several sizes are open, `lengths` are the area as inputs."""
    shape = (batch.shape[0], *maps, *area)
    if sum(isinstance(size, Dim) for size in shape) <= 1:
        target = tuple(-1 if isinstance(size, Dim) else size for size in shape)
        return op(modules.Reshape(target, keepsZero=True), x)
    sizes = [op.constant(np.array([n])) if isinstance(n, int) else n for n in (*maps, *lengths)]
    return op(modules.Reshape(keepsZero=True), x, op(modules.Concat(0), op(modules.Shape(0, 1), batch), *sizes))
