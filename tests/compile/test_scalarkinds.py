"""Functions of numpy on every kind of elements, beside numbers of Python and of numpy: a compiled rule gives the dtype and the
elements that numpy gives."""

import operator

import numpy as np
import pytest
from integers import KINDS, graphOf, pairs

from puregraph.graph.module import Module

pytestmark = pytest.mark.usefixtures("quickly")

FLOATS = [np.dtype(kind) for kind in ("float16", "float32", "float64")]
NUMBERS = {
    "2": 2,
    "1": 1,
    "-1": -1,
    "True": True,
    "2.0": 2.0,
    "0.5": 0.5,
    "100000": 100000,
    "int8 2": np.int8(2),
    "int64 2": np.int64(2),
    "bool_": np.bool_(True),
    "float32 2": np.float32(2),
}
BINARY = [getattr(operator, name) for name in "add sub mul truediv floordiv mod pow and_ or_ xor eq lt ge".split()]
BINARY += [getattr(np, name) for name in "maximum minimum fmod power divide arctan2 hypot".split()]
UNARY = "negative positive absolute invert sign square sqrt exp log1p sin tanh floor ceil rint trunc reciprocal isnan".split()
REDUCING = "sum mean prod cumsum cumprod max min any all argmax argmin std var count_nonzero".split()
FUNCTIONS = {
    **{name: getattr(np, name) for name in UNARY + REDUCING + ["logical_not", "signbit", "fabs", "round"]},
    **{f"{name} of an axis": lambda x, name=name: getattr(np, name)(x, axis=0) for name in REDUCING},
    **{f"sum as {kind}": lambda x, kind=kind: np.sum(x, dtype=kind) for kind in ("float32", "int8", "bool")},
    **{f"as {kind}": lambda x, kind=kind: x.astype(kind) for kind in ("float32", "int8", "int64", "bool")},
    "x + x": lambda x: x + x,
    "x * x": lambda x: x * x,
    "x - x": lambda x: x - x,
    "x ** x": lambda x: x**x,
    "x // (x + 1)": lambda x: x // (x + 1),
    "x / (x + 1)": lambda x: x / (x + 1),
    "x @ x": lambda x: x @ x,
    "a row @ x": lambda x: x[0] @ x,
    "a row @ a row": lambda x: x[0] @ x[0],
    "dot": lambda x: np.dot(x[0], x[0]),
    "vdot": lambda x: np.vdot(x, x),
    "inner": lambda x: np.inner(x, x),
    "outer": lambda x: np.outer(x[0], x[0]),
    "einsum to a line": lambda x: np.einsum("ij,ij->i", x, x),
    "einsum to a matrix": lambda x: np.einsum("ij,kj->ik", x, x),
    "einsum of one": lambda x: np.einsum("ij->j", x),
    "tensordot": lambda x: np.tensordot(x, x, 2),
    "trace": np.trace,
    "where": lambda x: np.where(x > 0, x, 2),
    "filled": lambda x: np.full_like(x, 1) * 2,
    "a comparison, squared": lambda x: (x > 0) ** 2,
    "a comparison, summed": lambda x: (x > 0) + (x > 1),
    "a comparison, times a number": lambda x: (x > 0) * 2 + 1,
}


class Known(Module):
    """A function of numpy of which the result is known; as a module of the library, it is traced."""

    __module__ = "puregraph.known"
    isDiscrete, reads = True, ()

    def __init__(self, function, like):
        super().__init__()
        self.function, self.like = function, like

    def dataShapeFrom(self, x):
        return self.like.shape

    def dataTypeFrom(self, x):
        return self.like.dtype

    def updateData(self, x):
        return self.function(x)


def given(kind):
    """A square of elements, of the ends of the kind among others."""
    if kind.kind == "f":
        return np.random.default_rng(0).standard_normal((5, 5)).astype(kind)
    return pairs(kind)[0]


def wantedOf(function, x):
    """What numpy gives; None if it refuses."""
    with np.errstate(all="ignore"):
        try:
            return np.asarray(function(x))
        except (TypeError, ValueError, OverflowError):
            return None


def compare(functions, x):
    """One program of all functions gives what numpy gives: the dtypes, and the elements, integers to the bit.

    The results of numpy are returned by name, of what it does not refuse; all that differs is told together.
    """
    wanted = {name: found for name, function in functions.items() if (found := wantedOf(function, x)) is not None}
    if not wanted:
        return wanted
    graph = graphOf(lambda node: [Known(functions[name], like).node(node) for name, like in wanted.items()], x)
    results = graph.compile([x.shape], dtypes=[x.dtype]).run(x)
    found = dict(zip(wanted, results if isinstance(results, list) else [results], strict=True))
    wrong = [f"{name}: {text}" for name in wanted if (text := difference(np.asarray(found[name]), wanted[name], x))]
    assert not wrong, f"of {x.dtype}, " + "\n".join(wrong)
    return wanted


def difference(found, wanted, x):
    """In what a result is not that of numpy; empty if it is."""
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f"wanted {wanted.dtype}{list(wanted.shape)}, got {found.dtype}{list(found.shape)}"
    if x.dtype.kind in "iub" and wanted.dtype.kind in "iub":
        isEqual = np.array_equal(found, wanted)
    else:
        rtol = {np.float16: 1e-2, np.float32: 1e-4, np.float64: 1e-12}
        least = min((d.type for d in (x.dtype, wanted.dtype) if d.kind == "f"), key=lambda d: np.finfo(d).bits)
        atol = {np.float16: 1e-3, np.float32: 1e-4, np.float64: 1e-15}
        isEqual = np.allclose(found, wanted, rtol=rtol[least], atol=atol[least], equal_nan=True)
    return "" if isEqual else f"wanted {wanted.tolist()}, got {found.tolist()}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [*KINDS, *FLOATS], ids=str)
def test_a_function_gives_the_dtype_that_numpy_gives(kind):
    assert len(compare(FUNCTIONS, given(kind))) > 60


def withNumbers(function):
    """A function of two with each of the numbers on either side."""
    cases = {f"{function.__name__} of x and {name}": lambda x, n=n: function(x, n) for name, n in NUMBERS.items()}
    return cases | {
        f"{function.__name__} of {name} and x": lambda x, n=n: function(n, x) for name, n in NUMBERS.items()
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [*KINDS, *FLOATS], ids=str)
def test_an_operation_with_a_number_gives_the_dtype_that_numpy_gives(kind):
    assert sum(len(compare(withNumbers(function), given(kind))) for function in BINARY) > 200


def test_booleans_squared_are_what_numpy_makes_of_them():
    x = np.array([[True, False]])
    found = compare({"**": lambda x: x**2, "power": lambda x: np.power(x, 2)}, x)
    assert found["**"].dtype == np.int8 and found["power"].dtype == np.int64


def test_bits_of_booleans_beside_integers_are_bits():
    x = np.array([[True, False]])
    found = compare({"&": lambda x: x & 2, "|": lambda x: x | 2}, x)
    assert found["&"].tolist() == [[0, 0]] and found["|"].tolist() == [[3, 2]]
