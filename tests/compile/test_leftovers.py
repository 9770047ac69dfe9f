"""What the suite says of a step that is left to numpy: which it is, which pass could have taken it, and why it did not."""

import numpy as np
import pytest
from leftovers import leftToNumpy
from natively import needsNative

from puregraph import Graph, Module
from puregraph.compile.program import Program
from puregraph.graph.input import Input

pytestmark = needsNative


def programOf(rule, dtype="f4"):
    """A program of one node `mine`, whose module has this rule."""

    mine = type("Mine", (Module,), {"dataShapeFrom": lambda self, x: x, "updateData": rule})
    x = Input(name="x").node()
    return Program(Graph(x, mine(name="mine").node(x)), [(4, 6)], [dtype])


@pytest.mark.parametrize(
    ("rule", "dtype", "words"),
    [
        (lambda self, x: np.sort(x, axis=1), "f4", "lower: no lowering is registered"),
        (lambda self, x: x @ x.T @ x, "f8", "lower: what lowers it returned None"),
        (lambda self, x: np.tanh(x), "f8", "fuse: no group took it"),
    ],
)
def test_a_step_that_is_left_to_numpy_says_which_pass_and_why(rule, dtype, words):
    (first, *_) = leftToNumpy(programOf(rule, dtype))
    assert "at 'mine' (Mine, forward) of float" in first and "[4, 6] strides" in first and words in first


def test_without_a_program_the_reason_is_that_of_the_program():
    assert "at 'mine' (Mine): " in leftToNumpy(programOf(lambda self, x: np.asarray(x.tolist(), x.dtype)))


def test_of_a_program_that_is_all_native_nothing_is_left():
    assert leftToNumpy(programOf(lambda self, x: np.tanh(x) + x)) == []
