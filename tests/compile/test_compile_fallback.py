"""What cannot be compiled runs eagerly, with one warning that names the nodes and asks for a report."""

import copy
import signal
import warnings
from functools import partial

import numpy as np
import pytest

from puregraph import MSE, SGD, Calculator, LayerNorm, Linear, Relu, Sequential, Sum, Trainer, Validator
from puregraph.compile import backend, program
from puregraph.compile.program import Program
from puregraph.compile.trace.graphtracer import GraphTracer
from puregraph.compile.trace.opaque import NotCompiledError
from puregraph.core.errors import FormulaError, GraphWarning, PuregraphError, ShapeError
from puregraph.ops.native.llvm import jit

FAULTS = [
    KeyError("axis1"),
    ValueError("y18 is wanted before it is complete"),
    RecursionError("deep"),
    FormulaError("x"),
]
PASSES = ["schedule", "planned", "fastPathOf"]


def broken(monkeypatch, name, error):
    """Have a pass of the compiler fail."""

    def fail(*given, **options):
        raise error

    monkeypatch.setattr(backend if name == "planned" else program, name, fail)


def network():
    return Sequential(Linear(3, 4, name="first"), Relu(name="r"), LayerNorm(4, name="n"), Linear(4, 2, name="last"))


def data(count=6):
    rng = np.random.default_rng(0)
    return rng.standard_normal((count, 3)).astype("f4"), rng.standard_normal((count, 2)).astype("f4")


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("error", FAULTS, ids=lambda e: type(e).__name__)
def test_a_fault_of_the_compiler_is_warned_of_once_and_the_graph_runs(monkeypatch, name, error):
    if name == "fastPathOf" and not jit.available():
        pytest.skip("only native code has short runs")
    if name == "schedule" and isinstance(error, FormulaError):
        pytest.skip("nothing of it is read as formulas there")
    net, (x, _) = network().evalMode(), data()
    broken(monkeypatch, name, error)
    with pytest.warns(GraphWarning, match="report") as told:
        compiled = net.compile(x.shape, train=False)
    assert len(told) == 1 and "'first' (Linear)" in str(told[0].message) and type(error).__name__ in compiled.why
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(compiled.run(x), net(x))
        net.compile(x.shape, train=False)  # of which the same would be said
    with pytest.raises(PuregraphError, match="is not compiled"):
        compiled.table()


@pytest.mark.parametrize("name", PASSES[:2])
def test_a_training_step_that_cannot_be_compiled_trains_eagerly(monkeypatch, name):
    net, (x, t) = network(), data()
    twin = copy.deepcopy(net)
    steps = net.compile([x.shape, t.shape], cost=MSE(), optimizer=SGD(0.1))
    broken(monkeypatch, name, KeyError("axis1"))
    with pytest.warns(GraphWarning, match="report"):
        eager = twin.compile([x.shape, t.shape], cost=MSE(), optimizer=SGD(0.1))
    for _ in range(3):
        np.testing.assert_allclose(eager.run(x, t)[0], steps.run(x, t)[0], rtol=1e-5)
    assert eager.optimizer.step == 3
    for path, p in net.params.items():
        np.testing.assert_allclose(twin.params[path].data, p.data, rtol=1e-4, atol=1e-6)


def test_trainer_validator_and_calculator_never_raise_what_the_compiler_does(monkeypatch):
    net, (x, t) = network(), data(20)
    broken(monkeypatch, "planned", KeyError("axis1"))
    with pytest.warns(GraphWarning, match="report"):
        Trainer(net, MSE(), SGD(0.1), batchsize=8, accumulate=2, progress=None).train(x, t, validation=(x, t))
    with pytest.warns(GraphWarning, match="report"):
        assert Calculator(net, batchsize=8).calculate(x).shape == (20, 2)
    with pytest.warns(GraphWarning, match="report"):
        assert np.isfinite(Validator(net, MSE(), batchsize=8).validate(x, t)["loss"])


def test_the_nodes_are_named_where_they_are_known(monkeypatch):
    net, (x, _) = network(), data()

    def fail(found, *more):
        call = found.calls[-1]
        raise KeyError(call.kind)

    monkeypatch.setattr(backend, "planned", fail)
    with pytest.warns(GraphWarning, match=r"at 'last' \(Linear\): KeyError"):
        net.compile(x.shape, train=False)


def test_many_nodes_are_named_in_part(monkeypatch):
    net = Sequential(*[Relu(name=f"r{i}") for i in range(20)])
    broken(monkeypatch, "planned", KeyError("x"))
    with pytest.warns(GraphWarning, match="'r5' .Relu. and 14 nodes more: KeyError"):
        net.compile((2, 2), train=False)


def test_a_program_that_says_why_it_cannot_serve_runs_eagerly(monkeypatch):
    net, (x, _) = network().evalMode(), data()
    broken(monkeypatch, "schedule", NotCompiledError("at 'last.W': a view with gaps; copy it"))
    with pytest.warns(GraphWarning, match="is not compiled, its graph runs instead: at 'last.W'.*copy it") as told:
        compiled = net.compile(x.shape, train=False)
    assert "report" not in str(told[0].message)
    assert np.array_equal(compiled.run(x), net(x))


def test_what_is_wrong_with_a_graph_is_still_raised():
    with pytest.raises(ShapeError, match="first"):
        network().compile((2, 7))
    with pytest.raises(PuregraphError, match="within 1 bytes"):
        network().compile([(6, 3), (6, 2)], cost=MSE(), optimizer=SGD(0.1), budget=1)


def test_memory_that_ends_while_compiling_is_raised_and_the_program_serves_afterwards(monkeypatch):
    net, (x, _) = network().evalMode(), data()
    compiled = net.compile(x.shape, train=False)
    broken(monkeypatch, "planned", MemoryError())
    net["first"].W.data = net["first"].W.data + 1
    with pytest.raises(MemoryError):
        compiled.run(x)
    monkeypatch.undo()
    np.testing.assert_allclose(compiled.run(x), net(x), rtol=1e-5, atol=1e-6)
    assert compiled.why == "" and compiled.executable is not None


def alarm(*given):
    raise TimeoutError("preempted")


def resettingAlarm(number, frame):
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    raise TimeoutError("preempted")


class Alarm:
    """A handler that is no function."""

    def __call__(self, *given):
        alarm()


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no such signals")
@pytest.mark.parametrize("handler", [alarm, resettingAlarm, Alarm(), partial(alarm, 1)])
@pytest.mark.parametrize("owner, name", [(program, "schedule"), (backend, "planned"), (GraphTracer, "read")])
def test_what_a_signals_handler_raises_is_no_fault_of_the_compiler(monkeypatch, owner, name, handler):
    net, (x, _) = network().evalMode(), data()

    def interrupted(*given, **options):
        signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, interrupted)
            with pytest.raises(TimeoutError, match="preempted"):
                net.compile(x.shape, train=False)
    finally:
        signal.signal(signal.SIGUSR1, before)
    np.testing.assert_allclose(net.compile(x.shape, train=False).run(x), net(x), rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not jit.available(), reason="no llvmlite")
def test_a_scalar_of_numpy_does_not_leave_the_program(monkeypatch):
    compiled = Program(Sequential(Linear(3, 2), Sum()), [(4, 3)], grads=(True,))
    x = np.ones((4, 3), np.float32)
    wanted = compiled.run(x, np.ones((), np.float32))
    monkeypatch.setattr(compiled, "runEagerly", lambda *arguments: pytest.fail("the graph ran"))
    assert compiled.run(x, np.float32(1)) == wanted
