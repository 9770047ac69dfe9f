"""LayerWriters: layers with weights, windows, norms, attention and sums as operators."""

from __future__ import annotations

import numpy as np

from puregraph import modules
from puregraph.core.errors import GraphError
from puregraph.modules.reducealong import REDUCTIONS
from puregraph.modules.softmax import LogSoftMax
from puregraph.onnx.onnxwriter import OnnxStep, isWhole, kindOf, writesOnnx

ALONE = {  # the operator that replaces a reduction over no axes
    "ReduceL1": "Abs",
    "ReduceL2": "Abs",
    "ReduceSumSquare": "Mul",
    "ReduceLogSum": "Log",
}


@writesOnnx(modules.Linear)
def linear(step: OnnxStep) -> None:
    """Gemm if the layer gets only matrices at all its nodes, else MatMul and Add."""
    module = step.module
    if id(module.W) not in step.writer.wide:
        step.op("Gemm", step.x, step.param("W"), step.param("b"), out=step.y, transB=int(module.transpose) or None)
        return
    weight = step.changed("W", np.transpose) if module.transpose else step.param("W")
    weight = weight or step.op("Transpose", step.param("W"), perm=[1, 0])
    if module.b is None:
        step.op("MatMul", step.x, weight, out=step.y)
    else:
        step.op("Add", step.op("MatMul", step.x, weight), step.param("b"), out=step.y)


@writesOnnx(modules.GlobalAvgPool)
def globalPool(step: OnnxStep) -> None:
    """A mean over all positions."""
    reduced(step, "ReduceMean", step.x, tuple(range(2, len(step.shapes[0]))), out=step.y)


def reduced(
    step: OnnxStep, kind: str, x: str | None, axes: tuple, keepdims: bool = False, out: str | None = None
) -> str:
    """A reduction; the axes are an input of most since opset 18, of sums since 13."""
    if not axes:
        return step.op(ALONE.get(kind, "Identity"), *[x] * (2 if kind == "ReduceSumSquare" else 1), out=out)
    if step.opset >= (13 if kind == "ReduceSum" else 18):
        return step.op(kind, x, step.whole(*axes), out=out, keepdims=int(keepdims))
    return step.op(kind, x, out=out, keepdims=int(keepdims), axes=list(axes))


@writesOnnx(*REDUCTIONS.values())
def reduction(step: OnnxStep) -> None:
    """ReduceSum, ReduceMean and the like."""
    module = step.module
    kind = next(kind for kind, made in REDUCTIONS.items() if made is type(module))
    if step.dtypes[0] != step.indtypes[0]:
        step.inputs[0] = step.op("Cast", step.x, to=kindOf(step.dtypes[0]))
    reduced(step, f"Reduce{kind}", step.x, axesOf(step), module.keepdims, step.y)


def axesOf(step: OnnxStep) -> tuple:
    """The axes of a reduction."""
    chosen, rank = step.module.axis, len(step.shapes[0])
    axes = chosen if isinstance(chosen, tuple) else range(rank) if chosen is None else (chosen,)
    return tuple(axis % rank for axis in axes)


@writesOnnx(modules.ArgMax, modules.ArgMin)
def argExtremum(step: OnnxStep) -> None:
    """ArgMax, ArgMin."""
    module = step.module
    options = {"axis": module.axis, "keepdims": int(module.keepdims), "select_last_index": int(module.last) or None}
    step.op(type(module).__name__, step.x, out=step.y, **options)


@writesOnnx(modules.BatchNorm)
def batchNorm(step: OnnxStep) -> None:
    """BatchNormalization with the running statistics."""
    module = step.module
    scale = step.param("scale") or step.constant(np.ones(module.maps), module.mean.dtype)
    bias = step.param("bias") or step.constant(np.zeros(module.maps), module.mean.dtype)
    operands = (step.x, scale, bias, step.param("mean"), step.param("var"))
    step.op("BatchNormalization", *operands, out=step.y, epsilon=module.epsilon)


