"""What toOnnx writes is checked by onnx, runs in onnxruntime, and comes back as the same network."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnxtrips import norm  # noqa: E402

from puregraph import (  # noqa: E402
    Graph,
    GraphError,
    GroupNorm,
    Input,
    Module,
    Pointwise,
    PuregraphError,
    Relu,
    Sequential,
    Upsample2D,
    models,
)
from puregraph.modules import Resize  # noqa: E402
from puregraph.onnx import fromOnnx, toOnnx  # noqa: E402

NETS = {
    "mlp": (lambda: models.mlp(6, (5,), 3), [("N", 6)]),
    "lenet": (lambda: models.lenet(), [("N", 1, 28, 28)]),
    "resnet20": (lambda: models.resnet20(), [("N", 3, 32, 32)]),
    "resnet18": (lambda: models.resnet18(), [(1, 3, 32, 32)]),
    "vgg11": (lambda: models.vgg11(classes=7), [(1, 3, 224, 224)]),
    "mobilenet": (lambda: models.mobilenet(), [(1, 3, 32, 32)]),
    "unet": (lambda: models.unet(1, 2, 8), [(1, 1, 32, 32)]),
    "vit": (lambda: models.vit(16, 4, 2, 2, 8, 5), [("N", 3, 16, 16)]),
    "dlrm": (lambda: models.dlrm(3, (9, 9), 4, (5,), (6,)), [("N", 3), ("N", 2)]),
    "gpt": (lambda: models.gpt(11, 6, 2, 2, 8), [("N", "T")]),
    "lstm": (lambda: models.lstm(3, 4, 2, 3), [("N", 4, 3)]),
    "transformer": (lambda: models.transformer(2, 8, 2), [("N", "T", 8)]),
    "resnet50": (lambda: models.resnet50(), [(1, 3, 32, 32)]),
}

LARGE = ("vgg11", "resnet50")  # 130 and 25 M weights
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in NETS]


def made(name):
    """A network, its shapes, and data for it."""
    build, shapes = NETS[name]
    net = build().evalMode()
    rng = np.random.default_rng(3)
    sizes = {"N": 2, "T": 5}
    data = []
    for shape, dtype in zip(shapes, net.inputTypes()):
        whole = [sizes.get(n, n) for n in shape]
        data.append(rng.integers(0, 9, whole) if dtype.kind == "i" else rng.standard_normal(whole).astype(dtype))
    return net, shapes, data


def close(a, b):
    """Two outputs, to 1e-5 of the largest."""
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * max(1.0, float(np.abs(b).max())))


def gradients(net, data, seed):
    """Those of inputs, and of parameters in the order of their sizes and norms."""
    net(*data)
    net.backward(seed)
    inputs = [g for g in (net.grad if isinstance(net.grad, list) else [net.grad]) if g is not None]
    return inputs + sorted((p.grad for p in net.params.values() if p.grad is not None and p.grad.any()), key=norm)


@pytest.mark.parametrize("name", NAMES)
def test_a_network_goes_to_onnx_and_back(name, tmp_path):
    net, shapes, data = made(name)
    wanted = net(*data)
    first = toOnnx(net, tmp_path / "net.onnx", shapes)
    onnx.checker.check_model(first, full_check=True)
    again = fromOnnx(tmp_path / "net.onnx")
    close(again(*data), wanted)
    seed = np.random.default_rng(4).standard_normal(wanted.shape).astype(np.float32)
    for x, y in zip(*(gradients(each, data, seed) for each in (again, net)), strict=True):
        close(x.ravel(), y.ravel())
    assert again.dataShapeFrom(list(shapes)) == net.dataShapeFrom(list(shapes))
    second = toOnnx(again, shapes=shapes)
    assert second.SerializeToString(deterministic=True) == first.SerializeToString(deterministic=True)


@pytest.mark.peers
@pytest.mark.parametrize(
    ("name", "opset"),
    [
        pytest.param(n, o, marks=pytest.mark.slow)
        if n in LARGE or o == 21 or n in ("resnet18", "mobilenet") and o < 28
        else (n, o)
        for n in NETS
        for o in (13, 17, 21, 28)
    ],
)
def test_a_network_runs_in_onnxruntime(name, opset, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    net, shapes, data = made(name)
    toOnnx(net, tmp_path / "net.onnx", shapes, opset)
    session = runtime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {info.name: x for info, x in zip(session.get_inputs(), data)})
    close(found, net(*data))


@pytest.mark.parametrize(
    "module", [GroupNorm(2, 4), Upsample2D((2, 3)), Pointwise(formula="expm1(x) * (x > 0.5) - floor(x) % 2")]
)
def test_a_module_goes_to_onnx_and_back_or_is_refused(module):
    net, x = Sequential(module), np.random.default_rng(0).standard_normal((2, 4, 3, 3)).astype(np.float32)
    model = toOnnx(net, shapes=[("N", 4, 3, 3)])
    onnx.checker.check_model(model, full_check=True)
    try:
        again = fromOnnx(model)
    except GraphError as error:
        assert "Resize" in str(error)
        return
    close(again(x), net(x))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"opset": "latest"}, "toOnnx: wanted opset as a whole number of at least 1, or None, got 'latest'"),
        ({"path": 5}, "toOnnx: wanted path as a path, or None, got 5"),
        ({"shapes": 5}, "wanted a shape, .* got 5"),
        ({"dtypes": ["floot"]}, "toOnnx: wanted dtypes as a list of dtypes, one for each input, or None, got"),
        ({"dtypes": ["float32"] * 2}, "toOnnx: wanted 1 dtype, one for each input, got 2"),
        ({"graph": Relu()}, r"toOnnx: wanted a Graph, got Relu; Sequential\(module\) is one"),
        ({"graph": "net.onnx"}, "toOnnx: wanted a Graph, got str"),
    ],
)
def test_arguments_of_toOnnx_are_checked(arguments, text):
    with pytest.raises(PuregraphError, match=text):
        toOnnx(**{"graph": Sequential(Relu()), "shapes": [("N", 3)], **arguments})


class Own(Module):
    """y = x"""

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return x


def test_every_node_that_cannot_be_written_is_listed():
    x = Input(name="x").node()
    net = Graph(x, Own(name="second")(Relu(name="relu")(Own(name="first")(x))))
    with pytest.raises(GraphError) as error:
        toOnnx(net, shapes=[("N", 2)])
    assert "2 nodes cannot be written" in str(error.value)
    assert all(part in str(error.value) for part in ("'first' (Own)", "'second' (Own)", "@writesOnnx"))


def test_what_is_to_be_installed_is_said(monkeypatch):
    monkeypatch.setattr("puregraph.onnx.modelfile.importlib.util.find_spec", lambda name: None)
    for call in (lambda: toOnnx(Sequential(Relu()), shapes=[(2,)]), lambda: fromOnnx("net.onnx")):
        with pytest.raises(ModuleNotFoundError, match=r"pip install puregraph\[onnx\]"):
            call()


def test_opsets_that_cannot_be_written_are_refused():
    with pytest.raises(GraphError, match="wanted an opset from 13 to"):
        toOnnx(Sequential(Relu()), shapes=[(2,)], opset=7)


def test_what_is_said_of_a_graph_is_kept():
    net = Sequential(Relu(name="r"), name="it")
    assert toOnnx(net, shapes=[(2,)]).graph.doc_string == ""
    net.__doc__ = "Nothing below zero."
    model = toOnnx(net, shapes=[(2,)])
    assert model.graph.doc_string == fromOnnx(model).__doc__ == "Nothing below zero."


def test_parameters_that_are_shared_stay_shared():
    net, shapes, _ = made("gpt")
    assert net.ties
    again = fromOnnx(toOnnx(net, shapes=shapes))
    assert sum(p.size for p in again.params.values()) == sum(p.size for p in net.params.values())


RESIZES = [
    {"by": "scales", "factors": (1.0, 1.0, 2.0, 0.5)},
    {"by": "sizes", "factors": (2, 1, 7, 3), "mode": "linear", "coordinates": "align_corners"},
    {"by": "scales", "factors": (1.0, 1.0, 1.5, 2.0), "mode": "cubic", "cubicA": -0.5, "excludeOutside": True},
]
NEWER = [
    {"axes": (2, 3), "by": "sizes", "factors": (3, 5), "mode": "linear", "policy": "not_larger"},
    {"axes": (2, 3), "factors": (0.5, 0.5), "mode": "linear", "antialias": True},
    {"axes": (2, 3), "by": "sizes", "factors": (5, 7), "coordinates": "tf_crop_and_resize", "mode": "linear",
     "bounds": (0.1, 0.2, 1.5, 0.75), "outside": 2.0},
]  # fmt: skip


def test_a_resize_of_old_opsets_in_which_one_axis_grows_and_one_shrinks_is_written_as_two():
    runtime = pytest.importorskip("onnxruntime")
    options = {"factors": (1.0, 1.0, 0.6, 2.0), "coordinates": "asymmetric", "rounding": "simple"}
    net = Sequential(Resize((0, 1, 2, 3), **options, name="other"), name="it")
    x = np.random.default_rng(2).standard_normal((2, 1, 5, 3)).astype(np.float32)
    first = toOnnx(net, None, [x.shape])
    session = runtime.InferenceSession(first.SerializeToString(), providers=["CPUExecutionProvider"])
    for found in (session.run(None, {session.get_inputs()[0].name: x})[0], fromOnnx(first)(x)):
        np.testing.assert_array_equal(found, net(x))
    assert toOnnx(fromOnnx(first), None, [x.shape]).SerializeToString() == first.SerializeToString()


@pytest.mark.parametrize(("options", "opset"), [(o, n) for o in RESIZES for n in (13, 21)] + [(o, 21) for o in NEWER])
def test_a_resize_is_written_as_onnxruntime_understands_it_and_read_back(options, opset, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    net = Sequential(Resize(**{"axes": (0, 1, 2, 3), **options}, name="other"), name="it")
    x = np.random.default_rng(2).standard_normal((2, 1, 4, 6)).astype(np.float32)
    first = toOnnx(net, tmp_path / "net.onnx", [x.shape], opset=opset)
    session = runtime.InferenceSession(first.SerializeToString(), providers=["CPUExecutionProvider"])
    close(net(x), session.run(None, {session.get_inputs()[0].name: x})[0])
    again = fromOnnx(first)
    np.testing.assert_array_equal(again(x), net(x))
    assert toOnnx(again, None, [x.shape], opset=opset).SerializeToString() == first.SerializeToString()


def test_options_of_a_resize_that_an_opset_lacks_are_refused():
    net = Sequential(Resize((2, 3), factors=(0.5, 0.5), mode="linear", antialias=True, name="other"), name="it")
    with pytest.raises(GraphError, match="antialias, axes can be written from opset 18 on, not in 13"):
        toOnnx(net, None, [(1, 1, 4, 4)], opset=13)
