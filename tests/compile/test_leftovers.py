"""What the suite says of a step that is left to numpy: which it is, which pass could have taken it, and why it did not."""

import numpy as np
import pytest
from leftovers import leftToNumpy
from natively import needsNative

from puregraph import Graph, Module
from puregraph.compile.program import Program
from puregraph.core.param import Param, State
from puregraph.graph.input import Input

pytestmark = needsNative


class Counts(Module):
    """Its state has a dtype that native code does not know."""

    def __init__(self, name=None):
        super().__init__(name)
        self.s = State((4, 6), dtype=np.float16)

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x, s):
        s[...] = x
        return x

    def updateGrad(self, grad, x, s, y):
        return grad, None


class Twice(Module):
    """Two parameters have one gradient."""

    def __init__(self, name=None):
        super().__init__(name)
        self.a, self.b = Param((6,)), Param((6,))

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x, a, b):
        return x + a + b

    def updateGrad(self, grad, x, a, b, y):
        total = grad.sum(0)
        return grad, total, total


def moduleOf(rule):
    """A module with this rule."""
    return type("Mine", (Module,), {"dataShapeFrom": lambda self, x: x, "updateData": rule})(name="mine")


def programOf(module, dtype="f4", **options):
    """A program of one node."""
    x = Input(name="x").node()
    return Program(Graph(x, module.node(x)), [(4, 6)], [dtype], **options)


@pytest.mark.parametrize(
    ("rule", "dtype", "words"),
    [
        (lambda self, x: np.sort(x, axis=1), "f4", "lower: no lowering is registered"),
        (lambda self, x: (x.astype("f8") @ x.T @ x).astype("f4"), "f4", "lower: what lowers it returned None"),
        (lambda self, x: np.tanh(x.astype("f2")).astype("f4"), "f4", "fuse: no group took it"),
        (lambda self, x: np.tanh(x), "f2", "backend: 'numpy' lowers no calls"),
    ],
)
def test_a_step_that_is_left_to_numpy_says_which_pass_and_why(rule, dtype, words):
    (first, *_) = leftToNumpy(programOf(moduleOf(rule), dtype))
    assert "at 'mine' (Mine, forward) of float" in first and "[4, 6] strides" in first and words in first


def test_a_rule_that_is_called_whole_says_what_it_does_that_cannot_be_traced():
    program = programOf(moduleOf(lambda self, x: np.asarray(x.tolist(), x.dtype)))
    program.run(np.ones((4, 6), "f4"))
    (only,) = leftToNumpy(program)
    assert "trace: its rule could not be traced (the rule reads the elements of a value)" in only


def test_a_store_that_is_left_says_that_its_elements_are_not_copied_natively():
    *_, last = leftToNumpy(programOf(Counts(name="mine")))
    assert last.startswith("store at 'states'") and "float16" in last
    assert "lower: native code copies no elements of this dtype" in last


def test_a_result_that_is_copied_to_its_target_says_why_it_is_not_computed_there():
    (only,) = leftToNumpy(programOf(Twice(name="mine"), grads=[True]))
    assert only.startswith("copy to GradientOf of float32[6]") and "it is stored in another target, too" in only


def test_without_a_program_the_reason_is_that_of_the_program():
    program = programOf(moduleOf(lambda self, x: np.asarray(x.tolist(), x.dtype)))
    assert "at 'mine' (Mine): " in leftToNumpy(program)


def test_of_a_program_that_is_all_native_nothing_is_left():
    assert leftToNumpy(programOf(moduleOf(lambda self, x: np.tanh(x) + x))) == []