@writesOnnx(modules.LayerNorm)
def layerNorm(step: OnnxStep) -> None:
    """LayerNormalization since opset 17, else its formula."""
    module, dtype = step.module, step.dtypes[0]
    axis = -len(module.shape)
    if step.opset >= 17:
        scale = step.param("scale") or step.constant(np.ones(module.shape), dtype)
        operands = (step.x, scale, step.param("bias"))
        step.op("LayerNormalization", *operands, out=step.y, axis=axis, epsilon=module.epsilon)
        return
    axes = list(range(axis, 0))
    centered = step.op("Sub", step.x, step.op("ReduceMean", step.x, axes=axes))
    variance = step.op("ReduceMean", step.op("Mul", centered, centered), axes=axes)
    deviation = step.op("Sqrt", step.op("Add", variance, step.constant(module.epsilon, dtype)))
    y = step.op("Div", centered, deviation, out=step.y if module.scale is None else None)
    if module.scale is not None:
        affine(step, y, step.param("scale"), step.param("bias"))


def affine(step: OnnxStep, y: str, scale: str | None, bias: str | None) -> None:
    """The output: y times the scale, plus the bias if there is one."""
    product = step.op("Mul", y, scale, out=step.y if bias is None else None)
    if bias is not None:
        step.op("Add", product, bias, out=step.y)


@writesOnnx(modules.GroupNorm)
def groupNorm(step: OnnxStep) -> None:
    """InstanceNormalization of the groups, then scale and bias of the channels."""
    module, rank, dtype = step.module, len(step.shapes[0]), step.dtypes[0]
    ones, zeros = (step.constant(np.full(module.groups, n), dtype) for n in (1, 0))
    if module.groups == module.maps and rank > 2:
        operands = (step.x, step.param("scale") or ones, step.param("bias") or zeros)
        step.op("InstanceNormalization", *operands, out=step.y, epsilon=module.epsilon)
        return
    rows = step.op("Reshape", step.x, step.whole(0, module.groups, -1))
    y = step.op("InstanceNormalization", rows, ones, zeros, epsilon=module.epsilon)
    back = step.op("Reshape", y, step.sizes(), out=step.y if module.scale is None else None)
    if module.scale is not None:
        affine(step, back, *(perChannel(step, name, rank) for name in ("scale", "bias")))


def perChannel(step: OnnxStep, name: str, rank: int) -> str | None:
    """A per-channel parameter, shaped to broadcast with the input."""
    if getattr(step.module, name) is None:
        return None
    shape = (*getattr(step.module, name).shape, *[1] * (rank - 2))
    reshaped = step.changed(name, lambda array: array.reshape(shape))
    return reshaped or step.op("Reshape", step.param(name), step.whole(*shape))


@writesOnnx(modules.PRelu)
def pRelu(step: OnnxStep) -> None:
    """PRelu."""
    slope = step.param("slope") if step.module.sharedMaps else perChannel(step, "slope", len(step.shapes[0]))
    step.op("PRelu", step.x, slope, out=step.y)


@writesOnnx(modules.SoftMax, LogSoftMax)
def softmax(step: OnnxStep) -> None:
    """Softmax, LogSoftmax."""
    kind = "Softmax" if isinstance(step.module, modules.SoftMax) else "LogSoftmax"
    step.op(kind, step.x, out=step.y, axis=step.module.axis)


@writesOnnx(modules.Dropout, modules.Identity)
def identity(step: OnnxStep) -> None:
    """The input itself: dropout has an effect only in training."""
    step.op("Identity", step.x, out=step.y)


@writesOnnx(modules.MatMul)
def matMul(step: OnnxStep) -> None:
    """MatMul, with a Transpose before it if needed."""
    factors = []
    for name, shape, isTransposed in zip(step.inputs, step.shapes, (step.module.transpA, step.module.transpB)):
        order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        factors.append(step.op("Transpose", name, perm=order) if isTransposed else name)
    step.op("MatMul", *factors, out=step.y)


@writesOnnx(modules.Add, modules.Mul)
def broadcast(step: OnnxStep) -> None:
    """Add or Mul of any number of inputs."""
    kind, dtype = type(step.module).__name__, step.dtypes[0]
    terms = [
        x if inDtype == dtype else step.op("Cast", x, to=kindOf(dtype))
        for x, inDtype in zip(step.inputs, step.indtypes)
    ]
    total, *rest = terms
    for i, x in enumerate(rest):
        total = step.op(kind, total, x, out=step.y if i == len(rest) - 1 else None)
    if not rest:
        step.op("Identity", total, out=step.y)


