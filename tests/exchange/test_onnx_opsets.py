"""Every module is written in every opset from 13 to the newest: onnx checks it, onnxruntime runs it, it is read back."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import defs  # noqa: E402
from onnxtrips import listed, ran  # noqa: E402
from test_onnx_backward import KNOWN, MODULES, RUNTIME, alone  # noqa: E402

from puregraph.core.errors import GraphError  # noqa: E402
from puregraph.modules import Dequantize, Quantize, RoiAlign, RoiPool  # noqa: E402
from puregraph.onnx import fromOnnx, toOnnx  # noqa: E402
from puregraph.onnx.modelexport import OLDEST_OPSET  # noqa: E402
from puregraph.onnx.opregistry import NEWEST  # noqa: E402
from puregraph.onnx.protowalk import eachNode  # noqa: E402

EVERYDAY = "BatchNorm Gelu HardSwish LayerNorm DynamicSlice Pad ReduceAlong RmsNorm Swish".split()
LACKED = ("NOT_IMPLEMENTED", "No Op registered", "Unrecognized")  # what onnxruntime says of operators it has not


def dtypesOf(module, data):
    """The dtypes of what a module is given: those that its operator takes."""
    if isinstance(module, RoiPool):
        return ["f4", "f4"]
    if isinstance(module, RoiAlign):
        return ["f4", "f4", "i8"]
    if isinstance(module, Dequantize):
        return ["u1", "f4", "u1"]
    return [
        "f4"
        if x.dtype.kind == "f" and (i < 2 or not isinstance(module, Quantize))
        else module.dtype
        if isinstance(module, Quantize)
        else x.dtype
        for i, x in enumerate(data)
    ]


def meanings(net, shapes, dtypes):
    """(opset, model) of each opset whose operators are others than before; (opset, what is wrong) where it cannot be."""
    seen = set()
    for opset in range(OLDEST_OPSET, NEWEST + 1):
        try:
            model = toOnnx(net, None, shapes, opset, dtypes)
        except GraphError as error:
            yield opset, str(error)
            continue
        kinds = dict.fromkeys(node.op_type for node in eachNode(model.graph.node))
        versions = tuple(defs.get_schema(kind, opset).since_version for kind in kinds)
        known = versions, model.graph.SerializeToString(deterministic=True)
        if known not in seen:
            seen.add(known)
            yield opset, model


def check(module, shapes):
    """The opsets in which a module is written, and those of them in which onnxruntime runs it."""
    net, written, running = alone(module, shapes), [], []
    net.calcMode("float32").evalMode()
    rng = np.random.default_rng(1)
    data = module.sample(rng, *shapes)
    data = [np.asarray(x, dtype) for x, dtype in zip(data, dtypesOf(module, data))]
    with np.errstate(all="ignore"):
        wanted = listed(net(data if len(data) > 1 else data[0]))
    for opset, model in meanings(net, shapes, [x.dtype for x in data]):
        if isinstance(model, str):
            assert f"opset {opset}" in model or "from opset" in model, model
            continue
        onnx.checker.check_model(model, full_check=True)
        written.append(opset)
        with np.errstate(all="ignore"):
            close(listed(fromOnnx(model)(data)), wanted)
        try:
            found = ran(model, data)
        except Exception as error:  # its own errors have no common base
            if type(module).__name__ not in RUNTIME and not any(text in str(error) for text in LACKED):
                raise
            continue
        running.append(opset)
        close(found, wanted)
    return written, running


def close(found, wanted):
    """Outputs are equal to rounding."""
    for x, y in zip(found, wanted, strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        np.testing.assert_allclose(x, y, 1e-5, 1e-5 * max(1.0, np.abs(y).max(initial=0)) if y.dtype.kind == "f" else 0)


@pytest.mark.parametrize("name", EVERYDAY)
def test_a_module_is_written_in_each_opset(name):
    assert all(check(*next(MODULES[name].examples())))


@pytest.mark.slow
def test_all_modules_are_written_in_each_opset():
    found = {
        (name, str(shapes)): check(module, shapes)
        for name in sorted(KNOWN - {"Multinomial", "RandomLike"})
        for module, shapes in MODULES[name].examples()
        if (name, shapes) != ("NonZero", [()])  # whose output onnxruntime gives an axis
    }
    assert len(found) > 250
    assert all(written for written, _ in found.values())
    assert {name for (name, _), (_, running) in found.items() if not running} <= RUNTIME
