"""The cases of the ONNX standard: all of an operator that is claimed pass, and none gives a wrong result."""

import collections
import functools
import unittest
import warnings

import numpy as np
import pytest
from onnxclaims import CLAIMED, EXPANDED, LEFTOUT, PLAIN, WRITTENOUT

from puregraph import PuregraphError

onnx = pytest.importorskip("onnx")

from onnx.backend.test import BackendTest  # noqa: E402
from onnx.backend.test.loader import load_model_tests  # noqa: E402

from puregraph.onnx.modelfile import NUMERIC  # noqa: E402
from puregraph.onnx.onnxbackend import onnxBackend  # noqa: E402


@functools.cache
def cases():
    """(name, operator, whether it is written out, whether its types are arrays of numbers) of every case of a node."""
    found = []
    with warnings.catch_warnings():  # what makes the cases overflows on purpose
        warnings.simplefilter("ignore")
        loaded = load_model_tests(kind="node")
    for case in loaded:
        model = case.model or onnx.load(f"{case.model_dir}/model.onnx")
        operators = [node.op_type for node in model.graph.node]
        name, isExpanded = case.name.removeprefix("test_"), "_expanded" in case.name
        found.append((name, "" if isExpanded else operators[-1], isExpanded, ofNumbers(model)))
    return found


def ofNumbers(model):
    """Whether all that goes in and out of a model is arrays of floats, integers and booleans."""
    ends = [*model.graph.input, *model.graph.output]
    return all(e.type.WhichOneof("value") == "tensor_type" and e.type.tensor_type.elem_type in NUMERIC for e in ends)


@functools.cache
def outcomes():
    """What became of every case: "passed", "refused", or what was wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = BackendTest(onnxBackend(), __name__).test_cases["OnnxBackendNodeModelTest"]
        return {name: outcome(made, f"test_{name}_cpu") for name, *_ in cases()}


def outcome(made, method):
    """What becomes of one case."""
    try:
        with np.errstate(all="ignore"):
            getattr(made(method), method)()
    except PuregraphError as error:
        return f"refused: {error}"
    except unittest.SkipTest as error:
        return f"refused: {error}"
    except Exception as error:
        return f"wrong: {type(error).__name__}: {error}"
    return "passed"


@pytest.mark.parametrize("operator", [*CLAIMED, *EXPANDED])
def test_every_case_of_a_claimed_operator_passes(operator):
    names = [
        name
        for name, own, _, isNumeric in cases()
        if own == operator and isNumeric and not any(name.startswith(left) for left in LEFTOUT)
    ]
    assert names, f"there is no case of {operator}"
    failed = {name: outcomes()[name] for name in names if outcomes()[name] != "passed"}
    assert not failed, "\n".join(f"{name}: {text[:300]}" for name, text in failed.items())


def test_no_case_gives_a_wrong_result():
    wrong = {n: o for n, o in outcomes().items() if o.startswith("wrong") and not any(map(n.startswith, LEFTOUT))}
    assert not wrong, "\n".join(f"{name}: {text[:300]}" for name, text in wrong.items())


def test_the_count_of_cases_that_pass_only_grows():
    passed = collections.Counter(e for name, _, e, _ in cases() if outcomes()[name] == "passed")
    assert passed[False] >= PLAIN, passed
    assert passed[True] >= WRITTENOUT, passed
