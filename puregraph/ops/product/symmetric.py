"""Products of symmetric matrices that commute."""

import numpy as np

from puregraph.ops.kernel import compositeKernel


@compositeKernel
def symmetricProduct(a, b):
    """y = a b of two symmetric matrices that commute, as polynomials of one matrix do: y is symmetric as well.

    Native code computes one half of y and copies the other.

    Shapes    a (n, n), b (n, n) -> y (n, n)
    """
    return a @ b


@symmetricProduct.shape
def symmetricProduct(a, b):
    """y (n, n)."""
    return a.shape, np.result_type(a.dtype, b.dtype)


@symmetricProduct.flops
def symmetricProduct(y, a, b):
    """n (n + 1) / 2 elements, with an addition and a multiplication for each of n terms."""
    return y.size * (y.shape[0] + 1)