@writesOnnx(modules.Weight)
def weight(step: OnnxStep) -> None:
    """An initializer."""
    step.writer.alias(step, step.module.W)


@writesOnnx(modules.Constant)
def constant(step: OnnxStep) -> None:
    """Constant."""
    from onnx import numpy_helper

    step.op("Constant", out=step.y, value=numpy_helper.from_array(np.asarray(step.module.state.materialize())))


@writesOnnx(modules.Embedder)
def embedder(step: OnnxStep) -> None:
    """Gather; an index of -1 gives a zero vector."""
    kind, table = step.indtypes[0], step.param("W")
    none = step.constant(0, kind)
    y = step.op("Gather", table, step.op("Max", step.x, none))
    isWord = step.op("Unsqueeze", step.op("GreaterOrEqual", step.x, none), step.whole(-1))
    step.op("Mul", y, step.op("Cast", isWord, to=kindOf(step.dtypes[0])), out=step.y)


@writesOnnx(modules.Position)
def position(step: OnnxStep) -> None:
    """Add the first rows of the table."""
    length = step.shapes[0][-2]
    if length == step.module.W.shape[0]:
        table = step.param("W")
    else:
        first = step.changed("W", lambda array: array[:length]) if isWhole(length) else None
        table = first or step.op("Gather", step.param("W"), positions(step, step.x, -2))
    step.op("Add", step.x, table, out=step.y)


def positions(step: OnnxStep, x: str | None, axis: int) -> str:
    """0, 1, 2, ... along an axis of a value."""
    known = step.shapes[step.inputs.index(x)][axis]
    if isWhole(known):
        return step.constant(np.arange(known))
    length = step.op("Gather", step.op("Shape", x), step.constant(axis, np.int64))
    return step.op("Range", step.constant(0, np.int64), length, step.constant(1, np.int64))


@writesOnnx(modules.Prepend)
def prepend(step: OnnxStep) -> None:
    """Concatenate the vectors, repeated for each sample, with the sequence."""
    count, size = step.module.W.shape
    known = step.shapes[0][:-2]
    if all(map(isWhole, known)):
        sizes = step.whole(*known, count, size)
    else:
        lead = step.op("Slice", step.op("Shape", step.x), *(step.whole(n) for n in (0, -2, 0, 1)))
        sizes = step.op("Concat", lead, step.whole(count, size), axis=0)
    rows = step.op("Expand", step.param("W"), sizes)
    step.op("Concat", rows, step.x, out=step.y, axis=-2)


@writesOnnx(modules.Attention)
def attention(step: OnnxStep) -> None:
    """Products, a mask and Softmax; a query without visible keys gets zeros."""
    module, (q, k, v, mask, *_) = step.module, [*step.inputs, None]
    if module.hasLse:
        raise GraphError("lse has no operator in ONNX: export the network without lse=True")
    dtype, (_, h, _, d), heads = step.dtypes[0], step.shapes[0], step.shapes[1][1]
    if heads != h:
        groups = h // heads
        k, v = (repeated(step, i, groups, h) for i in (1, 2))
    transposed = step.op("Transpose", k, perm=[0, 1, 3, 2])
    scale = step.constant(d**-0.5 if module.scale is None else module.scale, dtype)
    scores = step.op("Mul", step.op("MatMul", q, transposed), scale)
    least = step.constant(np.finfo(np.float32).min / 2, dtype)
    if module.cap is not None:
        squashed = step.op("Tanh", step.op("Mul", scores, step.constant(1 / module.cap, dtype)))
        scores = step.op("Mul", squashed, step.constant(module.cap, dtype))
    if mask is not None:
        if step.indtypes[3] == np.dtype(bool):
            scores = step.op("Where", mask, scores, least)
        else:
            scores = step.op("Add", scores, mask)
    visible = seen(step)
    if visible is not None:
        scores = step.op("Where", visible, scores, least)
    weights = weightsOf(step, scores)
    if visible is not None or mask is not None:
        isBlind = step.op("Less", reduced(step, "ReduceMax", scores, (3,), True), step.constant(-1e30, dtype))
        weights = step.op("Where", isBlind, step.constant(0, dtype), weights)
    step.op("MatMul", weights, v, out=step.y)


