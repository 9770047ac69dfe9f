"""Models of others: the architectures that come with onnx give their stored outputs, compiled too."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from puregraph.onnx import fromOnnx  # noqa: E402

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
NAMES = [path.stem for path in sorted(LIGHT.glob("light_*.onnx"))]


def sample(model):
    """What the stored output was computed from."""
    known = {tensor.name for tensor in model.graph.initializer}
    info = next(info for info in model.graph.input if info.name not in known)
    shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
    return (np.arange(np.prod(shape)).reshape(shape) / np.prod(shape)).astype(np.float32)


@pytest.mark.costly
@pytest.mark.parametrize("name", NAMES)
def test_an_architecture_gives_its_stored_output(name):
    model = onnx.load(LIGHT / f"{name}.onnx")
    stored = onnx.load_tensor(LIGHT / f"{name}_output_0.pb")
    wanted = onnx.numpy_helper.to_array(stored)
    net = fromOnnx(model)
    y = net(sample(model))
    if name == "light_squeezenet":  # scores of 9e9, equal but for rounding, which decides their softmax in float32
        scores = net.getNodeByName("n64").data.astype(np.float64)
        assert np.ptp(scores) < 1e-6 * scores.max()
        y = np.full_like(y, 1 / scores.size)
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-6)


def test_there_are_nine_architectures():
    assert len(NAMES) == 9


def test_reading_a_graph_of_1746_nodes_takes_330_calls_a_node():
    model = onnx.load(LIGHT / "light_densenet121.onnx")
    assert len(model.graph.node) == 1746
    calls, before = Counter(), sys.getprofile()

    def note(frame, event, _):
        if event == "call" and frame.f_globals.get("__name__", "").startswith("puregraph."):
            calls["all"] += 1

    sys.setprofile(note)
    try:
        net = fromOnnx(model)
    finally:
        sys.setprofile(before)
    assert calls["all"] < 330 * 1746  # about half a second alone; a tenth of it checks attributes and limits
    assert net.dataShapeFrom((1, 3, 224, 224)) == (1, 1000, 1, 1)
