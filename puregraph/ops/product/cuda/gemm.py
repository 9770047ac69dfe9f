"""GEMM: matrix products of any sizes and strides by own kernels, where no library is or its epilogues do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.ops.cuda.runtime.launch import Launch, stridesOf
from puregraph.ops.product.cuda.epilogue import EpilogueText, stored
from puregraph.ops.product.cuda.implicitgemm import contraction
from puregraph.ops.product.cuda.operandlayout import ContractionOperand, Space

if TYPE_CHECKING:
    from types import NotImplementedType

    from puregraph.core.protocols import Strided


class OwnGemmOperand(NamedTuple):
    """A matrix, or a batch of them: dtype, array, the strides between rows, between columns, and along each axis
    of the batch, and the offset of its first element."""

    kind: str
    what: Any
    row: int
    column: int
    batch: tuple[int, ...] = ()
    start: int = 0


def product(
    a: OwnGemmOperand,
    b: OwnGemmOperand,
    epilogue: EpilogueText,
    m: int,
    n: int,
    k: int,
    batch: tuple[int, ...] = (),
    **options: Any,
) -> list[Launch] | NotImplementedType:
    """sums[z, m, n] = sum over k of a[z, m, k] b[z, k, n], given to the epilogue; NotImplemented for dtypes that are no
    floats, or differ."""
    left = ContractionOperand(a.kind, a.what, (a.row,), (a.column,), a.batch, a.start)
    right = ContractionOperand(b.kind, b.what, (b.column,), (b.row,), b.batch, b.start)
    name = f"product {m}x{k}x{n}"
    return contraction(name, Space((m,), (n,), (k,), batch), left, right, epilogue, **options)


def matmul(out: Strided, a: Strided, b: Strided, **options: object) -> list[Launch] | NotImplementedType:
    """np.matmul(a, b, out=out) of arrays of two axes or more."""
    batch = out.shape[:-2]
    epilogue = stored(out, stridesOf(out)[-2:-1], stridesOf(out)[-1:], stridesOf(out)[:-2])
    (m, n), k = out.shape[-2:], a.shape[-1]
    return product(matrixOf(a, batch), matrixOf(b, batch), epilogue, m, n, k, batch, **options)


def matrixOf(x: Strided, batch: tuple[int, ...]) -> OwnGemmOperand:
    """An array as the matrices of a batch, along whose axes it may be broadcast."""
    *before, row, column = stridesOf(x)
    missing = len(batch) - len(before)
    strides = [0] * missing + [0 if n == 1 else s for n, s in zip(x.shape, before)]
    return OwnGemmOperand(x.dtype.name, x, row, column, tuple(strides))
