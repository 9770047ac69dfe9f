"""What a signal's handler raises arrives once, at any moment: weights, state and the count of updates then agree."""

import copy
import os
import random
import signal
import sys
import warnings
from contextlib import suppress

import numpy as np
import pytest

from puregraph import MSE, SGD, Adam, BatchNorm, Linear, Module, Relu, Sequential
from puregraph.compile import Program
from puregraph.compile.trace.withcost import withCost
from puregraph.core import initial
from puregraph.core.base.signals import Deferred, isAsynchronous
from puregraph.core.errors import PuregraphError
from puregraph.ops.kernel import useFast
from puregraph.ops.native.llvm import jit

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no such signals")
MANNERS = ["numpy", pytest.param("native", marks=pytest.mark.skipif(not jit.available(), reason="no llvmlite"))]


class PreemptedError(Exception):
    """What the handler of these tests raises."""


@pytest.fixture
def alarmed():
    """A handler of SIGALRM that raises; how often it did."""
    heard = []

    def handle(number, frame):
        heard.append(number)
        raise PreemptedError(len(heard))

    before = signal.signal(signal.SIGALRM, handle)
    yield heard
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert signal.getsignal(signal.SIGALRM) is handle
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=MANNERS)
def manner(request):
    with useFast(request.param == "native"):
        yield request.param


def network():
    initial.seed(3)
    return Sequential(Linear(30, 40), BatchNorm(40), Relu(), Linear(40, 20))


def batch():
    rng = np.random.default_rng(0)
    return rng.standard_normal((16, 30)).astype("f4"), rng.standard_normal((16, 20)).astype("f4")


def weights(net):
    return [p.data.tobytes() for p in net.params.values()]


@pytest.fixture
def lost(monkeypatch):
    """What a handler raised while the garbage collector ran a finalizer: Python reports it, and raises nothing."""
    found = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: found.append(report.exc_type))
    return found


def checkInterrupted(make, alarmed, lost, rounds):
    """Interrupt training at random moments: weights are those of as many steps as were counted, one by one."""
    x, t = batch()
    net, twin = network(), network()
    optimizer, wanted = make(), make()
    program = net.compile([x.shape, t.shape], cost=MSE(), optimizer=optimizer)
    reference = twin.compile([x.shape, t.shape], cost=MSE(), optimizer=wanted)
    draw, updates = random.Random(0), 0
    for _ in range(3):
        program.run(x, t)
    for _ in range(rounds):
        heard, raised = len(alarmed), 0
        try:
            signal.setitimer(signal.ITIMER_REAL, draw.uniform(5e-5, 3e-3))
            while len(alarmed) == heard:
                program.run(x, t)
        except PreemptedError:
            raised = 1
        assert len(alarmed) == heard + 1, "it is heard once"
        assert raised + len(lost) == 1 and set(lost) <= {PreemptedError}, "what it raises arrives"
        lost.clear()
        while wanted.step < optimizer.step:
            reference.run(x, t)
        updates = optimizer.step
        assert weights(net) == weights(twin), f"weights are not those of {updates} updates"
        assert {slot.step for slot in optimizer.slots} == {updates}
        assert program.executable is not None and program.why == "", "the program is not given up"


@pytest.mark.parametrize("make", [lambda: SGD(0.01), lambda: Adam(0.01)], ids=["SGD", "Adam"])
def test_weights_and_the_count_of_updates_agree_wherever_a_handler_raises(manner, make, alarmed, lost):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checkInterrupted(make, alarmed, lost, 40)


def test_weights_and_the_count_of_updates_agree_in_a_program_that_verifies_itself(manner, alarmed, lost, monkeypatch):
    monkeypatch.setenv("PUREGRAPH_VERIFY", "1")
    checkInterrupted(lambda: Adam(0.01), alarmed, lost, 8)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("make", [lambda: SGD(0.01), lambda: Adam(0.01)], ids=["SGD", "Adam"])
def test_weights_and_the_count_of_updates_agree_two_thousand_times(manner, make, alarmed, lost):
    checkInterrupted(make, alarmed, lost, 2000)


def test_a_handler_between_an_update_and_its_count_is_heard_behind_both(manner, alarmed):
    x, t = batch()
    net, optimizer = network(), Adam(0.01)
    program = net.compile([x.shape, t.shape], cost=MSE(), optimizer=optimizer)
    program.run(x, t)
    twin = copy.deepcopy(net)
    for part in program.executable.parts:
        for step in part.steps:
            after = getattr(getattr(step.function, "table", None), "after", None)
            if after is not None:
                after.go = raising(after.go)
            elif step.call is not None and step.call.origin.phase == "update":
                step.function = raising(step.function)
    before = optimizer.step
    with pytest.raises(PreemptedError):
        program.run(x, t)
    assert weights(net) != weights(twin)
    assert optimizer.step == before + 1 and {s.step for s in optimizer.slots} == {optimizer.step}


def raising(function):
    """A function ahead of which, the first time, a signal comes."""
    heard = []

    def run(*arguments, **options):
        if not heard:
            heard.append(True)
            signal.raise_signal(signal.SIGALRM)
        return function(*arguments, **options)

    return run


class Interrupted(Module):
    """A rule in which a signal comes, now and then."""

    comes = False

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        if self.comes:
            signal.raise_signal(signal.SIGALRM)
        return np.asarray(x).copy() * 2

    def updateGrad(self, grad, x, y):
        return 2 * grad


