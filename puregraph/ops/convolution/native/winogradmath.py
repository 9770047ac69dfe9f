"""Winograd transforms F(4x4, 3x3): 3x3 convolutions of stride one with a quarter of the multiplications.

A tile of 6x6 inputs d and a filter g are transformed to 36 positions each, V = B' d B and U = G g G'; their products,
summed over input channels, are transformed to the outputs: y = A' M A. The adjoints have the same form: the data
gradient is a convolution with rotated filters, and dW = G' (sum over tiles of V (A dy A')) G.

The points that the transforms interpolate at are 0, +-11/16, +-23/16 and infinity, which enlarge the rounding errors of
the 36 sums least: by up to 7, where the usual points 0, +-1, +-2 do so by 31. The sums themselves are taken in short
chains (`winograd.chainOf`); the result is then two to three times as far from the exact sums as plain summation is.

Source    Lavin and Gray 2016, Fast Algorithms for Convolutional Neural Networks, arXiv:1509.09308
          Barabasz, Anderson, Soodhalter, Gregg 2020, Error Analysis and Improving the Accuracy of Winograd Convolution
"""

from __future__ import annotations

from typing import Any

from puregraph.ops.native.llvm.instructions import IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder

TILE_OUTPUTS = 4  # outputs of a tile, on each axis
TILE = 6  # inputs of a tile, on each axis
POSITIONS = TILE * TILE
A = 0.6875  # the points are 0, A, -A, B, -B and infinity
B = 1.4375


def inputs(code: IRBuilder, d: list[IRValue]) -> list[IRValue]:
    """B' d: six inputs to the six positions."""
    a, b = A * A, B * B
    evenA, oddA = code.fma(d[2], -b, d[4]), code.fma(d[1], -b, d[3])
    evenB, oddB = code.fma(d[2], -a, d[4]), code.fma(d[1], -a, d[3])
    return [
        code.fma(d[0], a * b, code.fma(d[2], -(a + b), d[4])),
        code.fma(oddA, A, evenA),
        code.fma(oddA, -A, evenA),
        code.fma(oddB, B, evenB),
        code.fma(oddB, -B, evenB),
        code.fma(d[1], a * b, code.fma(d[3], -(a + b), d[5])),
    ]


def outputs(code: IRBuilder, m: list[IRValue]) -> list[IRValue]:
    """A' m: six positions to the four outputs."""
    sumA, sumB, lessA, lessB = m[1] + m[2], m[3] + m[4], m[1] - m[2], m[3] - m[4]
    return [
        m[0] + sumA + sumB,
        code.fma(lessA, A, lessB * B),
        code.fma(sumA, A**2, sumB * B**2),
        code.fma(lessA, A**3, code.fma(lessB, B**3, m[5])),
    ]


def outputsBack(code: IRBuilder, y: list[IRValue]) -> list[IRValue]:
    """A y: four output gradients to the six positions."""
    values = [y[0]]
    for point in (A, B):
        even, odd = code.fma(y[2], point**2, y[0]), code.fma(y[3], point**2, y[1])
        values += [code.fma(odd, point, even), code.fma(odd, -point, even)]
    return [*values, y[3]]


def scales() -> tuple[float, float, float]:
    """The divisors of the weights: derivatives of the interpolation at 0, A and B."""
    return A**2 * B**2, 2 * A**2 * (A**2 - B**2), 2 * B**2 * (B**2 - A**2)


def weights(code: IRBuilder, g: list[IRValue]) -> list[IRValue]:
    """G g: three weights to the six positions."""
    zero, atA, atB = scales()
    values = [g[0] * (1 / zero)]
    for point, scale in ((A, atA), (B, atB)):
        even, odd = code.fma(g[2], point**2 / scale, g[0] * (1 / scale)), g[1] * (point / scale)
        values += [even + odd, even - odd]
    return [*values, g[2]]


def weightsBack(code: IRBuilder, u: list[IRValue]) -> list[IRValue]:
    """G' u: gradients of six positions to the three weights."""
    zero, atA, atB = scales()
    sumA, sumB, lessA, lessB = u[1] + u[2], u[3] + u[4], u[1] - u[2], u[3] - u[4]
    return [
        code.fma(sumA, 1 / atA, code.fma(sumB, 1 / atB, u[0] * (1 / zero))),
        code.fma(lessA, A / atA, lessB * (B / atB)),
        code.fma(sumA, A**2 / atA, code.fma(sumB, B**2 / atB, u[5])),
    ]


def both(code: IRBuilder, of: Any, square: list[list[IRValue]]) -> list[list[IRValue]]:
    """A transform of the columns of a square, then of its rows."""
    columns = [of(code, list(column)) for column in zip(*square)]
    return [of(code, list(row)) for row in zip(*columns)]
