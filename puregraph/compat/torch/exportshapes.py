"""Exportshapes: operations of ATen that move, select and join elements as modules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compat.torch.exportpointwise import sumOf, times
from puregraph.compat.torch.exportreader import ExportReader, NodeValue, aten, dtypeOf
from puregraph.modules import Concat, Expand, Gather, GatherElements, Pad, Reshape, Slice, Split, Tile, Transpose, Trilu

if TYPE_CHECKING:
    from puregraph.compat.torch.exportreader import Operand

OPEN_END_INDEX = 2**62  # from here on, an end of a slice is that of the axis


def reshaped(r: ExportReader, x: Operand, shape: Sequence[int]) -> NodeValue:
    """A value in another shape, in which 0 copies an axis."""
    value = r.asValue(x)
    return r.make(Reshape(tuple(shape)), value)


@aten("view", "reshape", "_unsafe_view", "flatten", "unflatten")
def view(r: ExportReader, x: Operand, *rest: object) -> NodeValue:
    """A Reshape that copies leading axes; the first axis that changes may be of any size."""
    value, wanted = r.asValue(x), tuple(r.result.shape)
    if wanted == value.shape:
        return value
    same = 0  # leading axes that stay; the next one may be of any size
    while same < min(len(wanted), len(value.shape)) and wanted[same] == value.shape[same]:
        same += 1
    target = [0] * same + list(wanted[same:])
    if same == 0 and target and math.prod(wanted):
        target[0] = -1
    return reshaped(r, value, target)


@aten("permute")
def permute(r: ExportReader, x: Any, axes: Any) -> NodeValue:
    """A Transpose."""
    return r.make(Transpose(tuple(a % len(axes) for a in axes)), x)


@aten("transpose.int", "t", "numpy_T")
def transpose(r: ExportReader, x: Operand, first: int = 0, second: int = 1) -> NodeValue:
    """A Transpose of two axes."""
    value = r.asValue(x)
    axes = list(range(len(value.shape)))
    if len(axes) > 1:
        axes[first], axes[second] = axes[second], axes[first]
    return r.make(Transpose(tuple(axes)), value)


def newAxes(r: ExportReader, x: Operand, axes: Sequence[int]) -> NodeValue:
    """A value with axes of length 1 at these positions of the result."""
    value = r.asValue(x)
    parts: list[Any] = [slice(None)] * len(value.shape)
    for axis in sorted(axes):
        parts.insert(axis, None)
    return r.make(Slice(tuple(parts)), value)


@aten("unsqueeze")
def unsqueeze(r: ExportReader, x: Operand, axis: int) -> NodeValue:
    """A new axis of length 1."""
    return newAxes(r, x, [axis % (len(r.asValue(x).shape) + 1)])


@aten("squeeze")
def squeeze(r: ExportReader, x: Any, axes: Any | None = None) -> NodeValue:
    """A value without axes of length 1."""
    value = r.asValue(x)
    listed = range(len(value.shape)) if axes is None else axes if isinstance(axes, list) else [axes]
    gone = {axis % len(value.shape) for axis in listed}
    parts = [0 if i in gone and size == 1 else slice(None) for i, size in enumerate(value.shape)]
    return r.make(Slice(tuple(parts)), value) if 0 in parts else value


@aten("select.int")
def select(r: ExportReader, x: Operand, axis: int, index: int) -> NodeValue:
    """An element of an axis."""
    value = r.asValue(x)
    parts: list[Any] = [slice(None)] * len(value.shape)
    parts[axis] = index
    return r.make(Slice(tuple(parts)), value)


@aten("slice", "narrow")
def sliced(r: ExportReader, x: Operand, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> NodeValue:
    """A slice along an axis."""
    value = r.asValue(x)
    if r.operation == "narrow":
        end = start + end
    size = value.shape[axis]
    isAll = (start or 0) in (0, -size) and (end is None or end >= size) and step == 1
    if isAll:
        return value
    parts: list[Any] = [slice(None)] * len(value.shape)
    parts[axis] = slice(start or None, None if end is None or end >= OPEN_END_INDEX else end, step)
    return r.make(Slice(tuple(parts)), value)


@aten("cat", "concat", "concatenate")
def cat(r: ExportReader, parts: Sequence[Operand], axis: int = 0) -> NodeValue:
    """A Concat in the common dtype."""
    values = [v for v in map(r.asValue, parts) if v.shape != (0,)]
    dtype = np.result_type(*[v.dtype for v in values])
    values = [r.cast(v, dtype) for v in values]
    return values[0] if len(values) == 1 else r.make(Concat(axis), *values)


@aten("stack")
def stack(r: ExportReader, parts: Sequence[Operand], axis: int = 0) -> NodeValue:
    """A Concat along a new axis."""
    axis %= len(r.asValue(parts[0]).shape) + 1
    return cat(r, [newAxes(r, part, [axis]) for part in parts], axis)


@aten("split.Tensor", "split_with_sizes", "split", "chunk", "tensor_split")
def split(r: ExportReader, x: Operand, *rest: object) -> list[NodeValue]:
    """A Split into parts of the sizes that torch gives."""
    value, shapes = r.asValue(x), [tuple(part.shape) for part in r.result]
    axis = next((i for i in range(len(value.shape)) if shapes[0][i] != value.shape[i]), None)
    if axis is None:
        return [value]
    sizes = tuple(shape[axis] for shape in shapes)
    if all(sizes):
        return r.several(Split(axis, sizes), value)
    raise NotImplementedError(f"parts of sizes {sizes}")


@aten("unbind")
def unbind(r: ExportReader, x: Operand, axis: int = 0) -> list[NodeValue]:
    """The elements of an axis."""
    return [select(r, x, axis, i) for i in range(r.asValue(x).shape[axis])]


@aten("expand", "expand_as", "broadcast_to")
def expand(r: ExportReader, x: Operand, *rest: object) -> NodeValue:
    """An Expand to the shape of the example."""
    value, wanted = r.asValue(x), tuple(r.result.shape)
    return value if wanted == value.shape else r.make(Expand(wanted), value)


@aten("repeat")
def repeat(r: ExportReader, x: Operand, counts: Any) -> NodeValue:
    """A Tile."""
    value = r.asValue(x)
    if len(counts) > len(value.shape):
        value = newAxes(r, value, range(len(counts) - len(value.shape)))
    return value if all(n == 1 for n in counts) else r.make(Tile(tuple(counts)), value)


@aten("flip")
def flip(r: ExportReader, x: Operand, axes: Any) -> NodeValue:
    """A Slice in reverse order."""
    value = r.asValue(x)
    parts: list[Any] = [slice(None)] * len(value.shape)
    for axis in axes:
        parts[axis] = slice(None, None, -1)
    return r.make(Slice(tuple(parts)), value)


@aten("roll")
def roll(r: ExportReader, x: Operand, shifts: Any, axes: Any = ()) -> NodeValue:
    """A Concat of two slices along each axis."""
    if not axes:
        raise NotImplementedError("of all axes as one")
    value = r.asValue(x)
    for shift, axis in zip(shifts, axes):
        size = value.shape[axis]
        cut = -shift % size
        if cut:
            parts: list[Any] = [slice(None)] * len(value.shape)
            parts[axis] = slice(cut, None)
            tail = r.make(Slice(tuple(parts)), value)
            parts[axis] = slice(None, cut)
            value = r.make(Concat(axis), tail, r.make(Slice(tuple(parts)), value))
    return value


@aten("constant_pad_nd", "pad")
def pad(r: ExportReader, x: Any, sizes: Any, *rest: Any) -> NodeValue:
    """A Pad; negative widths cut off."""
    mode, fill = "constant", 0.0
    for option in rest:
        if isinstance(option, str):
            mode = option
        elif option is not None:
            fill = float(option)
    if mode not in ("constant", "reflect", "replicate"):
        raise NotImplementedError(f"mode {mode}")
    value = r.asValue(x)
    pairs = list(zip(sizes[::2], sizes[1::2]))[::-1]
    if any(n < 0 for pair in pairs for n in pair):
        parts: list[Any] = [slice(None)] * (len(value.shape) - len(pairs))
        parts += [slice(max(-a, 0), -max(-b, 0) or None) for a, b in pairs]
        value = r.make(Slice(tuple(parts)), value)
        pairs = [(max(a, 0), max(b, 0)) for a, b in pairs]
    if not any(n for pair in pairs for n in pair):
        return value
    kind = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}[mode]
    return r.make(Pad(tuple(pairs), kind, fill), value)


@aten("reflection_pad1d", "reflection_pad2d")
def reflectionPad(r: ExportReader, x: Operand, sizes: int | Sequence[int]) -> NodeValue:
    """A Pad with mirrored elements."""
    return pad(r, x, sizes, "reflect")


@aten("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replicationPad(r: ExportReader, x: Operand, sizes: int | Sequence[int]) -> NodeValue:
    """A Pad with the outermost elements."""
    return pad(r, x, sizes, "replicate")


@aten("index_select")
def indexSelect(r: ExportReader, x: Operand, axis: int, index: Operand) -> NodeValue:
    """A Gather along an axis."""
    return r.make(Gather(axis), x, index)


@aten("gather")
def gather(r: ExportReader, x: Operand, axis: int, index: Operand, *rest: object) -> NodeValue:
    """A GatherElements along an axis."""
    return r.make(GatherElements(axis), x, index)


@aten("index.Tensor")
def index(r: ExportReader, x: Operand, indices: Any) -> NodeValue:
    """One index, or one for each of some neighbouring axes, which are first made one axis."""
    value = r.asValue(x)
    axes = [i for i, part in enumerate(indices) if part is not None]
    if not axes or axes != list(range(axes[0], axes[-1] + 1)):
        raise NotImplementedError("indices of axes that are not adjacent")
    parts = [r.asValue(indices[axis]) for axis in axes]
    if any(part.dtype.kind == "b" for part in parts):
        raise NotImplementedError("a mask as an index: its size depends on the data")
    first, *others = parts
    if not others:
        return r.make(Gather(axes[0]), value, first)
    sizes = [value.shape[axis] for axis in axes]
    total: Any = first
    for part, size in zip(others, sizes[1:]):
        total = sumOf(r, times(r, total, size), part)
    flat = reshaped(r, value, [*[0] * axes[0], math.prod(sizes), *value.shape[axes[-1] + 1 :]])
    return r.make(Gather(axes[0]), flat, total)


@aten("clone", "contiguous", "detach", "alias", "lift_fresh_copy", "dropout", "feature_dropout", "detach_")
def same(r: ExportReader, x: Any, *rest: object, **options: object) -> Any:
    """The value itself."""
    return r.kept(x)


@aten("_to_copy", "to", "type_as", "float", "_assert_tensor_metadata", "to.dtype")
def converted(r: ExportReader, x: Operand, *rest: Any, **options: object) -> Any:
    """A Cast where the dtype changes."""
    return x if r.result is None else r.cast(x, dtypeOf(r.result))


@aten("_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range_for_size")
def nothing(r: ExportReader, *rest: object, **options: object) -> None:
    """A check of torch, which needs no node."""


@aten("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "empty_like", "new_empty")
def filled(r: ExportReader, x: Operand, *rest: object, **options: object) -> Any:
    """A constant tensor in the shape of a value."""
    import torch

    numbers = [n for n in rest if isinstance(n, (int, float))]
    value = 1 if "ones" in r.operation else numbers[-1] if "full" in r.operation else 0
    return torch.full(tuple(r.result.shape), value, dtype=r.result.dtype)


@aten("tril", "triu")
def triangle(r: ExportReader, x: Operand, diagonal: int = 0) -> NodeValue:
    """A Trilu."""
    return r.make(Trilu(r.operation == "triu", diagonal), x)


@aten("pixel_shuffle")
def pixelShuffle(r: ExportReader, x: Operand, factor: int) -> NodeValue:
    """Channels moved to positions."""
    n, maps, height, width = r.asValue(x).shape
    split = reshaped(r, x, (0, maps // factor**2, factor, factor, height, width))
    moved = r.make(Transpose((0, 1, 4, 2, 5, 3)), split)
    return reshaped(r, moved, (0, maps // factor**2, height * factor, width * factor))
