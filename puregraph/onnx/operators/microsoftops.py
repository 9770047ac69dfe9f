"""MicrosoftOps: onnxruntime's own operators, as its optimizer and quantizer write them, composed of standard ones."""

from __future__ import annotations

from puregraph import modules
from puregraph.graph.pointwise import Pointwise
from puregraph.onnx.onnxnode import OnnxNode
from puregraph.onnx.onnxvalue import OnnxValue
from puregraph.onnx.operators.microsoftcalls import activated, counted, microsoftOp, standard, summed
from puregraph.onnx.operators.normalizationops import rmsNorm
from puregraph.onnx.operators.productops import scaled
from puregraph.onnx.operators.quantizedops import dequantize, quantize
from puregraph.onnx.opregistry import MICROSOFT, onnxOp

NORM_EPSILON = 1e-12  # the epsilon of a norm after a sum


@microsoftOp("Gelu", "FastGelu", "BiasGelu")
def gelu(op: OnnxNode, x: OnnxValue, bias: OnnxValue | None = None) -> OnnxValue:
    """Gelu, with a bias that is added before; FastGelu by tanh."""
    return op(modules.Gelu(op.type == "FastGelu"), x if bias is None else op(modules.Add(), x, bias))


@microsoftOp("QuickGelu")
def quickGelu(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """QuickGelu."""
    return op(modules.Swish(op.get("alpha", 1.702)), x)


@microsoftOp("FusedConv")
def fusedConv(
    op: OnnxNode, x: OnnxValue, W: OnnxValue, b: OnnxValue | None = None, z: OnnxValue | None = None
) -> OnnxValue:
    """A convolution, a sum and an activation."""
    y = standard(op, "Conv", x, W, b, **op.attributes)
    y = y if z is None else op(modules.Add(), y, z)
    return activated(op, y, op.get("activation", ""), op.get("activation_params") or ())


@microsoftOp("FusedGemm")
def fusedGemm(op: OnnxNode, a: OnnxValue, b: OnnxValue, c: OnnxValue | None = None) -> OnnxValue:
    """Gemm and an activation."""
    numbers = [op.get(f"activation_{name}") for name in ("alpha", "beta", "gamma")]
    y = standard(op, "Gemm", a, b, c, **op.attributes)
    return activated(op, y, op.get("activation", ""), [number for number in numbers if number is not None])


@microsoftOp("FusedMatMul", "TransposeMatMul")
def fusedMatMul(op: OnnxNode, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    """A product of matrices, transposed and scaled."""
    y, alpha = standard(op, "MatMul", moved(op, a, "A"), moved(op, b, "B")), op.get("alpha", 1.0)
    return y if alpha == 1 else scaled(op, y, alpha)


def moved(op: OnnxNode, x: OnnxValue, side: str) -> OnnxValue:
    """An operand of a product, transposed as the attributes transBatchA, transA (or B) say."""
    rank = op.rankOf(x)
    axes = list(range(rank))
    if op.get(f"transBatch{side}", 0) and rank > 2:
        axes = [*axes[1:-1], 0, axes[-1]]
    if op.get(f"trans{side}", 0) and rank > 1:
        axes[-2:] = axes[:-3:-1]
    return x if axes == sorted(axes) else op.view(modules.Transpose(tuple(axes)), x)


# Norms and embeddings -------------------------------------------------------------------------------------------------


@microsoftOp("SkipLayerNormalization")
def skipLayerNorm(
    op: OnnxNode,
    x: OnnxValue,
    skip: OnnxValue,
    gamma: OnnxValue,
    beta: OnnxValue | None = None,
    bias: OnnxValue | None = None,
) -> tuple[OnnxValue | None, ...]:
    """LayerNormalization of a sum."""
    x = summed(op, x, skip, bias)
    return (*normalized(op, x, gamma, beta, 3), x)


def normalized(
    op: OnnxNode, x: OnnxValue, gamma: OnnxValue, beta: OnnxValue | None, outputs: int = 1
) -> tuple[OnnxValue, OnnxValue | None, OnnxValue | None]:
    """(LayerNormalization, mean, inverse of the deviation); the last two are None if unused."""
    y = standard(op, "LayerNormalization", x, gamma, beta, outputs=outputs, epsilon=op.get("epsilon", NORM_EPSILON))
    return y if isinstance(y, tuple) else (y, None, None)


@microsoftOp("SkipSimplifiedLayerNormalization")
def skipRmsNorm(
    op: OnnxNode, x: OnnxValue, skip: OnnxValue, gamma: OnnxValue, bias: OnnxValue | None = None
) -> tuple[OnnxValue | None, ...]:
    """RMSNormalization of a sum."""
    x = summed(op, x, skip, bias)
    return standard(op, "RMSNormalization", x, gamma, epsilon=op.get("epsilon", NORM_EPSILON)), None, None, x


onnxOp("SimplifiedLayerNormalization")(rmsNorm)  # onnxruntime writes it into the standard domain


@microsoftOp("EmbedLayerNormalization", optional=("segments", "ofSegments"))
def embedLayerNorm(
    op: OnnxNode,
    ids: OnnxValue,
    segments: OnnxValue | None,
    ofWords: OnnxValue,
    ofPositions: OnnxValue,
    ofSegments: OnnxValue | None,
    gamma: OnnxValue,
    beta: OnnxValue,
    *others: OnnxValue | None,
) -> tuple[OnnxValue | None, ...]:
    """(LayerNormalization of the sum of word, position and segment embeddings; sums of the mask; sum of embeddings)."""
    mask, positions = [*others, None, None][:2]
    positions = counted(op, ids, 1) if positions is None else positions
    tables = [(ofWords, ids), (ofPositions, positions)]
    tables += [] if segments is None or ofSegments is None else [(ofSegments, segments)]
    x = summed(op, *[op(modules.Gather(0, fromEnd=True), *pair) for pair in tables])
    y = normalized(op, x, gamma, beta)[0]
    if not op.wants(1):
        return y, None, x
    shown = op(modules.Cast("int32"), ids if mask is None else mask)
    shown = shown if mask is not None else op(Pointwise(formula="0 * x"), shown)
    return y, op(modules.Cast("int32"), op(modules.Sum(1), shown)), x


onnxOp("QuantizeLinear", domain=MICROSOFT)(quantize)
onnxOp("DequantizeLinear", domain=MICROSOFT)(dequantize)
