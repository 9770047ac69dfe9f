"""Exportlayers: operations of ATen with weights or windows as modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compat.torch.exportreader import ExportReader, NodeValue, aten
from puregraph.compat.torch.exportshapes import newAxes, select
from puregraph.compat.torch.tensors import asArray
from puregraph.modules import (
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    Add,
    Attention,
    AvgPoolNd,
    BatchNorm,
    ConvNd,
    DeconvNd,
    Embedder,
    Gather,
    GroupNorm,
    LayerNorm,
    Linear,
    LogSoftMax,
    MatMul,
    Max,
    MaxPoolNd,
    Mean,
    MulAddConst,
    Resize,
    RmsNorm,
    SoftMax,
)
from puregraph.modules.convolution import Conv1D, Conv2D, Conv3D

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from puregraph.compat.torch.exportreader import Operand
    from puregraph.graph.module import Module

CONVOLUTIONS = {1: Conv1D, 2: Conv2D, 3: Conv3D}


def areWeights(*tensors: torch.Tensor | None) -> bool:
    """True if all are tensors of the module, or left out, and none is computed."""
    return not any(isinstance(t, NodeValue) for t in tensors)


def perAxis(value: Any, rank: int) -> tuple[int, ...]:
    """A number for each axis."""
    listed = list(value) if isinstance(value, (list, tuple)) else [value]
    return tuple(int(n) for n in (listed * rank if len(listed) == 1 else listed))


@aten("linear")
def linear(r: ExportReader, x: Operand, weight: Any, bias: Operand | None = None) -> NodeValue:
    """A Linear with torch's weights, (out, in), or a product with weights that are computed."""
    if not areWeights(weight, bias):
        product = r.make(MatMul(transpB=True), x, weight)
        return product if bias is None else r.make(Add(), product, bias)

    def make() -> Module:
        outsize, insize = weight.shape
        module = Linear(insize, outsize, bias is not None, transpose=True)
        return r.fill(module, W=weight, b=bias)

    return r.make(r.layer("linear", (weight, bias), make), x, owner=r.owner(weight))


@aten("addmm")
def addmm(r: ExportReader, bias: Any, x: Operand, weight: Any, beta: Any = 1, alpha: Any = 1) -> NodeValue:
    """A Linear with weights (in, out), as GPT-2 has them, or a sum and a product."""
    if beta != 1 or alpha != 1 or not areWeights(weight, bias) or bias.dim() != 1:
        product = scaled(r, r.make(MatMul(), x, weight), alpha)
        return r.make(Add(), product, scaled(r, bias, beta))

    def make() -> Module:
        insize, outsize = weight.shape
        return r.fill(Linear(insize, outsize), W=weight, b=bias)

    return r.make(r.layer("addmm", (weight, bias), make), x, owner=r.owner(weight))


def scaled(r: ExportReader, x: Any, factor: Any) -> Operand:
    """A value times a number."""
    return x if factor == 1 else r.make(MulAddConst(float(factor)), x)


@aten("matmul", "mm", "bmm")
def matmul(r: ExportReader, a: Operand, b: Operand) -> NodeValue:
    """A product of matrices."""
    return r.make(MatMul(), a, b)


@aten("baddbmm")
def baddbmm(r: ExportReader, c: Operand, a: Operand, b: Operand, beta: Operand = 1, alpha: Operand = 1) -> NodeValue:
    """A product of matrices, and a sum."""
    return r.make(Add(), scaled(r, c, beta), scaled(r, r.make(MatMul(), a, b), alpha))


