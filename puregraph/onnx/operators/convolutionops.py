"""ConvolutionOps: convolutions and their transposes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from puregraph import modules
from puregraph.core.dim import Dim
from puregraph.modules.convolution import Convolve
from puregraph.modules.deconvolution import Deconvolve
from puregraph.onnx.opregistry import onnxOp

if TYPE_CHECKING:
    from puregraph.graph.module import Module
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.onnxvalue import OnnxValue

PADDINGS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def windowOf(op: OnnxNode, x: OnnxValue, size: tuple) -> tuple[tuple, tuple | str, tuple]:
    """Stride, (before, after) and dilation for each axis; "same" where the lengths are open."""
    rank = len(size)
    stride, dilation = op.lengths("strides", rank, 1), op.lengths("dilations", rank, 1)
    kind = op.choice("auto_pad", *PADDINGS)
    if kind == "VALID":
        return stride, ((0, 0),) * rank, dilation
    if kind in ("SAME_UPPER", "SAME_LOWER"):
        pads = []
        for length, k, s, d in zip(x.shape[2:], size, stride, dilation):
            if isinstance(length, Dim) and s != 1 and kind == "SAME_UPPER":
                return stride, "same", dilation
            if isinstance(length, Dim) and s != 1:
                op.refuse(f"auto_pad {kind} with stride {s} needs the lengths of '{x.name}': give shapes=")
            total = d * (k - 1) if s == 1 else max(0, (-(-length // s) - 1) * s + d * (k - 1) + 1 - length)
            pads.append((total // 2, total - total // 2) if kind == "SAME_UPPER" else (total - total // 2, total // 2))
        return stride, tuple(pads), dilation
    flat = op.lengths("pads", 2 * rank, 0)
    return stride, tuple(zip(flat[:rank], flat[rank:])), dilation


@onnxOp("Conv")
def convolution(op: OnnxNode, x: OnnxValue, W: OnnxValue, b: OnnxValue | None = None) -> OnnxValue:
    """Conv."""
    size = op.kernel(W)
    stride, pad, dilation = windowOf(op, x, size)
    groups = op.get("group", 1)
    isLayer = all(v is None or v.array is not None and not v.isSplit for v in (W, b))
    if not isLayer:
        return op(Convolve(stride, pad, dilation, groups), x, W, b)
    if op.choice("auto_pad", *PADDINGS) == "SAME_UPPER" and any(s != 1 for s in stride):
        pad = "same"  # for any lengths, as it was written
    makes = {1: modules.Conv1D, 2: modules.Conv2D, 3: modules.Conv3D}
    module = makes.get(len(size), modules.ConvNd)(
        W.shape[1] * groups, W.shape[0], size, stride, pad, dilation, useBias=b is not None, groups=groups
    )
    return op(filled(op, module, W, b), x)


def filled(op: OnnxNode, module: Module, W: OnnxValue, b: OnnxValue | None) -> Module:
    """A module with these arrays for its parameters."""
    return op.builder.fill(module, W=W) if b is None else op.builder.fill(module, W=W, b=b)


@onnxOp("ConvTranspose")
def transposed(op: OnnxNode, x: OnnxValue, W: OnnxValue, b: OnnxValue | None = None) -> OnnxValue:
    """ConvTranspose."""
    size = op.kernel(W)
    rank, groups = len(size), op.get("group", 1)
    post = op.lengths("output_padding", rank, 0)
    stride, dilation = op.lengths("strides", rank, 1), op.lengths("dilations", rank, 1)
    flat = op.lengths("pads", 2 * rank, 0)
    pad = tuple(zip(flat[:rank], flat[rank:]))
    kind, wanted = op.choice("auto_pad", *PADDINGS), op.get("output_shape")
    if kind == "VALID":
        pad = ((0, 0),) * rank
    if wanted is not None or kind.startswith("SAME"):
        pad = ()
        for i, (k, s, d) in enumerate(zip(size, stride, dilation)):
            length = x.shape[2 + i]
            if wanted is None:
                total = d * (k - 1) + 1 + post[i] - s
            elif isinstance(length, Dim):
                op.refuse(f"output_shape needs the lengths of '{x.name}': give shapes=")
            else:
                total = s * (length - 1) + post[i] + d * (k - 1) + 1 - wanted[-rank:][i]
            half = total // 2
            if total < 0:
                pad = (*pad, (0, total))
                continue
            pad = (*pad, (half, total - half) if kind == "SAME_UPPER" else (total - half, half))
    isLayer = all(v is None or v.array is not None and not v.isSplit for v in (W, b))
    if not isLayer or any(p >= max(s, d) for p, s, d in zip(post, stride, dilation)):
        return op(Deconvolve(stride, pad, dilation, post, groups), x, W, b)
    make = modules.Deconv2D if rank == 2 else modules.DeconvNd
    module = make(
        W.shape[0], W.shape[1] * groups, size, stride, pad, dilation, post, useBias=b is not None, groups=groups
    )
    return op(filled(op, module, W, b), x)
