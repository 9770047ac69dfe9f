"""ConvolutionWriters: convolutions and pools, with Pad nodes for padding that their operators do not support."""

from __future__ import annotations

from math import prod
from typing import Any

from puregraph import modules
from puregraph.core.errors import GraphError
from puregraph.modules.convolution import _Forward
from puregraph.modules.deconvolution import _Transposed
from puregraph.onnx.onnxwriter import OnnxStep, isWhole, writesOnnx
from puregraph.onnx.writers.operatorwriters import checkTypes

PADLESS = 22  # the first opset in which no window of a pool begins in the padding at the end


def optionsOf(stride: Any, pad: Any, dilation: Any) -> dict[str, Any]:
    """Stride, dilation and padding of windows; negative padding counts as 0."""
    pads = {"auto_pad": "SAME_UPPER"} if pad == "same" else {"pads": flat(pad, lambda side: max(side, 0))}
    return {"strides": list(stride), "dilations": list(dilation) if set(dilation) != {1} else None, **pads}


def flat(pairs: Any, change: Any) -> list[int]:
    """The paddings before all axes, then those after them, each changed."""
    return [change(both[side]) for side in (0, 1) for both in pairs]


def around(step: OnnxStep, x: str | None, pad: Any, out: str | None = None, sign: int = 1) -> str | None:
    """x with negative sides of a padding cut off; with sign -1, x with as many zeros added there instead."""
    missing = [] if pad == "same" else flat(pad, lambda side: sign * min(side, 0))
    if not any(missing):
        return x
    rank = len(pad)
    return step.op("Pad", x, step.whole(0, 0, *missing[:rank], 0, 0, *missing[rank:]), out=out)


def weightsOf(step: OnnxStep) -> tuple[str | None, str | None, tuple]:
    """The filters and the bias, parameters or inputs, and the size of a window."""
    if hasattr(step.module, "W"):
        return step.param("W"), step.param("b"), step.module.size
    _, W, b = [*step.inputs, None][:3]
    return W, b, tuple(step.shapes[1][2:])


@writesOnnx(_Forward)
def convolution(step: OnnxStep) -> None:
    """Conv, after a cut for negative padding."""
    W, b, size = weightsOf(step)
    windows = step.module.windows(size)
    options = {**optionsOf(*windows), "group": step.module.groups, "kernel_shape": sizesOf(size)}
    step.op("Conv", around(step, step.x, windows[1]), W, b, out=step.y, **options)


def sizesOf(size: tuple) -> list | None:
    """The size of a window; None if it is open."""
    return list(size) if all(map(isWhole, size)) else None


@writesOnnx(_Transposed)
def transposed(step: OnnxStep) -> None:
    """ConvTranspose; then zeros at positions that no window reaches, and the bias."""
    module, (W, b, size) = step.module, weightsOf(step)
    (stride, _, dilation), (inside, zeros) = module.windows(size), module.cut(size)
    options = {**optionsOf(stride, inside, dilation), "group": module.groups, "kernel_shape": sizesOf(size)}
    options["output_padding"] = [post % s for post, s in zip(module.postpads(len(size)), stride)]
    if not any(map(any, zeros)):
        step.op("ConvTranspose", step.x, W, b, out=step.y, **options)
        return
    y = step.op("ConvTranspose", step.x, W, **options)
    negative = [(-before, -after) for before, after in zeros]
    longer = around(step, y, negative, None if b else step.y, -1)
    if b:
        step.op("Add", longer, step.op("Unsqueeze", b, step.whole(*range(1, len(size) + 1))), out=step.y)


@writesOnnx(modules.MaxPoolNd, modules.AvgPoolNd, modules.LpPoolNd)
def pool(step: OnnxStep) -> None:
    """MaxPool, AveragePool, LpPool; a divisor other than the window's size is a Mul after it."""
    m = step.module
    x, options = around(step, step.x, m.pad), {"kernel_shape": list(m.size), **optionsOf(m.stride, m.pad, m.dilation)}
    if m.ceil and step.opset < PADLESS:
        checkWindows(step)
    options["ceil_mode"] = int(m.ceil) or None
    if isinstance(m, modules.MaxPoolNd):
        checkTypes(step, "MaxPool")
        step.op(
            "MaxPool", x, out=list(step.outputs[: len(m.outputNames)]), storage_order=int(m.columns) or None, **options
        )
    elif isinstance(m, modules.LpPoolNd) and m.p != int(m.p):
        raise GraphError(f"the p of ONNX's LpPool is a whole number, not {m.p}")
    elif isinstance(m, modules.LpPoolNd):
        step.op("LpPool", x, out=step.y, p=int(m.p), **options)
    elif m.divisor is None:
        step.op("AveragePool", x, out=step.y, count_include_pad=int(m.includePad), **options)
    elif m.ceil:
        raise GraphError("ONNX has no average pool with a divisor whose last window may go beyond the padding")
    else:
        y = step.op("AveragePool", x, count_include_pad=1, **options)
        step.op("Mul", y, step.constant(prod(m.size) / m.divisor, step.dtypes[0]), out=step.y)


def checkWindows(step: OnnxStep) -> None:
    """Check that old opsets have the same number of windows: they also count windows that begin in the padding.

    Raises    GraphError if the numbers differ
    """
    m = step.module
    for i, (k, s, d) in enumerate(zip(m.size, m.stride, m.dilation), 2):
        n, count = step.shapes[0][i], step.outshapes[0][i]
        if m.pad != "same" and isWhole(n) and count != -(-(n + sum(m.pad[i - 2]) - d * (k - 1) - 1) // s) + 1:
            raise GraphError(f"windows that would begin in the padding are left out from opset {PADLESS} on")
