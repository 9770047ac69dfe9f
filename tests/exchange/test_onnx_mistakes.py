"""Nodes that contradict the standard or themselves are refused by name, or give what onnxruntime gives."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnxmistakes import MISTAKES, ODD, model  # noqa: E402

from puregraph.core.errors import PuregraphError  # noqa: E402
from puregraph.onnx import fromOnnx  # noqa: E402


def expected(made, given):
    """What onnxruntime gives; None where it refuses."""
    options = runtime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = runtime.InferenceSession(made.SerializeToString(), options, ["CPUExecutionProvider"])
        return session.run(None, given)
    except Exception:  # its own errors have no common base
        return None


def close(found, wanted):
    """Compare outputs with those that are wanted."""
    for y, want in zip(found if isinstance(found, list) else [found], wanted, strict=True):
        assert y.shape == want.shape and y.dtype == want.dtype
        np.testing.assert_allclose(y, want, 1e-4, 1e-5)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_node_that_contradicts_itself_is_refused_by_name_or_read_as_onnxruntime_reads_it(name):
    kind, inputs, attributes, *outputs = MISTAKES[name]
    made, given = model(kind, inputs, *outputs, **attributes)
    try:
        found = fromOnnx(made)(*given.values())
    except PuregraphError as error:
        assert "one of the two rules" not in str(error)
        return
    wanted = expected(made, given)
    assert wanted is not None, "it is read, and refused by onnxruntime"
    close(found, wanted)


@pytest.mark.parametrize("name", ODD)
def test_what_the_standard_allows_is_read_though_onnxruntime_refuses_it(name):
    kind, inputs, attributes = ODD[name]
    made, given = model(kind, inputs, **attributes)
    close(fromOnnx(made)(*given.values()), ReferenceEvaluator(made).run(None, given))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a kernel of other sizes", r"kernel_shape: wanted \[3, 3\], as its weight has, got \[5, 5\]"),
        (
            "a hidden size of others",
            r"W: wanted \(1, 12, 'features'\) of hidden_size 3 and 1 directions, got \(1, 16, 3\)",
        ),
        ("axes kept by 2", "keepdims: wanted 0 or 1, got 2"),
        ("an attribute that is misspelt", "no attribute 'stride' in opset 17; its attributes are auto_pad"),
        ("an attribute of another type", "axis: wanted int, got float"),
        ("an attribute that is needed", "its required attribute to is missing"),
        (
            "a padding of a name that is none",
            "auto_pad: wanted 'NOTSET' or 'SAME_UPPER' or 'SAME_LOWER' or 'VALID', got 'SAME'",
        ),
        ("scales and lengths", "wanted scales or sizes, got both"),
    ],
)
def test_what_is_wrong_with_an_attribute_is_said_with_what_is_wanted(name, text):
    kind, inputs, attributes = MISTAKES[name]
    with pytest.raises(PuregraphError, match=rf"at 'it' \({kind}\): {text}"):
        fromOnnx(model(kind, inputs, **attributes)[0])
