"""A product of a value with its own transpose is found in a compiled step, and computed by half."""

from inspect import signature

import numpy as np
import pytest
from leftovers import leftToNumpy

from puregraph import Sequential
from puregraph.compile.lower import matmul
from puregraph.graph.module import Module
from puregraph.ops.native.llvm import jit
from puregraph.ops.product.symmetric import symmetricProduct
from puregraph.optimizers.muon import orthogonal

pytestmark = pytest.mark.skipif(not jit.available(), reason=str(jit.missing()))


class Known(Module):
    """A function of x whose result has this shape; as a module of the library, it is traced."""

    __module__ = "puregraph.known"

    def __init__(self, function, shape):
        super().__init__()
        self.function, self.shape = function, shape

    def dataShapeFrom(self, x):
        return self.shape

    def updateData(self, x):
        return self.function(x)


def recorded(monkeypatch):
    """A list that says of each product that is lowered from now on whether it is symmetric."""
    seen, gemm = [], matmul.gemm

    def watched(*arguments):
        seen.append(signature(gemm).bind(*arguments).arguments["isSymmetric"])
        return gemm(*arguments)

    monkeypatch.setattr(matmul, "gemm", watched)
    return seen


CASES = {  # a function, and whether each of its products is symmetric
    "rows": (lambda x: x @ np.swapaxes(x, -1, -2), [True]),
    "columns": (lambda x: np.swapaxes(x, -1, -2) @ x, [True]),
    "a formula behind": (lambda x: 2 * x + (x + 1) @ np.swapaxes(x + 1, -1, -2), [True]),
    "columns in reverse order": (lambda x: x[..., ::-1] @ np.swapaxes(x[..., ::-1], -1, -2), [True]),
    "a matrix with itself": (lambda x: x @ x, [False]),
    "another matrix": (lambda x: x @ np.swapaxes(2 * x, -1, -2), [False]),
    "other rows of the same memory": (lambda x: x[..., :36, :] @ np.swapaxes(x[..., 1:, :], -1, -2), [False]),
    "other columns of the same memory": (lambda x: x[..., 1:] @ np.swapaxes(x[..., :36], -1, -2), [False]),
}


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
@pytest.mark.parametrize("name", CASES)
def test_the_transpose_of_the_same_value_is_known(monkeypatch, rng, name, lead):
    function, wanted = CASES[name]
    x = rng.standard_normal((*lead, 37, 37)).astype("f4")
    seen = recorded(monkeypatch)
    net = Sequential(Known(function, function(x).shape))
    found = net.compile([x.shape]).run(x)
    assert seen == wanted
    np.testing.assert_allclose(found, function(x), rtol=1e-5, atol=1e-4)
    if wanted == [True] and name != "a formula behind":
        np.testing.assert_array_equal(found, np.swapaxes(found, -1, -2))


@pytest.mark.parametrize(("shape", "squares"), [((40, 40), 5), ((100, 40), 1), ((40, 48), 5)])
def test_muon_computes_half_of_its_squares(monkeypatch, rng, shape, squares):
    x = rng.standard_normal(shape).astype("f4")
    seen = recorded(monkeypatch)
    program = Sequential(Known(orthogonal, shape)).compile([shape])
    result = program.run(x)
    assert seen.count(True) == seen.count(False) == squares
    assert str(program.table()).count("symmetricProduct") >= squares
    np.testing.assert_allclose(result, orthogonal(x.astype("f8")), atol=1e-4)


@pytest.mark.parametrize("n", [1, 2, 5, 8, 24, 37, 200, 360])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_polynomials_of_one_matrix_are_multiplied_by_half(rng, n, dtype):
    x = rng.standard_normal((n, n)) / n
    x = (x + x.T).astype(dtype)
    net = Sequential(Known(lambda x: symmetricProduct(x, x @ x + x.T), (n, n))).calcMode(x.dtype.name)
    program = net.compile([(n, n)])
    assert leftToNumpy(program) == []
    result = program.run(x)
    error = np.finfo(dtype).eps * 10 * n
    np.testing.assert_allclose(result, x @ (x @ x + x), rtol=error, atol=error * np.abs(x).max() ** 2)
