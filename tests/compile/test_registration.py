"""What the compiler knows of an operation is registered in one place, and what no call would reach is refused."""

import numpy as np
import pytest
from natively import needsNative
from test_simpler import programOf

from puregraph.compile.lower.registry import isLowered, lowers
from puregraph.compile.trace.abstract import reads
from puregraph.ops import kernel as kernels
from puregraph.ops.kernel import kernel
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.operation import OPERATIONS, declared, op, operationOf
from puregraph.ops.reduction import onnx as reduction

ASKED = reduction  # which declares the operators of ONNX, whatever else this process has imported


def writeTurned(code):
    """y is x from its end."""
    x, y, size = code.pointer("x", "f32"), code.pointer("y", "f32"), code.integer("size")
    with code.loop(0, size, unroll=1) as i:
        y.store(i, x.load(size - 1 - i))


def lowerTurned(call, room):
    (x, *_), (y,) = call.arguments, call.outs
    return [KernelCall("turned", "", writeTurned, {"x": x, "y": y, "size": x.size}, 1)]


@needsNative
def test_a_lowering_of_a_function_of_numpy_is_all_that_makes_it_native(monkeypatch):
    monkeypatch.setattr(operationOf(np.rot90), "declarations", dict(operationOf(np.rot90).declarations))
    x = np.arange(24, dtype=np.float32).reshape(4, 6)

    def turned(x):
        return np.rot90(x, 2)

    before = programOf(turned, x)
    assert [c.name for c in before.plan.schedule.calls if not c.kind.isNative] == ["rot90"]
    assert lowers(np.rot90)(lowerTurned) is lowerTurned
    program = programOf(turned, x)
    assert all(call.kind.isNative for call in program.plan.schedule.calls)
    assert np.array_equal(program.run(x), np.rot90(x, 2))


@pytest.mark.parametrize(
    ("function", "words"),
    [(np.add, "pointwise"), (np.sum, "reduce"), (np.matmul, "product"), (np.transpose, "view"), (len, "nothing")],
)
def test_a_lowering_that_no_call_reaches_is_refused_where_it_is_registered(function, words):
    with pytest.raises(ValueError, match=f"{function.__name__}, which is recorded as {words}"):
        lowers(function)
    assert not isLowered(function)


def test_a_second_lowering_is_refused():
    with pytest.raises(ValueError, match="reshape has declared its lower already"):
        lowers(np.reshape)(lowerTurned)


@pytest.fixture
def double(monkeypatch):
    monkeypatch.setattr(kernels, "registry", dict(kernels.registry))

    @kernel
    def double(x):
        return 2 * x

    return double


def test_a_kernel_carries_its_lowering_itself(double):
    lowers(double)(lowerTurned)
    assert isLowered(double) and double not in OPERATIONS
    with pytest.raises(ValueError, match="has declared its lower already"):
        lowers(double)(writeTurned)


def test_a_declaration_that_nothing_asks_for_is_refused(double):
    with pytest.raises(ValueError, match="wanted one of flops, .* got 'flop'"):
        double.declare(flop=len)


REGISTRATIONS = {
    "vjp": lambda f: op(f).vjp(lambda g, y, x: g),
    "jvp": lambda f: op(f).jvp(lambda function, values, tangents, options: None),
    "adjoint": lambda f: op(f).adjoint(lambda g, y, x: g),
    "multilinear": lambda f: op(f).multilinear(lambda g, y, x: g),
    "moves": lambda f: op(f).declare(moves=1),
    "constant": lambda f: op(f).declare(constant=False),
    "perSample": lambda f: op(f).perSample(len),
    "decompose": lambda f: op(f).decompose(len),
    "onnx": lambda f: op(f).onnx(len),
    "records": lambda f: reads(f)(len),
}


@pytest.mark.parametrize("register", REGISTRATIONS.values(), ids=REGISTRATIONS)
def test_what_is_declared_of_a_function_that_no_tracer_is_handed_is_refused(register):
    with pytest.raises(ValueError, match="wanted a Kernel or a function of numpy .* got len"):
        register(len)
    assert len not in OPERATIONS


@pytest.mark.parametrize(
    ("what", "function"),
    [
        ("vjp", np.cumsum),
        ("jvp", np.diff),
        ("adjoint", np.cumsum),
        ("multilinear", np.matmul),
        ("moves", np.repeat),
        ("constant", np.argmax),
        ("perSample", np.cumsum),
        ("decompose", np.mean),
        ("onnx", np.cumsum),
        ("records", np.cumsum),
    ],
)
def test_a_second_declaration_is_refused(what, function):
    before = dict(operationOf(function).declarations)
    with pytest.raises(ValueError, match=f"{function.__name__} has declared its .* already"):
        REGISTRATIONS[what](function)
    assert operationOf(function).declarations == before


def test_a_function_has_one_gradient():
    assert declared(np.cumsum, "adjoint") and not declared(np.cumsum, "vjp")
    with pytest.raises(ValueError, match="cumsum has declared its adjoint already"):
        op(np.cumsum).declare(constant=True)


def test_a_kernel_has_one_gradient(double):
    double.adjoint(lambda g, y, x: 2 * g)
    with pytest.raises(ValueError, match="has declared its adjoint already"):
        double.vjp(lambda g, y, x: 2 * g)


OURS = [f for f in kernels.registry.values() if f.__module__.startswith("puregraph.")]


@pytest.mark.parametrize("function", OURS, ids=lambda f: f.__name__)
def test_each_declaration_of_a_kernel_is_asked_for(function):
    """What serves another declaration alone stands beside it."""
    has = function.declarations.keys() | function.implementations.keys()
    for what, needed in {"epilogue": "library", "sampled": "samples", "jvp": "vjp", "bounds": "cuda"}.items():
        assert what not in has or needed in has, f"{what} without {needed}"
