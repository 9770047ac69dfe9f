"""The cases of the ONNX standard: all of an operator that is claimed pass, and none gives a wrong result."""

import collections
import functools
import re
import unittest
import warnings

import numpy as np
import pytest
from onnxclaims import CLAIMED, EXPANDED, LEFTOUT, PLAIN, WRITTENOUT
from source import ROOT

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
        found.append((name, operators[-1], isExpanded, ofNumbers(model)))
    plain = {name: own for name, own, isExpanded, _ in found if not isExpanded}
    return [(n, plain[n.partition("_expanded")[0]] if e else own, e, isNumeric) for n, own, e, isNumeric in found]


def ofNumbers(model):
    """Whether all that goes in and out of a model is arrays of floats, integers and booleans."""
    ends = [*model.graph.input, *model.graph.output]
    return all(e.type.WhichOneof("value") == "tensor_type" and e.type.tensor_type.elem_type in NUMERIC for e in ends)


ROUNDED = {"test_dft_inverse_opset19": {"atol": 1e-6}}  # zeros are expected as errors of 2e-7 of values up to 50


@functools.cache
def outcomes():
    """What became of every case: "passed", "refused", or what was wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = BackendTest(onnxBackend(), __name__, test_kwargs=ROUNDED).test_cases["OnnxBackendNodeModelTest"]
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


def refusals():
    """What the page says of cases that are refused: {(operator, whether it is written out, reason): how many}."""
    text, found = (ROOT / "docs" / "onnx.md").read_text(encoding="utf-8"), {}
    for isExpanded, part in enumerate(text.partition("Cases that the standard writes out")[::2]):
        for names, count, why in re.findall(r"^\| (`.*) \| (\d+) \| (.+) \|$", part, re.MULTILINE):
            each = {own: int(n) for own, n in re.findall(r"`(\w+)` (\d+)", names)}
            assert sum(each.values()) == int(count), names
            found |= {(own, bool(isExpanded), why): n for own, n in each.items()}
    return found


REASONS = {  # of the rows of the page: what became of their cases
    "elements of 8, 4 and 2 bits that numpy lacks": "got elements of kind (FLOAT8|FLOAT4|U?INT4|U?INT2)",
    "texts": "got elements of kind STRING|TfIdfVectorizer",
    "files of pictures, which a library for pictures decodes better": "unknown operators:\n +ImageDecoder",
    "trees and tables": r"unknown operators:\n +ai\.onnx\.ml\.",
    "steps of optimizers, which are optimizers here": r"unknown operators:\n +ai\.onnx\.preview\.training\.",
    "whether it is trained comes with the data": "training_mode .* is known only with the data",
    "lengths, axes or shapes that come with the data": "known only with the data; a constant can be read",
    "sequences and optionals whose length or presence is not known": "length of the sequence is not known|not known ahead of time|got none",
    "numbers at random; a result that is rounded to 16 bits after each step": "wrong: AssertionError",
    "shapes that the standard's own formula computes from data": "rank of .* is not known|"
    "wanted (shapes that broadcast|as many axes|an index of rank|inputs like the first)",
}


def test_every_case_of_a_claimed_operator_passes_none_is_wrong_and_the_others_stand_on_the_page():
    found, left = outcomes(), {n for n, *_ in cases() if any(map(n.startswith, LEFTOUT))}
    mine = {*CLAIMED, *EXPANDED}
    claimed = [n for n, own, e, isNumeric in cases() if own in mine and isNumeric and not e and n not in left]
    failed = {n: found[n] for n in claimed if found[n] != "passed"}
    failed |= {n: text for n, text in found.items() if text.startswith("wrong") and n not in left}
    assert not failed, "\n".join(f"{name}: {text[:300]}" for name, text in failed.items())
    assert {own for _, own, *_ in cases()} >= mine
    passed = collections.Counter(e for name, _, e, _ in cases() if found[name] == "passed")
    assert passed[False] >= PLAIN and passed[True] >= WRITTENOUT, passed
    rest = [(own, e, reasonOf(found[n])) for n, own, e, _ in cases() if found[n] != "passed"]
    assert collections.Counter(rest) == refusals()


def reasonOf(text):
    """The reason on the page for what became of a case."""
    return next((why for why, mark in REASONS.items() if re.search(mark, text)), text)
