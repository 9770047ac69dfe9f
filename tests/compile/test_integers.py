"""Compiled steps compute with integers and booleans as numpy does, to the bit, at the ends of every kind."""

from contextlib import nullcontext

import numpy as np
import pytest
from integers import KINDS, casesOf, graphOf, pairs, randoms
from leftovers import leftToNumpy
from natively import needsNative

from puregraph import Add, ArgMax, ArgMin, Graph, Input, Max, Min, Module, Sum, Where
from puregraph.core.errors import DtypeError
from puregraph.graph.pointwise import Pointwise
from puregraph.ops.formula.optable import INTEGERS
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.math.emit import WHOLE

pytestmark = pytest.mark.usefixtures("quickly")
CASES = [pytest.param(*each[1:], dtype, id=f"{each[0]}-{dtype}") for dtype in KINDS for each in casesOf(dtype)]


def compare(make, *arrays):
    """What a graph gives, compiled and eagerly; the same to the bit."""
    net = graphOf(make, *arrays)
    program = net.compile([x.shape for x in arrays], dtypes=[x.dtype for x in arrays])
    with np.errstate(all="ignore"):
        wanted, found = net(*arrays), program.run(*arrays)
    assert found.dtype == wanted.dtype and np.array_equal(found, wanted)
    return wanted, program


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_every_operation_is_exact_and_has_native_code(dtype):
    """All that there is of a kind, in one program."""
    names, makes, given = zip(*casesOf(dtype), strict=True)
    arrays = {id(x): x for each in given for x in each}
    nodes = {key: Input().node() for key in arrays}
    net = Graph(list(nodes.values()), [make(*(nodes[id(x)] for x in each)) for make, each in zip(makes, given)])
    program = net.compile([x.shape for x in arrays.values()], dtypes=[x.dtype for x in arrays.values()])
    with np.errstate(all="ignore"):
        wanted, found = net(list(arrays.values())), program.run(*arrays.values())
    wrong = [n for n, y, z in zip(names, found, wanted) if y.dtype != z.dtype or not np.array_equal(y, z)]
    assert len(found) == len(names) > 40 and not wrong
    assert not jit.available() or leftToNumpy(program) == []


@pytest.mark.slow
@pytest.mark.parametrize(("make", "arrays", "dtype"), CASES)
def test_every_operation_is_exact_by_itself(make, arrays, dtype):
    _, program = compare(make, *arrays)
    assert not jit.available() or leftToNumpy(program) == []


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (17,), (5, 33), (2, 3, 1025)], ids=str)
def test_vectors_of_integers_and_what_is_left_over_are_exact(shape, kind):
    a, b = randoms(kind, shape)
    compare(lambda x, y: Add().node(x * y, Where().node(x > y, x, y)), a, b)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(
    ("shape", "axis"), [((70000,), 0), ((2000, 40), 0), ((40, 2000), 1), ((3, 50, 60), (0, 2))], ids=str
)
def test_long_reductions_of_integers_are_exact(shape, axis, kind):
    a = randoms(kind, shape)[0]
    for cls in (Sum, Max, Min, *((ArgMax,) if type(axis) is int else ())):
        compare(lambda x, cls=cls: cls(axis=axis).node(x), a)


def test_a_broadcast_and_a_view_of_integers_are_exact():
    rng = np.random.default_rng(0)
    a, b = rng.integers(-(2**62), 2**62, (4, 1, 5)), rng.integers(-(2**62), 2**62, (3, 1))
    compare(lambda x, y: Add().node(x, y), a, b)
    compare(lambda x, y: x[:, 0] * y[1], a, b)


