"""What each module is written as: through onnx.checker, into onnxruntime and back, in old opsets and new ones."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnxtrips import ran  # noqa: E402

from puregraph import Max, Mean, Min, Sequential, Sum, Transpose  # noqa: E402
from puregraph.onnx import fromOnnx, toOnnx  # noqa: E402
from puregraph.onnx.modules import ReduceL1, ReduceL2, ReduceLogSum, ReduceSumSquare  # noqa: E402
from puregraph.onnx.onnxwriter import ModelWriter, OnnxStep  # noqa: E402

REDUCED = [Sum, Mean, Max, Min, ReduceL1, ReduceL2, ReduceSumSquare, ReduceLogSum]


def close(a, b):
    """Two arrays, to 1e-5 of the largest."""
    assert a.shape == b.shape and a.dtype == b.dtype
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * max(1.0, float(np.abs(b).max(initial=0))))


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("made", REDUCED, ids=lambda made: made.__name__)
@pytest.mark.parametrize(("shape", "axis"), [((2, 3), ()), ((), None), ((), ())])
def test_a_reduction_over_no_axis_is_no_reduction_over_all(made, opset, shape, axis):
    net = Sequential(made(axis=axis, name="other"), name="it")
    x = np.asarray(np.random.default_rng(2).random(shape) + 0.5, np.float32)
    x = x if made is ReduceLogSum else np.negative(x, out=x)
    model, wanted = toOnnx(net, None, [shape], opset=opset), net(x)
    assert wanted.shape == shape
    close(fromOnnx(model)(x), wanted)
    close(ran(model, [x])[0], wanted)


@pytest.mark.parametrize("opset", [13, 18])
def test_a_scalar_is_transposed(opset):
    model = toOnnx(Sequential(Transpose((), name="t"), name="it"), None, [()], opset=opset)
    x = np.array(3, np.float32)
    assert ran(model, [x])[0] == 3 == fromOnnx(model)(x)


def test_an_empty_list_of_axes_is_never_left_out():
    step = OnnxStep.__new__(OnnxStep)
    step.writer, step.outputs, step.path = ModelWriter(Sequential(Mean()), [(2,)], 13), ["y"], "it"
    with pytest.raises(ValueError, match="axes"):
        step.op("ReduceMean", "x", out="y", axes=[])
