"""Models that come with the onnx package beside the cases of the standard: equal, or refused for a reason on this page."""

import collections
import re
import unittest

import numpy as np
import pytest

from puregraph import PuregraphError

onnx = pytest.importorskip("onnx")

from onnx.backend.test import BackendTest  # noqa: E402

from puregraph.onnx.onnxbackend import onnxBackend  # noqa: E402

KINDS = ("PyTorchConverted", "PyTorchOperator", "Simple")
PASSED = 131  # of 140 in onnx 1.23
REASONS = {  # of a refusal: its mark in the message
    "texts": "got elements of kind STRING",
    "a gradient as an operator": r"ai\.onnx\.preview\.training\.Gradient",
    "a length that comes with the data": "the length of the split axis is known only with the data",
}


def outcome(cases, name):
    """What becomes of a case: "passed", or the reason of its refusal."""
    try:
        with np.errstate(all="ignore"):
            getattr(cases(name), name)()
    except (PuregraphError, unittest.SkipTest) as error:
        return next((reason for reason, mark in REASONS.items() if re.search(mark, str(error))), str(error))
    return "passed"


@pytest.mark.costly
@pytest.mark.filterwarnings("ignore")  # what makes the cases overflows on purpose
def test_models_of_the_onnx_package_are_equal_or_refused_for_a_known_reason():
    made = BackendTest(onnxBackend(), __name__).test_cases
    results = collections.Counter(
        outcome(cases, name)
        for cases in (made[f"OnnxBackend{kind}ModelTest"] for kind in KINDS)
        for name in dir(cases)
        if re.fullmatch("test_.*_cpu", name)
    )
    assert results["passed"] >= PASSED and set(results) <= {"passed", *REASONS}, results
