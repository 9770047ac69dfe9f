"""What a constructor is given is looked at before anything is made of it."""

import inspect
from typing import Annotated

import numpy as np
import pytest

from puregraph import (
    RNN,
    SGD,
    Accuracy,
    Adam,
    Add,
    ArgumentError,
    Calculator,
    Conv2D,
    CrossEntropy,
    DataError,
    Dropout,
    DtypeError,
    EarlyStop,
    Linear,
    MatMul,
    Module,
    MomentumSGD,
    Relu,
    ShapeError,
    Sum,
    Trainer,
)
from puregraph.core.arguments import Count, Flag, NotNegative, Text, choice
from puregraph.core.errors import PuregraphError
from puregraph.data import split
from puregraph.modules import AvgPool2D, If, MaxPool2D, Split, Transpose, Unsqueeze


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


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Linear(3, 4, bias=False),
            "Linear: there is no argument bias; did you mean useBias. Valid arguments: insize, ",
        ),
        (lambda: Conv2D(1, 2, kernel_size=3), "did you mean size"),
        (lambda: Conv2D(1, 2, 3, padding=1), "did you mean pad"),
        (lambda: Linear(3, 4, usebias=True), "did you mean useBias"),
        (lambda: Dropout(rate=0.5), "did you mean p"),
        (lambda: Sum(dim=1), "did you mean axis"),
        (lambda: Sum(whatever=1), "Sum: there is no argument whatever; valid arguments: axis, keepdims, name"),
        (lambda: SGD(lr=0.1), "did you mean learnRate"),
        (lambda: Adam(lr=0.1), "did you mean learnRate"),
        (lambda: Adam(weight_decay=0.1), "did you mean decay"),
        (lambda: MomentumSGD(momentum=0.9), "did you mean momRate"),
        (lambda: Accuracy(ignore_index=-1), "did you mean ignore"),
        (lambda: CrossEntropy(label_smoothing=0.1), "did you mean smoothing"),
        (lambda: EarlyStop(Patience=3), "did you mean patience"),
        (
            lambda: Trainer(None, None, None, batch_size=3),
            "Trainer: there is no argument batch_size; did you mean batchsize",
        ),
    ],
)
def test_an_argument_that_there_is_not_is_refused_with_the_one_that_was_meant(make, words):
    with pytest.raises(ArgumentError, match=words):
        make()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: Calculator(Linear(3, 4)).calculate(1, 2),
            "calculate: wanted data by position, got 1, 2; several arrays .* a list",
        ),
        (
            lambda: split(1, 2, 0.5, 0, True, 7),
            "split: wanted data, target, part, seed, stratify by position, got 1, 2",
        ),
        (lambda: Linear(3, 4, insize=5), "Linear: wanted insize once, got 3 by position and insize=5"),
    ],
)
def test_arguments_too_many_are_refused_with_those_there_are(call, words):
    with pytest.raises(ArgumentError, match=words):
        call()


def test_a_class_of_a_user_takes_what_its_constructors_take():
    class Own(Linear):
        def __init__(self, width, **rest):
            super().__init__(width, width, **rest)

    assert Own(width=3, useBias=False).b is None
    with pytest.raises(TypeError, match="nonsense"):
        Own(3, nonsense=1)


@pytest.mark.parametrize("module", [Relu(), Linear(3, 4), Sum(), Add(), RNN(3, 4), MatMul()], ids=repr)
@pytest.mark.parametrize("kind", [complex, str, object, "M8[s]"])
def test_what_computes_with_real_numbers_takes_no_others(module, kind):
    x = np.zeros((2, 3)).astype(kind) if kind != "M8[s]" else np.zeros((2, 3), kind)
    given = [x] * (2 if isinstance(module, (Add, MatMul)) else 1)
    with pytest.raises(DtypeError, match="wanted an array of real numbers for .*, got dtype .*; convert with .astype"):
        module(*given)


def test_a_text_and_an_input_too_many_are_refused_by_the_name_of_the_input():
    with pytest.raises(DtypeError, match="at 'relu' .Relu.: wanted an array of real numbers for x, got"):
        Relu()("image.png")
    with pytest.raises(DataError, match=r"at 'relu' .Relu.: wanted 1 input \(x\), got 2"):
        Relu()(np.ones(3), np.ones(3))


def test_a_subclass_is_checked_by_what_it_hands_on():
    class Head(Linear):
        def __init__(self, insize, bias):
            super().__init__(insize, 10, useBias=bias)

    with pytest.raises(ArgumentError, match="Head: wanted useBias as True or False, got 'yes'"):
        Head(3, "yes")
    assert Head(3, True).b is not None


def test_a_module_of_a_user_is_checked_as_well():
    class Scale(Module):
        def __init__(self, factor: NotNegative = 1.0, mode: choice("in", "out") = "in", count: Count | None = None):
            super().__init__()
            self.factor = factor

    assert Scale(2.0, "out", 3).factor == 2.0
    with pytest.raises(ArgumentError, match="Scale: wanted mode as one of 'in', 'out', got 'up'"):
        Scale(mode="up")
    with pytest.raises(ShapeError, match="wanted count as a whole number of at least 1, or None, got 0"):
        Scale(count=0)


def test_a_requirement_may_stand_beside_a_type():
    class Window(Module):
        def __init__(
            self,
            mode: Annotated[str, choice("in", "out")] = "in",
            name: Annotated[str | None, choice("a") | None] = None,
            plain: Annotated[str, "for readers"] = "",
        ):
            super().__init__()
            self.mode = mode

    assert Window("out", plain=3).mode == "out"
    with pytest.raises(ArgumentError, match="Window: wanted mode as one of 'in', 'out', got 'up'"):
        Window("up")
    with pytest.raises(ArgumentError, match="Window: wanted name as one of 'a', or None, got 'b'"):
        Window(name="b")
    with pytest.raises(TypeError):
        Count | 3


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


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Conv2D(1, 1, 1 << 62), "wanted size of at most 2,147,483,647, got 4611686018427387904"),
        (lambda: MaxPool2D(2, stride=1 << 31), "wanted stride of at most 2,147,483,647, got 2147483648"),
        (lambda: AvgPool2D(2, stride=1 << 63), "wanted stride of at most 2,147,483,647, got 9223372036854775808"),
        (lambda: Split(0, count=1 << 31), "wanted at most 65536 parts, got 2147483648"),
        (lambda: Split(0, ("a", "b")), r"wanted sections of at least 0, or one number of equal parts of at least 1"),
        (lambda: Unsqueeze(3), "Unsqueeze: wanted axes as a list of whole numbers, or None, got 3"),
        (lambda: If(3, None), "If: wanted then as a graph, or None, got 3"),
        (
            lambda: Transpose(range(3)),
            r"Transpose: wanted axes as a tuple of axes, such as \(0, 2, 1\), or None, got range",
        ),
        (lambda: Transpose([0] * 1_000_000), "wanted at most 64 axes, got 1000000"),
    ],
)
def test_sizes_that_nothing_has_are_refused_when_a_module_is_made(make, words):
    with pytest.raises(PuregraphError, match=words):
        make()
