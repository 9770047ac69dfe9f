"""Grouped products: consecutive blocks of rows with the matrix of their group, for mixtures of experts."""

import numpy as np

from puregraph.core.tracer import arrayLike
from puregraph.ops.kernel import compositeKernel


@compositeKernel
def groupedProduct(x, W, first):
    """y[b] = x[b] W[g], g being the group of block b: the last one with first[g] <= b.

    `first` has the number of the first block of each group, in ascending order from 0.

    Shapes    x (blocks, m, k), W (groups, k, n), first (groups,) of int64 -> y (blocks, m, n)
    Source    Gale et al. 2022, arXiv:2211.15841, section 5
    """
    numbers = isOf(x, first).astype(np.int64).sum(axis=1) - 1
    return x @ W[numbers]


def isOf(x, first):
    """True where a block (row) does not come before a group (column)."""
    return arrayLike(x, np.arange(x.shape[0])).reshape(-1, 1) >= first


@groupedProduct.shape
def groupedProduct(x, W, first):
    """y (blocks, m, n)."""
    return (*x.shape[:2], W.shape[2]), np.result_type(x.dtype, W.dtype)


@groupedProduct.flops
def groupedProduct(y, x, W, first):
    """A multiplication and an addition for each of k terms."""
    return 2 * y.size * x.shape[2]


@compositeKernel
def groupedProductGrad(grad, x, first):
    """dW[g] = sum over the blocks b of group g of x[b]' grad[b]

    Shapes    grad (blocks, m, n), x (blocks, m, k), first (groups,) of int64 -> dW (groups, k, n)
    """
    isLater = isOf(x, first).astype(x.dtype)
    following = np.concatenate([isLater[:, 1:], np.zeros_like(isLater[:, :1])], axis=1)
    products = x.swapaxes(-1, -2) @ grad
    blocks, k, n = products.shape
    return ((isLater - following).T @ products.reshape(blocks, k * n)).reshape(first.shape[0], k, n)


@groupedProductGrad.shape
def groupedProductGrad(grad, x, first):
    """dW (groups, k, n)."""
    return (first.shape[0], x.shape[2], grad.shape[2]), np.result_type(x.dtype, grad.dtype)


@groupedProductGrad.flops
def groupedProductGrad(dW, grad, x, first):
    """A multiplication and an addition for each row of x, column of x and column of grad."""
    return 2 * x.size * grad.shape[2]
