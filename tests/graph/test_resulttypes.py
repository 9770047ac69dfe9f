"""Arrays of two dtypes have one result type: ahead of data, eager and compiled, whatever the module."""

import copy
from itertools import permutations

import numpy as np
import pytest
from everyexample import everyExample
from everymodule import EXAMPLES, examplesOf

from puregraph import (
    MSE,
    Add,
    Concat,
    Div,
    DtypeError,
    Einsum,
    Graph,
    Input,
    MatMul,
    Mod,
    Mul,
    PairDot,
    Sub,
)
from puregraph.modules.convolution import Convolve
from puregraph.modules.costs import Abs
from puregraph.modules.deconvolution import Deconvolve
from puregraph.modules.scattering import ScatterElements
from puregraph.testing.case import Case
from puregraph.testing.dtypechecks import asKind

KINDS = [np.dtype(kind) for kind in ("?", "i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8")]
FEW = [np.dtype(kind) for kind in ("?", "i8", "f2", "f8")]
ARITHMETIC = {Add: np.add, Mul: np.multiply, Sub: np.subtract, Div: np.divide, Mod: np.remainder}
SEVERAL = [(found, index) for found, index in EXAMPLES if len(examplesOf(found)[index][1]) > 1]
HELD = [(found, index) for found, index in EXAMPLES if examplesOf(found)[index][0].params]
OFONNX = [(found, 0) for found in (ScatterElements, Convolve, Deconvolve)]


def resultType(a, b, function):
    """Floats decide; numpy does where there is none. None where numpy refuses."""
    floats = [kind for kind in (a, b) if kind.kind == "f"]
    try:
        return np.result_type(*floats) if floats else function(np.ones(1, a), np.ones(1, b)).dtype
    except TypeError:
        return None


def dtypesOf(result):
    return [y.dtype for y in (result if isinstance(result, (list, tuple)) else [result])]


def assertOneResult(module, arrays):
    """Ahead of data, eager and compiled the dtypes are the same, or each refuses them with a DtypeError."""
    nodes = [Input(dtype=x.dtype).node() for x in arrays]
    net = Graph(nodes, module.node(*nodes)).evalMode()
    shapes, dtypes = [x.shape for x in arrays], [x.dtype for x in arrays]
    try:
        said = net.dataTypeFrom(*dtypes)
    except DtypeError:
        for run in (net, lambda *given: net.compile(shapes, dtypes=dtypes).run(*given)):
            with pytest.raises(DtypeError):
                run(*arrays)
        return None
    with np.errstate(all="ignore"):
        eager, fast = dtypesOf(net(*arrays)), dtypesOf(net.compile(shapes, dtypes=dtypes).run(*arrays))
    said = said if isinstance(said, list) else [said]
    assert None in said or eager == said, (dtypes, eager, said)
    assert fast == eager, (dtypes, fast, eager)
    return said


@pytest.mark.parametrize("shape", [(2, 2), ()], ids=["arrays", "scalars"])
@pytest.mark.parametrize("first", KINDS, ids=str)
def test_arithmetic_of_two_dtypes_gives_floats_theirs_and_integers_those_of_numpy(first, shape):
    for second in KINDS:
        wanted = {module(): resultType(first, second, function) for module, function in ARITHMETIC.items()}
        if shape:
            kept = resultType(first, second, np.add)
            wanted |= dict.fromkeys((MatMul(), Concat(axis=0), Einsum("ij,jk->ik"), PairDot()), kept)
        a, b = np.ones(shape, first), np.ones(shape, second)
        nodes = [Input(dtype=x.dtype).node() for x in (a, b)]
        for module in [module for module, dtype in wanted.items() if dtype is None]:
            with pytest.raises(DtypeError):
                Graph(nodes, module.node(*nodes))(a, b)
            del wanted[module]
        net = Graph(nodes, [module.node(*nodes) for module in wanted])
        program = net.compile([shape] * 2, dtypes=[first, second])
        for found in (net.dataTypeFrom(first, second), dtypesOf(net(a, b)), dtypesOf(program.run(a, b))):
            assert found == list(wanted.values()), (first, second)


@everyExample(SEVERAL + OFONNX)
def test_an_example_of_inputs_in_two_dtypes_has_one_result(found, index):
    module, shapes = examplesOf(found)[index]
    case = Case(copy.deepcopy(module).evalMode(), shapes, train=False)
    named = zip(case.names, case.inputs)
    free = [i for i, (name, x) in enumerate(named) if x.dtype.kind == "f" and name not in module.indices]
    for kinds in permutations(FEW, 2) if len(free) > 1 else ():
        own = {i: kinds[i != free[0]] for i in free}
        assertOneResult(module, [asKind(x, own[i]) if i in own else x for i, x in enumerate(case.inputs)])


@everyExample(HELD)
def test_an_example_of_inputs_in_another_float_than_its_parameters_has_one_result(found, index):
    module, shapes = examplesOf(found)[index]
    inputs = Case(copy.deepcopy(module), shapes, train=False).inputs
    for kinds in permutations([np.dtype(kind) for kind in ("f2", "f4", "f8")], 2):
        module.calcMode(kinds[0])
        assertOneResult(module, [asKind(x, kinds[1]) if x.dtype.kind == "f" else x for x in inputs])


def test_integers_beside_half_floats_are_added_in_single_and_rounded_once():
    x, n = np.array([-60_000.0, 2.0], np.float16), np.array([100_000, 2049])
    nodes = [Input(dtype=a.dtype).node() for a in (x, n)]
    net = Graph(nodes, Add().node(*nodes))
    for found in (net(x, n), net.compile([(2,), (2,)], dtypes=[x.dtype, n.dtype]).run(x, n)):
        assert found.dtype == np.float16 and found.tolist() == [40_000.0, 2052.0]  # of halves: inf, 2050


@pytest.mark.parametrize("module", [Add, Mul])
def test_scalars_of_half_floats_that_a_graph_computes_are_added_and_multiplied(module):
    a, t = Input(name="a").node(), Input(name="t").node()
    net = Graph([a, t], module().node(MSE(name="square").node(a, t), Abs(name="absolute").node(a, t)))
    net.calcMode(np.float16)
    x, y = np.full((2, 3), 2, np.float16), np.zeros((2, 3), np.float16)
    for found in (net(x, y), net.compile([(2, 3)] * 2).run(x, y)):
        assert found.dtype == np.float16 and found == (6 if module is Add else 8)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_half_array_beside_a_wider_scalar_becomes_as_wide(kind):
    nodes = [Input(dtype=dtype).node() for dtype in (np.float16, kind)]
    net = Graph(nodes, Add().node(nodes[0], MSE().node(nodes[1], nodes[1])))
    x, y = np.ones((2, 3), np.float16), np.ones((2, 3), kind)
    said = net.dataTypeFrom(np.float16, kind)
    fast = net.compile([(2, 3)] * 2, dtypes=[x.dtype, y.dtype]).run(x, y)
    assert said == net(x, y).dtype == fast.dtype == kind