def weightsOf(step: OnnxStep, scores: str) -> str:
    """Softmax of the scores, with the sink of each head as one more column, which is then left out."""
    if step.module.sinks is None:
        return step.op("Softmax", scores, axis=-1)
    sinks = step.op("Reshape", step.param("sinks"), step.whole(1, -1, 1, 1))
    lead = step.op("Slice", step.op("Shape", scores), step.whole(0), step.whole(3), step.whole(0))
    column = step.op("Expand", sinks, step.op("Concat", lead, step.whole(1), axis=0))
    weights = step.op("Softmax", step.op("Concat", scores, column, axis=-1), axis=-1)
    return step.op("Slice", weights, step.whole(0), step.whole(-1), step.whole(3))


def seen(step: OnnxStep) -> str | None:
    """The keys that a query sees by position, from its own, an offset and the number of keys; None for all."""
    module, (lengths, offset) = step.module, [*step.inputs[4:], None, None][:2]
    t, s = (shape[2] for shape in step.shapes[:2])
    if not module.causal and lengths is None:
        return None
    if isWhole(t) and isWhole(s) and lengths is offset is None:
        shift = s - t if module.aligned == "end" else 0
        visible = np.tri(t, s, shift, dtype=bool)
        if module.window is not None:
            visible &= ~np.tri(t, s, shift - module.window, dtype=bool)
        return step.constant(visible)
    queries, keys = (positions(step, x, 2) for x in step.inputs[:2])
    known = None
    if module.causal:
        queries = step.op("Unsqueeze", queries, step.whole(1))
        if module.aligned == "end":
            last = lengths if lengths is not None else lengthOf(step, step.inputs[1])
            queries = step.op("Add", queries, step.op("Sub", bySample(step, last), lengthOf(step, step.inputs[0])))
        elif offset is not None:
            queries = step.op("Add", queries, bySample(step, offset))
        known = step.op("LessOrEqual", keys, queries)
        if module.window is not None:
            first = step.op("Sub", queries, step.constant(module.window, np.int64))
            known = step.op("And", known, step.op("Greater", keys, first))
    if lengths is not None:
        within = step.op("Less", keys, bySample(step, lengths))
        known = within if known is None else step.op("And", known, within)
    return known


def lengthOf(step: OnnxStep, x: str | None) -> str:
    """The length of axis 2 of a value."""
    return step.op("Gather", step.op("Shape", x), step.constant(2, np.int64))


def bySample(step: OnnxStep, x: str | None) -> str:
    """Whole numbers (n,) as int64 (n, 1, 1, 1)."""
    return step.op("Reshape", step.op("Cast", x, to=kindOf(np.dtype(np.int64))), step.whole(-1, 1, 1, 1))


def repeated(step: OnnxStep, index: int, groups: int, heads: int) -> str:
    """The heads of keys or values, repeated for groups of queries."""
    expanded = step.op("Unsqueeze", step.inputs[index], step.whole(2))
    expanded = step.op("Expand", expanded, step.whole(1, 1, groups, 1, 1))
    _, _, length, size = step.shapes[index]
    return step.op("Reshape", expanded, step.whole(0, heads, length if isWhole(length) else -1, size))


@writesOnnx(modules.PairDot)
def pairDot(step: OnnxStep) -> None:
    """All dot products of pairs; those below the diagonal are gathered."""
    count = len(step.inputs)
    rows = step.op("Concat", *[step.op("Unsqueeze", x, step.whole(1)) for x in step.inputs], axis=1)
    dots = step.op("MatMul", rows, step.op("Transpose", rows, perm=[0, 2, 1]))
    flat = step.op("Reshape", dots, step.whole(0, -1))
    step.op("Gather", flat, step.whole(*[i * count + j for i in range(count) for j in range(i)]), out=step.y, axis=1)
