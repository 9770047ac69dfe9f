"""Steps of integers and booleans on a GPU, in the emulator: they give what numpy does, and none is sent to the host."""

import numpy as np
import pytest
from fakecupy import useGpu
from integers import KINDS, casesOf, graphOf, randoms
from launches import gate, needsEmulator, needsNvrtc
from texts import gathered, onPaper

from puregraph import ArgMax, Max, Min, Sum
from puregraph.core import device
from puregraph.graph import Graph
from puregraph.graph.input import Input

EVERYDAY = ("bool", "int8", "uint32", "int64")  # booleans, and integers of few and many bits with and without a sign
COMPILED = ("uint8",)  # whose kernels are compiled everyday


def some(kinds, chosen):
    """Dtypes as parameters; those that are not chosen are slow."""
    return [pytest.param(d, marks=() if d in chosen else pytest.mark.slow, id=str(d)) for d in kinds]


def casesFor(dtype):
    """Every operation on two arrays."""
    return [each for each in casesOf(dtype) if each[0] != "gather"]


def everyOperation(dtype):
    """A graph of them all, and what it is compiled for."""
    x, y = Input().node(), Input().node()
    cases = casesFor(dtype)
    net = Graph([x, y], [make(*(x, y)[: len(arrays)]) for _, make, arrays in cases])
    return net, [a.shape for a in cases[0][2]], {"dtypes": [dtype, dtype]}


def hosted(program):
    """What a program has CuPy or the host do."""
    return [call.name for call in program.plan.schedule.calls if not (call.kind.isNative or call.kind.isView)]


@needsEmulator
@pytest.mark.parametrize("dtype", some(KINDS, EVERYDAY))
def test_every_operation_is_exact_and_stays_on_a_gpu(monkeypatch, dtype):
    cases = casesFor(dtype)
    with device.useDevice("cpu"), np.errstate(all="ignore"):
        wanted = [graphOf(make, *arrays)(*arrays) for _, make, arrays in cases]
    useGpu(monkeypatch, False)
    net, shapes, options = everyOperation(dtype)
    program = net.compile(shapes, **options)
    assert hosted(program) == []
    for (name, *_), found, right in zip(cases, program.run(*cases[0][2]), wanted, strict=True):
        found = device.toHost(found)
        assert found.dtype == right.dtype and np.array_equal(found, right), name


@needsEmulator
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_integers_read_by_index_are_exact_and_stay_on_a_gpu(monkeypatch, dtype):
    ((_, make, arrays),) = [each for each in casesOf(dtype) if each[0] == "gather"]
    with device.useDevice("cpu"):
        wanted = graphOf(make, *arrays)(*arrays)
    useGpu(monkeypatch, False)
    program = graphOf(make, *arrays).compile([x.shape for x in arrays], dtypes=[x.dtype for x in arrays])
    found = device.toHost(program.run(*arrays))
    assert hosted(program) == [] and found.dtype == dtype and np.array_equal(found, wanted)


@needsEmulator
@pytest.mark.parametrize("kind", some(["int8", "uint32", "int64", "uint64"], ("int8", "int64")))
def test_long_reductions_of_integers_are_exact_on_a_gpu(monkeypatch, kind):
    dtype = np.dtype(kind)
    arrays = [randoms(dtype, shape)[0] for shape in ((20000,), (1200, 3), (3, 700), (40, 30))]
    nodes = [Input().node() for _ in arrays]
    wanted, made = [], []
    for a, node in zip(arrays, nodes):
        for axis in (0, a.ndim - 1):
            wanted += [a.sum(axis), a.max(axis), a.min(axis), a.argmax(axis)]
            made += [cls(axis=axis).node(node) for cls in (Sum, Max, Min, ArgMax)]
    useGpu(monkeypatch, False)
    program = Graph(nodes, made).compile([a.shape for a in arrays], dtypes=[dtype] * len(arrays))
    assert hosted(program) == []
    for found, right in zip(program.run(*arrays), wanted, strict=True):
        found = device.toHost(found)
        assert found.dtype == right.dtype and np.array_equal(found, right)


@needsNvrtc
@pytest.mark.costly
@pytest.mark.parametrize("dtype", some(KINDS, COMPILED))
def test_kernels_of_integers_compile_and_fit(dtype):
    net, shapes, options = everyOperation(dtype)
    with onPaper(False):
        launches = gathered(net, shapes, **options).launches
    assert len(gate(launches)) > 25
