"""An activation that ONNX has an operator for is written as that operator, and read as the same module."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnxtrips import ran  # noqa: E402

from puregraph import Graph, Input  # noqa: E402
from puregraph.modules import (  # noqa: E402
    Celu,
    Elu,
    HardShrink,
    HardSigmoid,
    LeakyRelu,
    Mish,
    Selu,
    SoftShrink,
    SoftSign,
    Threshold,
)
from puregraph.onnx import fromOnnx, toOnnx  # noqa: E402

WORDS = {  # modules by operator and attributes
    "LeakyRelu": (LeakyRelu(0.2), {"alpha": 0.2}),
    "LeakyRelu, plain": (LeakyRelu(), {"alpha": 0.01}),
    "Elu": (Elu(0.5), {"alpha": 0.5}),
    "Celu": (Celu(1.5), {"alpha": 1.5}),
    "Selu": (Selu(), {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}),
    "HardSigmoid": (HardSigmoid(), {"alpha": 1 / 6, "beta": 0.5}),
    "Shrink of HardShrink": (HardShrink(0.3), {"lambd": 0.3}),
    "Shrink of SoftShrink": (SoftShrink(0.3), {"lambd": 0.3, "bias": 0.3}),
    "Softsign": (SoftSign(), {}),
    "ThresholdedRelu": (Threshold(0.3), {"alpha": 0.3}),
    "Mish": (Mish(), {}),
}


class Slanted(LeakyRelu):
    """A user's subclass with another formula."""

    formula = "where(x > 1, x, slope * x)"


def alone(module, dtype="float32"):
    """A graph of one module."""
    x = Input(dtype=dtype, name="x").node()
    return Graph([x], module.node(x, name="it"), name="net").evalMode()


@pytest.mark.parametrize("opset", [18, 27])
@pytest.mark.parametrize("name", WORDS)
def test_an_activation_is_one_operator_and_the_same_module_again(name, opset):
    module, attributes = WORDS[name]
    net = alone(module)
    model = toOnnx(net, None, [("N", 9)], opset)
    onnx.checker.check_model(model, full_check=True)
    (node,) = model.graph.node
    assert node.op_type == name.split(",")[0].split()[0]
    found = {a.name: a.f for a in node.attribute}
    assert found == {key: pytest.approx(value, rel=1e-7) for key, value in attributes.items()}
    x = np.array([[-100, -2, -0.3, -1e-3, 0, 1e-3, 0.3, 2, 100]], np.float32)
    again = fromOnnx(model)
    wanted = net(x)
    for result in (ran(model, [x])[0], again(x)):
        assert result.dtype == wanted.dtype
        np.testing.assert_allclose(result, wanted, 1e-6, 1e-7)
    assert type(again["it"]) is type(module)
    assert toOnnx(again, None, [("N", 9)], opset).SerializeToString() == model.SerializeToString()


@pytest.mark.parametrize(
    ("module", "dtype", "opset"),
    [
        (LeakyRelu(0.2), "float64", 27),  # its attribute is float32
        (Mish(), "float32", 17),  # has the operator from opset 18 on
        (Celu(), "float16", 27),  # takes float32 alone
        (Threshold(0.3, 2.0), "float32", 27),
        (Slanted(0.2), "float32", 27),
    ],
)
def test_an_activation_without_an_operator_is_its_formula(module, dtype, opset):
    net = alone(module, dtype)
    model = toOnnx(net, None, [("N", 5)], opset)
    assert len(model.graph.node) > 1
    x = np.array([[-2, -1, 0, 1, 2]], dtype)
    wanted = net(x)
    for result in (ran(model, [x])[0], fromOnnx(model)(x)):
        assert result.dtype == wanted.dtype
        np.testing.assert_allclose(result, wanted, 1e-2 if dtype == "float16" else 1e-6)
