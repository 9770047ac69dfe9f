"""What the compiler knows of an operation is registered in one place, and what no call would reach is refused."""

import numpy as np
import pytest
from natively import needsNative
from test_simpler import programOf

from puregraph import kernel as kernels
from puregraph.compile.decompose.decomposition import SIMPLER
from puregraph.compile.lower.registry import LOWERINGS, isLowered, lowers
from puregraph.kernel import kernel
from puregraph.native.llvm.kernelcall import KernelCall


def writeCumsum(code):
    """A task sums a row: y[i] = y[i - 1] + x[i]."""
    x, y, size = code.pointer("x", "f32"), code.pointer("y", "f32"), code.integer("size")
    start = code.task * size
    y.store(start, x.load(start))
    with code.loop(1, size, unroll=1) as i:
        y.store(start + i, y.load(start + i - 1) + x.load(start + i))


def lowerCumsum(call, room):
    (x, *_), (y,) = call.arguments, call.outs
    size = x.shape[-1]
    return [KernelCall("cumsum", "rows", writeCumsum, {"x": x, "y": y, "size": size}, x.size // size)]


@needsNative
def test_a_lowering_of_a_function_of_numpy_is_all_that_makes_it_native(monkeypatch):
    monkeypatch.setattr("puregraph.compile.lower.registry.LOWERINGS", dict(LOWERINGS))
    x = np.arange(24, dtype=np.float32).reshape(4, 6)

    def summed(x):
        return np.cumsum(x, axis=1)

    before = programOf(summed, x)
    assert [c.name for c in before.plan.schedule.calls if not c.kind.isNative] == ["cumsum"]
    assert lowers(np.cumsum)(lowerCumsum) is lowerCumsum
    program = programOf(summed, x)
    assert all(call.kind.isNative for call in program.plan.schedule.calls)
    assert np.array_equal(program.run(x), np.cumsum(x, axis=1))


@pytest.mark.parametrize(
    ("function", "words"),
    [(np.add, "pointwise"), (np.sum, "reduce"), (np.matmul, "product"), (np.transpose, "view"), (len, "nothing")],
)
def test_a_lowering_that_no_call_reaches_is_refused_where_it_is_registered(function, words):
    with pytest.raises(ValueError, match=f"{function.__name__}, which is recorded as {words}"):
        lowers(function)
    assert function not in LOWERINGS


def test_a_second_lowering_is_refused():
    with pytest.raises(ValueError, match="a lowering already"):
        lowers(np.reshape)


@pytest.fixture
def double(monkeypatch):
    monkeypatch.setattr(kernels, "registry", dict(kernels.registry))

    @kernel
    def double(x):
        return 2 * x

    return double


def test_a_kernel_carries_its_lowering_itself(double):
    lowers(double)(lowerCumsum)
    assert isLowered(double) and double not in LOWERINGS and double not in SIMPLER
    with pytest.raises(ValueError, match="has declared its lower already"):
        lowers(double)(writeCumsum)


def test_a_declaration_that_nothing_asks_for_is_refused(double):
    with pytest.raises(ValueError, match="wanted one of flops, .* got 'flop'"):
        double.declare(flop=len)
