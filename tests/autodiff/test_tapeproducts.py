# ruff: noqa: B023 - every check runs before its loop goes on
"""The gradients of products on the tape, of all ranks: against central differences."""

import operator

import numpy as np
import pytest
from tapechecks import check, some
from tapechecks import recording as recording

from puregraph.autodiff import AutoDiffException, Variable


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 2)),
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((5, 1, 2, 3), (4, 3, 2)),
        ((3,), (5, 3, 4)),
        ((5, 2, 3), (3,)),
        ((4, 5, 2, 3), (3,)),
        ((1, 2, 3), (5, 3, 1)),
        ((2, 0), (0, 3)),
        ((0, 3), (3, 2)),
        ((0, 2, 3), (3,)),
    ],
)
def test_matmul_of_all_ranks(a, b):
    check(operator.matmul, some(*a), some(*b, seed=1))
    check(lambda x: x @ some(*b, seed=1), some(*a))
    check(lambda x: some(*a) @ x, some(*b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((), ()),
        ((), (3,)),
        ((2, 3), ()),
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 2)),
        ((4, 2, 3), (3,)),
        ((2, 3), (4, 3, 2)),
        ((5, 2, 3), (4, 3, 2)),
    ],
)
def test_dot_of_all_ranks(a, b):
    check(np.dot, some(*a), some(*b, seed=1))


def test_other_products():
    check(np.outer, some(3), some(2, 2))
    check(np.inner, some(2, 3), some(4, 3))
    check(np.inner, some(), some(3))
    check(np.vdot, some(2, 3), some(2, 3))
    check(lambda x: np.dot(x, [1.0, 2.0]) + np.outer([1.0], x).sum() + x @ [3.0, 4.0], some(2))
    for axes in (0, 1, 2, ([0, 2], [1, 0]), (0, 1), (-1, 0)):
        a, b = (
            ((2, 3, 4), (4, 2, 3))
            if axes not in (2, (0, 1))
            else ((2, 3, 4), (3, 4, 2))
            if axes == 2
            else ((2, 3, 4), (4, 2, 3))
        )
        check(lambda x, y: np.tensordot(x, y, axes), some(*a), some(*b))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("ij->ji", [(2, 3)]),
        ("ij->", [(2, 3)]),
        ("ij->i", [(2, 3)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("iij->ji", [(2, 2, 3)]),
        ("ij,ij->ij", [(2, 3), (2, 3)]),
        ("i,j->ij", [(2,), (3,)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
        (" i j , j -> i ", [(2, 3), (3,)]),
        ("b...j,...jk->b...k", [(2, 5, 3), (5, 3, 4)]),
        ("...ij,...jk->...ik", [(5, 2, 3), (3, 4)]),
        ("...ij,...jk", [(1, 2, 3), (5, 3, 4)]),
        ("...i->...", [(2, 3, 4)]),
        ("...", [(2, 3)]),
        ("ij,jk->ik", [(2, 1), (3, 4)]),
        ("ij,kj->ik", [(0, 3), (2, 3)]),
    ],
)
def test_einsum(equation, shapes):
    check(lambda *xs: np.einsum(equation, *xs), *(some(*shape, seed=i) for i, shape in enumerate(shapes)))
    if len(shapes) > 1:
        check(
            lambda x: np.einsum(equation, x, *(some(*shape) for shape in shapes[1:]), optimize=True), some(*shapes[0])
        )
    check(lambda x: np.einsum("ij,ij->i", x, x), some(2, 3))


def test_einsum_wants_a_text():
    x = Variable(some(2, 3), requires_grad=True)
    with pytest.raises((AutoDiffException, TypeError)):
        np.einsum(x, [0, 1], [0]).sum().backward()


def test_linear_algebra():
    A, stack = some(3, 3) + 3 * np.eye(3), some(2, 3, 3) + 3 * np.eye(3)
    for square in (A, stack):
        check(np.linalg.inv, square)
        check(np.linalg.det, square)
        check(lambda a: np.linalg.slogdet(a)[1], square)
        check(lambda a: np.linalg.slogdet(a), square)
        check(np.linalg.solve, square, some(3, 2))
        check(np.linalg.solve, square, some(3))
    check(np.linalg.solve, A, some(2, 3, 2))
    check(np.linalg.norm, some(2, 3))
    check(np.linalg.norm, some(3))
    check(lambda x: np.linalg.norm(x, axis=1), some(2, 3))
    check(lambda x: np.linalg.norm(x, axis=(0, 1), keepdims=True), some(2, 3, 2))
    check(lambda x: np.linalg.norm(x, 2, -1, True), some(2, 3))
    check(lambda x: np.linalg.norm(x, 1, 0), some(2, 3))
    check(lambda x: np.linalg.norm(x, "fro"), some(2, 3))
    for ord in (np.inf, "nuc", 2):
        check(lambda x: np.linalg.norm(x, ord), some(2, 3))