def test_what_a_handler_raises_within_a_rule_is_not_taken_for_a_rule_that_failed(manner, alarmed):
    rule = Interrupted()
    net, (x, _) = Sequential(Linear(30, 4), rule).evalMode(), batch()
    program = net.compile(x.shape, train=False)
    wanted = program.run(x)
    assert np.array_equal(program.run(x), wanted)
    Interrupted.comes = True
    try:
        with pytest.raises(PreemptedError) as found:
            program.run(x)
    finally:
        Interrupted.comes = False
    assert isAsynchronous(found.value) and len(alarmed) == 1 and program.why == ""
    assert np.array_equal(program.run(x), wanted)


class Failing(Interrupted):
    """A rule that fails."""

    def updateData(self, x):
        if self.comes:
            raise ValueError("not today")
        return np.asarray(x).copy() * 2


def test_states_are_put_back_before_the_graph_does_again_what_failed(manner):
    rule = Failing()
    net, (x, t) = Sequential(Linear(30, 4), BatchNorm(4), rule), batch()
    program = net.compile([x.shape, (16, 4)], cost=MSE(), optimizer=SGD(0.1))
    for _ in range(2):
        program.run(x, t[:, :4])
    twin = copy.deepcopy(net)
    Failing.comes = True
    try:
        with pytest.raises(ValueError, match="not today"):
            program.run(x, t[:, :4])
        with pytest.raises(ValueError, match="not today"):
            withCost(twin, MSE(), 1, 1)([x, t[:, :4]])
    finally:
        Failing.comes = False
    for path, state in net.states.items():
        np.testing.assert_allclose(state.data, twin.states[path].data, rtol=1e-5)


def test_an_exception_of_the_code_itself_is_not_asynchronous(alarmed):
    def handle(number, frame=None):
        raise ValueError("called as a function")

    with pytest.raises(ValueError) as found:
        handle(1)
    assert not isAsynchronous(found.value)
    with pytest.raises(PreemptedError) as found:
        signal.raise_signal(signal.SIGALRM)
    assert isAsynchronous(found.value)


def test_a_handler_that_runs_the_program_that_is_running_is_refused_by_name(manner):
    rule, said = Interrupted(), []
    net, (x, _) = Sequential(Linear(30, 4), rule).evalMode(), batch()
    program = net.compile(x.shape, train=False)
    wanted = program.run(x)

    def handle(number, frame):
        try:
            program.run(x)
        except PuregraphError as error:
            said.append(str(error))

    before = signal.signal(signal.SIGALRM, handle)
    Interrupted.comes = True
    try:
        assert np.array_equal(program.run(x), wanted)
    finally:
        Interrupted.comes = False
        signal.signal(signal.SIGALRM, before)
    assert len(said) == 1 and "running in this very thread" in said[0]


def test_a_handler_may_run_another_program(manner):
    rule, found = Interrupted(), []
    net, (x, _) = Sequential(Linear(30, 4), rule).evalMode(), batch()
    other = Sequential(Linear(30, 5)).evalMode()
    program, second = net.compile(x.shape, train=False), other.compile(x.shape, train=False)
    wanted = program.run(x), second.run(x)
    before = signal.signal(signal.SIGALRM, lambda number, frame: found.append(second.run(x)))
    Interrupted.comes = True
    try:
        assert np.array_equal(program.run(x), wanted[0])
    finally:
        Interrupted.comes = False
        signal.signal(signal.SIGALRM, before)
    assert np.array_equal(found[0], wanted[1])


def test_handlers_that_compile_while_compiling_are_refused(monkeypatch):
    net, (x, _), said = network(), batch(), []

    def handle(number, frame):
        try:
            Sequential(Linear(3, 4)).compile((2, 3), train=False)
        except PuregraphError as error:
            said.append(str(error))

    original = Program.schedule

    def interrupted(self):
        signal.raise_signal(signal.SIGALRM)
        return original(self)

    before = signal.signal(signal.SIGALRM, handle)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(Program, "schedule", interrupted)
            net.compile(x.shape, train=False)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len(said) == 1 and "this thread is compiling" in said[0]


def test_deferred_signals_are_heard_behind_the_stretch_each_once(alarmed):
    done, others = [], []
    before = signal.signal(signal.SIGUSR1, lambda *given: others.append(given[0]))
    try:
        with pytest.raises(PreemptedError, match="1"), Deferred():
            os.kill(os.getpid(), signal.SIGALRM)
            os.kill(os.getpid(), signal.SIGUSR1)
            done.append(True)
        assert done and others == [signal.SIGUSR1] and len(alarmed) == 1
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_within_a_shape_rule_keeps_the_type_of_what_it_raises(alarmed, monkeypatch):
    net = network()
    monkeypatch.setattr(Relu, "dataShapeFrom", raising(lambda shape: shape))
    with pytest.raises(PreemptedError):
        net.dataShapeFrom((2, 30))


@pytest.mark.parametrize("make", [lambda: SGD(0.01), lambda: Adam(0.01)], ids=["SGD", "Adam"])
def test_an_update_in_a_loop_of_ones_own_is_done_whole_before_a_handler_raises(make, alarmed, lost):
    (x, t), net, draw = batch(), network(), random.Random(0)
    net.backward(net(x) - t)
    twin, optimizer = copy.deepcopy(net), make().setupOn(net)
    wanted = make().setupOn(twin)
    for _ in range(40):
        heard = len(alarmed)
        with suppress(PreemptedError):
            signal.setitimer(signal.ITIMER_REAL, draw.uniform(5e-5, 3e-3))
            while len(alarmed) == heard:
                optimizer.update()
        while wanted.step < optimizer.step:
            wanted.update()
        assert {slot.step for slot in optimizer.slots} == {optimizer.step}
        assert weights(net) == weights(twin), f"weights are not those of {optimizer.step} updates"
    assert len(alarmed) == 40 and set(lost) <= {PreemptedError}
