"""Overhead: how many Python functions of the library a pass of a small network calls, which a busy machine cannot change."""

import sys

import numpy as np
import pytest

from puregraph import SGD, CrossEntropy, Linear, Relu, Sequential
from puregraph.compile import verify
from puregraph.native.llvm import jit

INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")  # no calls of their own in some versions of Python
RNG = np.random.default_rng(0)
X, T, G = RNG.normal(size=(4, 8)).astype("f4"), np.arange(4), RNG.normal(size=(4, 4)).astype("f4")


def network():
    """Three nodes, four parameters."""
    return Sequential(Linear(8, 16), Relu(), Linear(16, 4))


def callsOf(function):
    """The number of functions of the library that a call of a function calls, once everything is known."""

    def note(frame, event, _):
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("puregraph.") and frame.f_code.co_name not in INLINED:
            found[-1] += 1

    for _ in range(20):
        function()
    found, before = [], sys.getprofile()
    for _ in range(5):
        found.append(0)
        sys.setprofile(note)
        try:
            function()
        finally:
            sys.setprofile(before)
    return min(found)


def checkCalls(function, golden):
    """The count is the golden one, or nearly: a smaller one is to be written down here, a larger one to be explained."""
    assert abs(callsOf(function) - golden) <= golden // 30


def test_a_forward_pass_calls_no_more_functions_than_it_did():
    net = network()
    checkCalls(lambda: net(X), 24)


def test_a_pass_forward_and_backward_calls_no_more_functions_than_it_did():
    net = network()

    def step():
        net(X)
        net.backward(G)

    checkCalls(step, 126)


def test_a_training_step_calls_no_more_functions_than_it_did():
    net = network()
    optimizer = SGD(0.001).setupOn(net)

    def step():
        net(X)
        net.backward(G)
        optimizer.update()

    checkCalls(step, 182)


def test_a_module_of_its_own_calls_no_more_functions_than_it_did():
    module = Linear(8, 4)

    def step():
        module(X)
        module.backward(G)

    checkCalls(step, 109)


@pytest.mark.skipif(not jit.available() or verify.isOn(), reason="native code that runs unchecked")
def test_a_compiled_training_step_calls_no_more_functions_than_it_did():
    program = network().compile((4, 8), (4,), cost=CrossEntropy(), optimizer=SGD(0.001))
    checkCalls(lambda: program.run(X, T), 33)


@pytest.mark.skipif(not jit.available() or verify.isOn(), reason="native code that runs unchecked")
def test_a_compiled_forward_pass_calls_no_more_functions_than_it_did():
    program = network().evalMode().compile((4, 8))
    checkCalls(lambda: program.run(X), 7)
