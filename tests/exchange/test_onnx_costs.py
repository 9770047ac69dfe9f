"""Costs written as ONNX: every example of each, run by onnxruntime."""

import numpy as np
import pytest

from puregraph.graph import Graph, Input
from puregraph.modules import costs

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from puregraph.onnx import toOnnx  # noqa: E402

LEFT: dict[str, str] = {  # costs that are not written, and why
    "CTC": "goes through time by a kernel of its own",
    "RNNT": "goes through time by a kernel of its own",
}
CASES = [
    pytest.param(cost, shapes, id=f"{name}-{number}")
    for name in costs.__all__
    if name not in LEFT
    for number, (cost, shapes) in enumerate(getattr(costs, name).examples())
]


@pytest.mark.parametrize(("cost", "shapes"), CASES)
def test_a_cost_is_written(cost, shapes):
    nodes = [Input(name=f"x{i}").node() for i in range(len(shapes))]
    net = Graph(nodes, cost(*nodes))
    data = [x.astype(np.float32) if x.dtype.kind == "f" else x for x in cost.sample(np.random.default_rng(1), *shapes)]
    model = toOnnx(net, None, shapes, dtypes=[x.dtype for x in data])
    onnx.checker.check_model(model, full_check=True)
    session = runtime.InferenceSession(model.SerializeToString())
    names = [info.name for info in session.get_inputs()]
    found = session.run(None, dict(zip(names, data)))[0]
    np.testing.assert_allclose(found, net(*data), rtol=1e-4, atol=1e-5)