def test_nodes_are_divided_as_integers_are():
    a, b = pairs(np.dtype(np.int64))
    compare(lambda x, y: x // y + 7 // x - y // 2, a, b)


def test_integers_of_two_kinds_are_exact():
    a, b = pairs(np.dtype(np.int8))
    for kind in ("uint8", "int16", "uint16", "int64", "uint64", "bool"):
        compare(lambda x, y: Pointwise(formula="where(a > b, a, b)").node(x, y), a, b.astype(kind))
        compare(lambda x, y: Add().node(x, y), a, b.astype(kind))


def test_what_is_exact_in_integers_is_so_natively_and_on_a_gpu():
    assert INTEGERS.keys() == WHOLE.keys()


def test_integers_beside_floats_are_rounded_as_numpy_rounds_them():
    a = np.array([2**24 + 1, 2**53 + 1, -5])
    b = np.array([0.5, 1.5, 2.5], np.float32)
    compare(lambda x, y: Pointwise(formula="a + b").node(x, y), a, b)
    compare(lambda x, y: Pointwise(formula="where(a > b, a, b)").node(x, y), a, b)
    c = np.array([2**24, 2**24 + 1, 2**24 + 2], np.int32)
    compare(lambda x: Pointwise(formula="a == 16777217").node(x), c)
    compare(lambda x: Pointwise(formula="where(a > 3, 1.5, 0.25)").node(x), c)
    compare(lambda x: Pointwise(formula="where(a > 16777216.0, a, 1)").node(x), a)
    compare(lambda x: Pointwise(formula="where(a > 0.5, 9007199254740993, 0)").node(x), a)
    compare(lambda x: Pointwise(formula="-minimum(-9223372036854775808, a <= 0.5)").node(x), a)


def test_a_number_that_does_not_fit_is_cut_or_refused_as_numpy_does():
    a, b = np.zeros((2, 3), np.int16), np.full((2, 3), 7)
    isRefused = np.lib.NumpyVersion(np.__version__) >= "2.5.0"
    with pytest.raises(DtypeError, match="out of bounds for int16") if isRefused else nullcontext():
        compare(lambda x, y: Pointwise(formula="where(a, a, 2147483648) + b").node(x, y), a, b)


def test_a_divisor_that_is_0_wherever_all_is_1_warns_of_nothing():
    a, b = pairs(np.dtype(np.int16))
    compare(lambda x, y: Pointwise(formula="a // (a - b)").node(x, y), a, b)


def test_a_quotient_of_booleans_is_an_integer_to_which_numbers_are_added():
    a, b = pairs(np.dtype(bool))
    for op in ("//", "%"):
        compare(lambda x, y, op=op: Pointwise(formula=f"b + ((a * b) {op} b + b)").node(x, y), a, b)


class Applied(Module):
    """A function of numpy, whose result on these elements is known."""

    isDiscrete, reads = True, ()

    def __init__(self, function, like, name=None):
        super().__init__(name)
        self.function, self.like = function, like

    def dataShapeFrom(self, x):
        return self.like.shape

    def dataTypeFrom(self, x):
        return self.like.dtype

    def updateData(self, x):
        return self.function(x)


FUNCTIONS = {
    "a number": lambda x: x + 1,
    "a number of another kind": lambda x: x * np.int64(3),
    "a number on the left": lambda x: 7 - np.maximum(x, 0),
    "parity": lambda x: x % 2 == 1,
    "halves": lambda x: x // np.int8(2),
    "squares": lambda x: np.square(x + x),
    "a power": lambda x: (x + x) ** np.int8(2) if x.dtype == bool else x**3,
    "a range": lambda x: (x > 0) & (x < 5),
    "a choice": lambda x: np.where(x > 1, x, 0),
    "wrapped": lambda x: x.astype(np.int8).astype(np.uint32),
    "logic": np.logical_not,
    "clipped": lambda x: np.clip(x, 0, 5),
    "a product": lambda x: np.prod(x, axis=0),
    "any": lambda x: np.any(x, axis=0),
    "all": lambda x: np.all(x, axis=1),
    "a count": lambda x: np.count_nonzero(x, axis=0),
    "the largest of all": lambda x: x.max(),
    "where the largest of all is": lambda x: x.argmax(),
    "stacked": lambda x: np.stack([x, x], 1),
    "rolled": lambda x: np.roll(x, 1, axis=0),
    "filled": lambda x: np.full_like(x, 1) + x,
}


@needsNative
@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_numpy_are_exact_in_native_code(name, dtype):
    x = pairs(dtype)[0]
    with np.errstate(all="ignore"):
        like = np.asarray(FUNCTIONS[name](x))
    _, program = compare(lambda node: Applied(FUNCTIONS[name], like).node(node), x)
    assert name in ("clipped", "a power") and dtype.kind == "b" or leftToNumpy(program) == []


def test_the_size_of_an_integer_by_fabs_is_a_float():
    x = np.array([[-3, 2, 0]], np.int16)
    compare(lambda node: Applied(np.fabs, np.fabs(x)).node(node), x)


@needsNative
def test_comparisons_of_narrow_integers_choose_between_wide_ones():
    (a, b), (c, d) = pairs(np.dtype(np.int8)), pairs(np.dtype(np.int64))
    c, d = c[: len(a), : len(a)], d[: len(a), : len(a)]
    for formula in ("where(a > b, c, d)", "where(a + 1 > b, c, d)", "maximum(a % b, c + d)"):
        order = Pointwise(formula=formula).arguments
        arrays = [{"a": a, "b": b, "c": c, "d": d}[name] for name in order]
        _, program = compare(lambda *nodes, formula=formula: Pointwise(formula=formula).node(*nodes), *arrays)
        assert ("a + 1" in formula) == bool(leftToNumpy(program))


@pytest.mark.parametrize("cls", [ArgMax, ArgMin])
@pytest.mark.parametrize("width", [1, 2, 10, 16, 17, 31, 100, 1000])
def test_the_index_of_an_extreme_float_is_that_of_the_first_or_of_nan(width, cls):
    x = np.random.default_rng(4).integers(0, 5, (40, width)).astype(np.float32)
    x[1], x[2], x[3] = -np.inf, np.inf, 0
    x[4, width // 2], x[5] = np.nan, np.nan
    x[6, width // 3 :: 5], x[7, -1] = np.nan, np.inf
    compare(lambda node: cls(axis=1).node(node), x)
    compare(lambda node: cls(axis=0).node(node), x.T)
