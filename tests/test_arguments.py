"""What a constructor is given is looked at before anything is made of it."""

import inspect

import numpy as np
import pytest

from puregraph import ArgumentError, Conv2D, Dropout, Linear, Module, ShapeError, Sum
from puregraph.arguments import Count, Flag, NotNegative, Text, choice, optional


def test_a_number_in_the_place_of_a_flag_is_refused_with_the_name_of_the_flag():
    with pytest.raises(ArgumentError, match="Linear: wanted useBias as True or False, got 0.01; argument 3 is useBias"):
        Linear(100, 50, 0.01)  # PuzzleLib's third argument is the spread of the weights


@pytest.mark.parametrize("flag", [0, 1, "no", None, [], np.ones(2)])
def test_a_flag_is_a_bool(flag):
    with pytest.raises(ArgumentError, match="wanted useBias as True or False"):
        Conv2D(1, 2, 3, useBias=flag)


def test_a_bool_of_numpy_is_a_flag():
    assert Linear(3, 4, useBias=np.bool_(False)).b is None


def test_numbers_of_numpy_are_numbers():
    assert Dropout(np.float32(0.5)).p == 0.5
    assert Linear(np.int64(3), np.int32(4)).W.shape == (3, 4)


@pytest.mark.parametrize("kind", [TypeError, ValueError])
def test_an_argument_that_is_refused_is_a_type_error_and_a_value_error(kind):
    with pytest.raises(kind):
        Sum(keepdims="yes")


def test_a_subclass_is_checked_by_what_it_hands_on():
    class Head(Linear):
        def __init__(self, insize, bias):
            super().__init__(insize, 10, useBias=bias)

    with pytest.raises(ArgumentError, match="Head: wanted useBias as True or False, got 'yes'"):
        Head(3, "yes")
    assert Head(3, True).b is not None


def test_a_module_of_a_user_is_checked_as_well():
    class Scale(Module):
        def __init__(self, factor: NotNegative = 1.0, mode: choice("in", "out") = "in", count: optional(Count) = None):
            super().__init__()
            self.factor = factor

    assert Scale(2.0, "out", 3).factor == 2.0
    with pytest.raises(ArgumentError, match="Scale: wanted mode as one of 'in', 'out', got 'up'"):
        Scale(mode="up")
    with pytest.raises(ShapeError, match="wanted count as a whole number of at least 1, or None, got 0"):
        Scale(count=0)


def test_annotations_of_other_kinds_are_left_alone():
    class Plain(Module):
        def __init__(self, factor: float = 1.0):
            super().__init__()
            self.factor = factor

    assert Plain("anything").factor == "anything"


def test_a_signature_says_what_an_argument_has_to_be():
    kinds = {p.name: p.annotation for p in inspect.signature(Linear.__init__).parameters.values()}
    assert kinds["useBias"] is Flag and str(kinds["useBias"]) == "True or False"


@pytest.mark.parametrize("value", [b"x", 3, None])
def test_a_text_is_a_text(value):
    with pytest.raises(ArgumentError, match="Owner: wanted name as a text"):
        Text.check("Owner", "name", value)


def test_a_long_value_is_cut_in_the_message():
    with pytest.raises(ArgumentError) as found:
        Flag.check("Owner", "flag", "x" * 10_000)
    assert len(str(found.value)) < 300
