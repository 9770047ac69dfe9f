"""ProductOps: products of matrices, sums of products by letters, determinants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from puregraph import modules
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.product import Determinant
from puregraph.onnx.opregistry import onnxOp

if TYPE_CHECKING:
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.onnxvalue import OnnxValue


@onnxOp("MatMul")
def matMul(op: OnnxNode, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    """MatMul; with a weight on the right, a Linear layer."""
    if isLayer(a, b):
        return linear(op, a, b, None)
    return op(modules.MatMul(), a, b)


def isLayer(a: OnnxValue, b: OnnxValue) -> bool:
    """True if b is a known float matrix, as in a linear layer."""
    return b.array is not None and not b.isSplit and b.array.dtype.kind in "fV" and b.rank == 2 and (a.rank or 0) >= 1


def linear(op: OnnxNode, x: OnnxValue, weight: OnnxValue, bias: OnnxValue | None, transpose: bool = False) -> OnnxValue:
    """x W + b, of arrays that are parameters."""
    insize, outsize = weight.array.shape[::-1] if transpose else weight.array.shape
    module = modules.Linear(insize, outsize, useBias=bias is not None, transpose=transpose)
    arrays = {"W": weight} if bias is None else {"W": weight, "b": bias}
    return op(op.builder.fill(module, **arrays), x)


@onnxOp("Gemm")
def gemm(op: OnnxNode, a: OnnxValue, b: OnnxValue, c: OnnxValue | None = None) -> OnnxValue:
    """Gemm."""
    alpha, beta = op.get("alpha", 1.0), op.get("beta", 1.0)
    transA, transB = bool(op.get("transA", 0)), bool(op.get("transB", 0))
    isPlain = alpha == 1 and (c is None or beta == 1) and not transA and isLayer(a, b)
    isBias = c is None or c.array is not None and not c.isSplit and c.shape == (b.shape[0 if transB else 1],)
    if isPlain and isBias:
        return linear(op, a, b, c, transB)
    y = op(modules.MatMul(transA, transB), a, b)
    if alpha != 1:
        y = scaled(op, y, alpha)
    if c is None:
        return y
    return op(modules.Add(), y, c if beta == 1 else scaled(op, c, beta))


def scaled(op: OnnxNode, x: OnnxValue, factor: float) -> OnnxValue:
    """x times a number, in the dtype of x."""
    y = op(Pointwise(formula="factor * x", factor=float(factor)), x)
    return y if y.dtype == x.dtype else op(modules.Cast(x.dtype), y)


@onnxOp("Einsum")
def einsum(op: OnnxNode, *xs: OnnxValue) -> OnnxValue:
    """Einsum; letters are added for the axes of an ellipsis."""
    equation = op.get("equation").replace(" ", "")
    if "..." in equation:
        equation = named(equation, [op.rankOf(x) for x in xs])
    return op(modules.Einsum(equation), *xs)


def named(equation: str, ranks: list[int]) -> str:
    """An equation with letters in place of the ellipsis; inputs with fewer such axes lack the first letters."""
    left, arrow, output = equation.partition("->")
    groups = left.split(",")
    free = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in equation]
    counts = [rank - len(group.replace("...", "")) for rank, group in zip(ranks, groups)]
    most = max(count for count, group in zip(counts, groups) if "..." in group)
    letters = "".join(free[:most])
    parts = [group.replace("...", letters[most - count :]) for group, count in zip(groups, counts)]
    if not arrow:
        plain = left.replace(".", "").replace(",", "")
        output = "..." + "".join(sorted(c for c in set(plain) if plain.count(c) == 1))
    return f"{','.join(parts)}->{output.replace('...', letters)}"


@onnxOp("Det")
def determinant(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Det."""
    return op(Determinant(), x)