@aten("conv1d", "conv2d", "conv3d")
def conv(
    r: ExportReader,
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    stride: int | Sequence[int] = 1,
    pad: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> NodeValue:
    """A convolution of one to three axes."""
    return convolution(r, x, weight, bias, stride, pad, dilation, False, 0, groups)


@aten("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def convTranspose(
    r: ExportReader,
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    stride: int | Sequence[int] = 1,
    pad: int | Sequence[int] = 0,
    post: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> NodeValue:
    """A transposed convolution."""
    return convolution(r, x, weight, bias, stride, pad, dilation, True, post, groups)


@aten("convolution")
def convolution(
    r: ExportReader,
    x: Operand,
    weight: Any,
    bias: Operand,
    stride: Any,
    pad: Any,
    dilation: Any,
    isBack: bool,
    post: int | Sequence[int],
    groups: int,
) -> NodeValue:
    """A ConvNd or DeconvNd with torch's weights."""
    if not areWeights(weight, bias):
        raise NotImplementedError("its weights are computed")
    rank = weight.dim() - 2
    size, stride, dilation = tuple(weight.shape[2:]), perAxis(stride, rank), perAxis(dilation, rank)
    if pad == "same":
        pad = [(d * (n - 1)) // 2 for d, n in zip(dilation, size)]
        ends = [d * (n - 1) - before for d, n, before in zip(dilation, size, pad)]
    else:
        pad = list(perAxis(0 if pad == "valid" else pad, rank))
        ends = pad
    pads = tuple(zip(pad, ends))

    def make() -> Module:
        inmaps, outmaps = weight.shape[1] * groups, weight.shape[0]
        if isBack:
            module: Any = DeconvNd(
                weight.shape[0],
                weight.shape[1] * groups,
                size,
                stride,
                pads,
                dilation,
                useBias=bias is not None,
                groups=groups,
                postpad=perAxis(post, rank),
            )
        else:
            kind = CONVOLUTIONS.get(rank, ConvNd)
            module = kind(inmaps, outmaps, size, stride, pads, dilation, bias is not None, groups=groups)
        return r.fill(module, W=weight, b=bias)

    key = ("conv", stride, pads, dilation, isBack, groups)
    return r.make(r.layer(key, (weight, bias), make), x, owner=r.owner(weight))


@aten("_native_batch_norm_legit_no_training")
def batchNorm(
    r: ExportReader,
    x: Operand,
    weight: Any,
    bias: Operand,
    mean: Any,
    var: Operand,
    momentum: float,
    epsilon: float,
) -> list[NodeValue]:
    """A BatchNorm with torch's weights and running statistics."""

    def make() -> Module:
        module = BatchNorm(mean.shape[0], epsilon, momentum, weight is not None)
        count = getattr(r.submodule(r.path), "num_batches_tracked", None)
        return r.fill(module, scale=weight, bias=bias, mean=mean, var=var, count=count)

    return [r.make(r.layer("norm", (weight, bias, mean, var), make), x, owner=r.owner(mean))]


@aten("layer_norm")
def layerNorm(
    r: ExportReader,
    x: Operand,
    shape: Any,
    weight: Any | None = None,
    bias: Operand | None = None,
    epsilon: float = 1e-5,
    *rest: object,
) -> NodeValue:
    """A LayerNorm over the last axes."""

    def make() -> Module:
        module = LayerNorm(tuple(shape), epsilon, weight is not None, useBias=bias is not None)
        return r.fill(module, scale=weight, bias=bias)

    return r.make(r.layer("layernorm", (weight, bias), make), x, owner=r.owner(weight))


@aten("group_norm")
def groupNorm(
    r: ExportReader,
    x: Any,
    groups: int,
    weight: Any | None = None,
    bias: Any | None = None,
    epsilon: float = 1e-5,
    *rest: object,
) -> NodeValue:
    """A GroupNorm."""

    def make() -> Module:
        module = GroupNorm(groups, x.shape[1], epsilon, weight is not None, useBias=bias is not None)
        return r.fill(module, scale=weight, bias=bias)

    return r.make(r.layer(("groupnorm", groups), (weight, bias), make), x, owner=r.owner(weight))


@aten("rms_norm")
def rmsNorm(r: ExportReader, x: Any, shape: Any, weight: Any | None = None, epsilon: float | None = None) -> NodeValue:
    """An RmsNorm over the last axes."""

    def make() -> Module:
        machine = float(np.finfo(x.dtype).eps)
        return r.fill(RmsNorm(tuple(shape), machine if epsilon is None else epsilon, weight is not None), scale=weight)

    return r.make(r.layer("rmsnorm", (weight,), make), x, owner=r.owner(weight))


@aten("embedding")
def embedding(r: ExportReader, weight: Any, indices: Operand, *rest: object) -> NodeValue:
    """An Embedder, or rows of a computed table."""
    if not areWeights(weight):
        return r.make(Gather(0), weight, indices)

    def make() -> Module:
        return r.fill(Embedder(*weight.shape), W=weight)

    value = r.asValue(indices)
    return r.make(r.layer("embedding", (weight,), make), value, owner=r.owner(weight), dtype=asArray(weight).dtype)


@aten("scaled_dot_product_attention")
def attention(
    r: ExportReader,
    q: Any,
    k: Operand,
    v: Operand,
    mask: Operand | None = None,
    dropout: float = 0.0,
    isCausal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
) -> NodeValue:
    """An Attention over four axes, to which a fourth is added where there are three."""
    rank = len(q.shape)
    if rank == 3:
        q, k, v = (newAxes(r, x, [1]) for x in (q, k, v))
        mask = None if mask is None or len(r.asValue(mask).shape) < 3 else newAxes(r, mask, [1])
        return select(r, r.make(Attention(isCausal, scale), q, k, v, mask), 1, 0)
    if rank != 4:
        raise NotImplementedError(f"wanted queries of 3 or 4 axes, got {rank}")
    return r.make(Attention(isCausal, scale), q, k, v, mask)


@aten("softmax.int", "_softmax", "special_softmax")
def softmax(r: ExportReader, x: Operand, axis: int, dtype: torch.dtype | None = None) -> NodeValue:
    """A SoftMax."""
    return r.make(SoftMax(axis), x)


@aten("log_softmax.int", "_log_softmax")
def logSoftmax(r: ExportReader, x: Any, axis: int, dtype: Any | None = None) -> NodeValue:
    """A LogSoftMax."""
    return r.make(LogSoftMax(axis), x)


# Windows --------------------------------------------------------------------------------------------------------------


def windows(size: Any, stride: Any, pad: Any, rank: int) -> tuple[Any, Any, Any]:
    """Size, stride and pads of windows for each axis."""
    size = perAxis(size, rank)
    pads = perAxis(pad, rank)
    return size, size if not stride else perAxis(stride, rank), tuple((n, n) for n in pads)


@aten("max_pool1d", "max_pool2d", "max_pool3d")
def maxPool(
    r: ExportReader,
    x: Any,
    size: int | Sequence[int],
    stride: int | Sequence[int] = (),
    pad: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    isOpen: bool = False,
) -> NodeValue:
    """A max pooling, also of an open end or with dilation."""
    rank = len(x.shape) - 2
    size, stride, pads = windows(size, stride, pad, rank)
    return r.make(MaxPoolNd(size, stride, pads, dilation=perAxis(dilation, rank), ceil=isOpen), x)


@aten("max_pool2d_with_indices", "max_pool3d_with_indices")
def maxPoolIndices(r: ExportReader, x: Operand, *rest: object) -> list[NodeValue]:
    """A max pooling; its indices are not made."""
    return [maxPool(r, x, *rest)]


@aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avgPool(
    r: ExportReader,
    x: Any,
    size: int | Sequence[int],
    stride: int | Sequence[int] = (),
    pad: int | Sequence[int] = 0,
    isOpen: bool = False,
    includePad: bool = True,
    divisor: Any = None,
) -> NodeValue:
    """An average pooling."""
    size, stride, pads = windows(size, stride, pad, len(x.shape) - 2)
    return r.make(AvgPoolNd(size, stride, pads, includePad, ceil=isOpen, divisor=divisor), x)


@aten("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d")
def adaptiveAvgPool(r: ExportReader, x: Operand, sizes: int | Sequence[int]) -> NodeValue:
    """An average pooling to given lengths."""
    return adaptive(r, x, sizes, Mean, AvgPoolNd, AdaptiveAvgPool)


@aten("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptiveMaxPool(r: ExportReader, x: Operand, sizes: int | Sequence[int]) -> list[NodeValue]:
    """A max pooling to given lengths."""
    return [adaptive(r, x, sizes, Max, MaxPoolNd, AdaptiveMaxPool)]


def adaptive(r: ExportReader, x: Any, sizes: Any, reduction: Any, pool: Any, general: Any) -> NodeValue:
    """A pooling to given sizes: all of an axis, windows that divide it, or of several sizes."""
    lengths = x.shape[2:]
    wanted = tuple(n if n is not None else length for n, length in zip(perAxis(sizes, len(lengths)), lengths))
    if all(n == 1 for n in wanted):
        return r.make(reduction(tuple(range(2, len(x.shape))), keepdims=True), x)
    if any(length % n for n, length in zip(wanted, lengths)):
        return r.make(general(wanted), x)
    return r.make(pool(tuple(length // n for n, length in zip(wanted, lengths))), x)


@aten("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def upsampleNearest(r: ExportReader, x: Operand, sizes: int | Sequence[int], *rest: object) -> NodeValue:
    """A Resize to the nearest elements."""
    return resized(r, x, mode="nearest", coordinates="asymmetric", rounding="floor")


@aten("upsample_bilinear2d", "upsample_linear1d", "upsample_trilinear3d", "_upsample_bilinear2d_aa")
def upsampleLinear(
    r: ExportReader, x: Operand, sizes: int | Sequence[int], alignCorners: bool = False, *rest: object
) -> NodeValue:
    """A linear Resize."""
    coordinates = "align_corners" if alignCorners else "half_pixel"
    return resized(r, x, mode="linear", coordinates=coordinates, antialias=r.operation.endswith("_aa"))


@aten("upsample_bicubic2d")
def upsampleCubic(
    r: ExportReader, x: Operand, sizes: int | Sequence[int], alignCorners: bool = False, *rest: object
) -> NodeValue:
    """A cubic Resize."""
    return resized(r, x, mode="cubic", coordinates="align_corners" if alignCorners else "half_pixel")


def resized(r: ExportReader, x: Any, **options: Any) -> NodeValue:
    """A value resized to the lengths that torch gives it."""
    lengths = tuple(r.result.shape[2:])
    axes = tuple(range(2, len(x.shape)))
    if all(n % m == 0 for n, m in zip(lengths, x.shape[2:])):
        factors = tuple(float(n // m) for n, m in zip(lengths, x.shape[2:]))
        return r.make(Resize(axes, "scales", factors, **options), x)
    return r.make(Resize(axes, "sizes", lengths, **options), x)
