"""SignalOps: Fourier transforms, also of frames of a signal; random numbers; BitCast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph import modules
from puregraph.core.dim import Dim
from puregraph.modules.bits import BitCast
from puregraph.modules.dropout import Multinomial
from puregraph.modules.signal import DFT
from puregraph.onnx.modelfile import NUMERIC, dtypeOf, notNumeric
from puregraph.onnx.opregistry import onnxOp

if TYPE_CHECKING:
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.onnxvalue import OnnxValue


@onnxOp("DFT", since=17)
def dft(op: OnnxNode, x: OnnxValue, length: OnnxValue | None = None, axis: OnnxValue | None = None) -> OnnxValue:
    """The axis is an attribute before opset 20."""
    axisNumber = op.known(axis, "the axis") if axis is not None else op.get("axis", 1 if op.version < 20 else -2)
    count = None if length is None else int(np.ravel(op.known(length, "the length"))[0])
    module = DFT(int(np.ravel(axisNumber)[0]), count, bool(op.get("inverse", 0)), bool(op.get("onesided", 0)))
    return op(module, x)


@onnxOp("STFT", since=17)
def stft(op: OnnxNode, x: OnnxValue, step: Any, window: Any = None, length: OnnxValue | None = None) -> OnnxValue:
    """Gather the signal into frames, multiply them by the window, and transform each."""
    step, n = int(np.ravel(op.known(step, "the step"))[0]), x.shape[1]
    size = window.shape[0] if length is None else int(np.ravel(op.known(length, "the length of a frame"))[0])
    if isinstance(n, Dim) or isinstance(size, Dim):
        op.refuse("the length of the signal is known only with the data: give shapes= of the model's inputs")
    if step < 1 or not 0 < size <= n:
        op.refuse(f"wanted frames of 1 to {n} samples and a step of at least 1, got {size} and {step}")
    op.builder.budget.spend("bytes of arrays", 8 * size * ((n - size) // step + 1))
    at = np.arange(0, n - size + 1, step)[:, None] + np.arange(size)
    frames = op(modules.Gather(1, fromEnd=True), x, op.constant(at))
    if window is not None:
        frames = op(modules.Mul(), frames, op(modules.Reshape((-1, 1)), window))
    return op(DFT(2, None, False, bool(op.get("onesided", 1))), frames)


@onnxOp("MelWeightMatrix", since=17)
def melWeightMatrix(
    op: OnnxNode, bins: Any, length: Any, rate: OnnxValue, low: OnnxValue, high: OnnxValue
) -> OnnxValue:
    """A constant: one triangle over the frequencies for each bin; their edges are equally spaced in mel."""
    bins, length, rate, low, high = (
        np.ravel(op.known(v, what))[0]
        for v, what in zip((bins, length, rate, low, high), ("bins", "the length", "the rate", "an edge", "an edge"))
    )
    count = length // 2 + 1
    op.builder.budget.spend("bytes of arrays", 8 * max(int(count), 1) * max(int(bins), 1))
    first, last = 2595 * np.log10(1 + np.array([low, high]) / 700)
    edges = first + np.arange(bins + 2) * ((last - first) / (bins + 2))
    at = ((length + 1) * (700 * (10 ** (edges / 2595) - 1)) // rate).astype(int)
    weights = np.zeros((count, bins))
    for i, (first, centre, last) in enumerate(zip(at, at[1:], at[2:])):
        if centre == first:
            weights[centre, i] = 1
        else:
            weights[first : centre + 1, i] = (np.arange(first, centre + 1) - first) / (centre - first)
        if last > centre:
            weights[centre:last, i] = (last - np.arange(centre, last)) / (last - centre)
    return op.constant(weights.astype(dtypeOf(op.get("output_datatype", 1))))


@onnxOp("BitCast", since=26)
def bitCast(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """BitCast."""
    kind = op.get("to")
    if kind not in NUMERIC:
        op.refuse(notNumeric(kind))
    return op(BitCast(dtypeOf(kind)), x)


@onnxOp("Multinomial")
def multinomial(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Random classes, new in every pass; a seed repeats them in every graph of the model."""
    return op(op.seeded(Multinomial(op.get("sample_size", 1), dtypeOf(op.get("dtype", 6)).name)), x)


@onnxOp("RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike")
def randomNumbers(op: OnnxNode, x: OnnxValue | None = None) -> OnnxValue:
    """Random numbers, new in every pass. A seed repeats them in every graph of the model; runtimes draw other
    numbers."""
    if x is None:
        x = op(modules.Full(0.0, np.float32), op.constant(np.array(op.get("shape"), np.int64)))
    kind = op.get("dtype")
    dtype = (x.dtype if op.type.endswith("Like") else np.dtype(np.float32)) if kind is None else dtypeOf(kind)
    if op.type.startswith("RandomUniform"):
        low, high = op.get("low", 0.0), op.get("high", 1.0)
        return op(op.seeded(modules.RandomLike("uniform", low, high - low, dtype.name)), x)
    return op(op.seeded(modules.RandomLike("normal", op.get("mean", 0.0), op.get("scale", 1.0), dtype.name)), x)
