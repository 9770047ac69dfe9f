"""A model and its gradients as one ONNX model: onnxruntime gives our gradients, for every module that can be written."""

import inspect
import re

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnxtrips import listed, opened, ran  # noqa: E402

import puregraph.modules  # noqa: E402
import puregraph.modules.costs  # noqa: E402
from puregraph import Conv2D, Flatten, Graph, Input, Linear, MaxPool2D, Relu, Sequential, models  # noqa: E402
from puregraph.autodiff import add_backward_pass  # noqa: E402
from puregraph.core.errors import AutoDiffException, GraphError, PuregraphError  # noqa: E402
from puregraph.core.param import Param  # noqa: E402
from puregraph.core.shape import bind  # noqa: E402
from puregraph.graph.module import Module  # noqa: E402
from puregraph.onnx import backwardOnnx, toOnnx, writesOnnx  # noqa: E402
from puregraph.ops.reduction.cumulate import UFUNCS, cumulate  # noqa: E402

MODULES = {
    c.__name__: c
    for package in (puregraph.modules, puregraph.modules.costs)
    for name, c in sorted(vars(package).items())
    if inspect.isclass(c) and issubclass(c, Module) and name[0] != "_" and c.__module__.startswith("puregraph.")
}
SEVERAL = "And Or Xor Not Constant Full OneHot Range".split()  # without a gradient, or without an input
REGIONS, OLD = ("RoiAlign", "RoiPool"), 21  # and the newest opset in which onnxruntime has them
ALONG = {"CumProd", "DFT", "RecurrentCells", "Prod", "Resize", "Slice", "Split"}  # along the first axis
RUNTIME = {"AvgPoolNd", "MaxPoolNd", "LocalResponseNorm", "GridSample", "Resize"}  # settings onnxruntime has not
STRATEGIES = ("store_all", "recompute_all")


def dataFor(net, shapes, rng):
    """Floats, and integers that are indices of anything; probabilities, and what has a logarithm, is positive."""
    kinds = net.inputTypes(len(shapes))
    for node in net.nodes:
        if node.label in REGIONS:  # whose indices are of samples, of which there may be one alone
            x, regions, *which = node.module.sample(rng, *shapes)
            return [x.astype(np.float32), regions.astype(np.float32), *which]
    chance = any(node.label in ("BCE", "LogSum", "ScaleMaps") for node in net.nodes)
    found = []
    for shape, kind in zip(shapes, kinds, strict=True):
        if kind is not None and kind.kind in "iub":
            found.append(np.ones(shape, kind))
        else:
            found.append((rng.random(shape) if chance else rng.standard_normal(shape)).astype(np.float32))
    return found


def ends(net, data):
    """The names of what is differentiated, and of what by: all floats between which there is a gradient."""
    flat = net.steps()
    reads = {n for step in flat.items if step.label in REGIONS for n in step.args[1:]}  # no gradient reaches regions
    inputs = [flat.names[n] for n, x in zip(flat.inputs, data, strict=True) if x.dtype.kind == "f" and n not in reads]
    held = {id(getattr(m, name)): flat.names[n] for n, m, name in flat.params if isinstance(getattr(m, name), Param)}
    inputs += held.values()
    outputs = list(net.outputNames)
    while True:
        try:
            return outputs, inputs, add_backward_pass(net, outputs, inputs)
        except AutoDiffException as error:
            by, of = (
                re.search(text, str(error)) for text in ("reaches input '(.*?)'", "output '(.*?)' depends on none")
            )
            if by is None and of is None:
                return outputs, [], None
            (inputs if by else outputs).remove((by or of)[1])


def check(net, shapes, data=None, strategies=STRATEGIES[:1], others=()):
    """Whether onnxruntime gives our outputs and gradients, of `others` too; False where there is no gradient."""
    net.calcMode("float32").evalMode()
    rng = np.random.default_rng(1)
    data = dataFor(net, shapes, rng) if data is None else data
    outputs, inputs, joint = ends(net, data)
    if joint is None:
        return False
    for strategy in strategies:
        opset = OLD if any(node.label in REGIONS for node in net.nodes) else None
        dtypes = [x.dtype for x in data]
        model = backwardOnnx(net, inputs, outputs, None, shapes, opset, dtypes, data_forwarding_strategy=strategy)
        onnx.checker.check_model(model, full_check=True)
        for each in others or [data]:
            values = dict(zip(net.outputNames, listed(net(each if len(each) > 1 else each[0]))))
            seeds = [rng.standard_normal(values[name].shape).astype(values[name].dtype) for name in outputs]
            for y, want in zip(ran(model, [*each, *seeds]), listed(joint(*each, *seeds)), strict=True):
                assert y.shape == want.shape and y.dtype == want.dtype
                np.testing.assert_allclose(y, want, 1e-5, 1e-5 * max(1.0, np.abs(want).max(initial=0)))
    return True


def checkOpen(net, shapes):
    """Whether a model that is written once is right for several lengths of the first axis, where that may be open."""
    rng = np.random.default_rng(2)
    data = dataFor(net, shapes, rng)
    symbols = opened(net, data)
    if any(isinstance(n, str) for shape in symbols for n in shape):
        others = [dataFor(net, [bind(shape, {"N": n}) for shape in symbols], rng) for n in (3, 7)]
        check(net, symbols, data, others=[data, *others])


def alone(module, shapes):
    """A graph of one module."""
    inputs = [Input(name=f"x{i}").node() for i in range(len(shapes))]
    return Graph(inputs, module.node(*inputs), name="it")


def outcome(name, every=True):
    """What becomes of the examples of a module: "ran", "none" without a gradient, "open" where sizes come with the data."""
    found = set()
    for module, shapes in list(MODULES[name].examples())[: None if every else 1]:
        if not all(isinstance(n, int) for shape in listed(module.dataShapeFrom(*shapes)) for n in shape):
            found.add("open")
            continue
        try:
            found.add("ran" if check(alone(module, shapes), shapes) else "none")
            if every and name not in ALONG:
                checkOpen(alone(module, shapes), shapes)
        except PuregraphError:
            found.add("refused")
        except AssertionError:
            raise
        except Exception as error:  # onnxruntime's own errors have no common base
            if name not in RUNTIME:
                raise AssertionError(f"{name}: {error}") from error
    return found


def unlike(names, every):
    """Modules of which something else becomes than is written here."""
    wrong = {}
    for name in sorted(names):
        found = outcome(name, every)
        if "refused" in found:
            wrong[name] = found
    return wrong


KNOWN = set(MODULES) - set(SEVERAL) - {"Weight"}
EVERYDAY = """Attention AvgPool2D Conv1D Conv2D CrossEntropy Deconv2D Einsum Embedder Gelu GroupNorm LayerNorm Linear LogSoftMax
MatMul Max MaxPool2D Mean PairDot RmsNorm SmoothL1 SoftMax Upsample2D Where""".split()


def test_gradients_of_modules_are_onnxruntimes():
    assert not unlike(EVERYDAY, every=False)


@pytest.mark.parametrize(
    "name", ["GatherElements", "GatherND", "ScatterElements", "ScatterND", "TopKValues", "MaxUnpool"]
)
def test_gradients_of_elements_by_index_are_onnxruntimes_where_positions_and_values_are_equal_too(name):
    for module, shapes in MODULES[name].examples():
        rng = np.random.default_rng(3)
        data = [x if x.dtype.kind == "i" else np.round(x).astype(np.float32) for x in module.sample(rng, *shapes)]
        if name == "TopKValues":
            data[0] = rng.permutation(data[0].size).reshape(data[0].shape).astype(np.float32)
        assert check(alone(module, shapes), shapes, data)


@pytest.mark.slow
def test_gradients_of_all_modules_in_all_examples_are_onnxruntimes():
    assert not unlike(KNOWN, every=True)
    assert len(KNOWN) > 110


def block():
    """A block of a residual network."""
    from puregraph import Add, BatchNorm

    x = Input(name="x").node()
    h = Relu()(BatchNorm(4)(Conv2D(4, 4, 3, pad=1)(x)))
    return Graph(x, Relu()(Add()(BatchNorm(4)(Conv2D(4, 4, 3, pad=1)(h)), x)), name="block")


IDS = [np.random.default_rng(1).integers(0, 7, (2, 4))]
NETS = {
    "mlp": (lambda: models.mlp(6, (5, 4), 3), [(2, 6)], None),
    "lenet": (lambda: models.lenet(1, 12, 3, (2, 3)), [(2, 1, 12, 12)], None),
    "residual block": (block, [(2, 4, 5, 5)], None),
    "gpt": (lambda: models.gpt(7, 4, 2, 2, 8), [(2, 4)], IDS),
    "transformer": (lambda: models.transformer(1, 8, 2), [(2, 4, 8)], None),
    "unet": (lambda: models.unet(1, 2, 2, 2), [(1, 1, 8, 8)], None),
    "vit": (lambda: models.vit(8, 4, 1, 2, 8, 3, 1), [(2, 1, 8, 8)], None),
    "lstm": (lambda: models.lstm(3, 4, 2, 3), [(2, 4, 3)], None),
    "lstm both ways": (lambda: models.lstm(3, 4, 1, 3, direction="bi"), [(2, 4, 3)], None),
    "mobilenet": (lambda: models.mobilenet(3, 1, 0.1), [(1, 1, 32, 32)], None),
    "resnet20": (lambda: models.resnet20(), [(1, 3, 16, 16)], None),
}
QUICK = ("mlp", "lenet", "residual block", "gpt")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NETS])
def test_gradients_of_networks_are_onnxruntimes_whatever_is_kept(name):
    build, shapes, data = NETS[name]
    assert check(build(), shapes, data, STRATEGIES)


def small():
    """A network with a convolution."""
    layers = (
        Conv2D(1, 2, 3, name="c"),
        Relu(name="r"),
        MaxPool2D(2, name="p"),
        Flatten(name="f"),
        Linear(8, 3, name="l"),
    )
    return Sequential(*layers, name="net")


def test_an_onnx_model_and_its_path_are_differentiated(tmp_path):
    net = small()
    model = toOnnx(net, tmp_path / "net.onnx", [(2, 1, 6, 6)])
    both = backwardOnnx(tmp_path / "net.onnx", ["c_x", "c.W", "l.b"], "l", tmp_path / "both.onnx")
    assert onnx.load(tmp_path / "both.onnx").SerializeToString() == both.SerializeToString()
    assert backwardOnnx(model, ["c_x", "c.W", "l.b"], "l").SerializeToString() == both.SerializeToString()
    assert [info.name for info in both.graph.output] == ["l", "gradient_c_x", "gradient_c_W", "gradient_l_b"]
    rng = np.random.default_rng(1)
    x, g = (rng.standard_normal(s).astype(np.float32) for s in ((2, 1, 6, 6), (2, 3)))
    y, gx, gW, gb = ran(both, [x, g])
    np.testing.assert_allclose(y, net(x), 1e-5, 1e-6)
    net.backward(g)
    for found, wanted in ((gx, net.grad), (gW, net["c"].W.grad), (gb, net["l"].b.grad)):
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


def test_a_graph_with_a_backward_pass_is_written_as_any_other():
    net = small().evalMode()
    joint = add_backward_pass(net, "l", ["c.W"])
    model = toOnnx(joint, None, [(2, 1, 6, 6), (2, 3)])
    onnx.checker.check_model(model, full_check=True)
    rng = np.random.default_rng(1)
    x, g = (rng.standard_normal(s).astype(np.float32) for s in ((2, 1, 6, 6), (2, 3)))
    for found, wanted in zip(ran(model, [x, g]), joint(x, g), strict=True):
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


def test_what_cannot_be_written_is_said_in_one_error():
    net = models.lstm(3, 4, 1, 3)
    with pytest.raises(GraphError) as error:
        backwardOnnx(net, [next(iter(net.params))], net.outputNames[0], shapes=[(2, "T", 3)])
    text = str(error.value)
    assert "1 node cannot be written" in text and "for other sizes: give shapes= without symbols" in text


FREE = {
    **{name: ([("N", *NETS[name][1][0][1:])], [{"N": 1}, {"N": 3}]) for name in NETS},
    "residual block": ([("N", 4, "H", 5)], [{"N": 2, "H": 5}, {"N": 3, "H": 9}]),
    "gpt": ([("N", "T")], [{"N": 2, "T": 4}, {"N": 1, "T": 1}, {"N": 3, "T": 2}]),
}
EVERYDAY_FREE = ("residual block", "gpt")


@pytest.mark.parametrize("name", [n if n in EVERYDAY_FREE else pytest.param(n, marks=pytest.mark.slow) for n in FREE])
def test_a_model_of_open_sizes_gives_the_gradients_for_each(name):
    shapes, tries = FREE[name]
    net, rng = NETS[name][0](), np.random.default_rng(4)
    dtype = net.inputTypes(1)[0]
    whole = [bind(shapes[0], sizes) for sizes in tries]
    data = [rng.integers(0, 7, s) if dtype.kind == "i" else rng.standard_normal(s).astype("f4") for s in whole]
    assert check(net, shapes, [data[0]], others=[[x] for x in data])


class Turning(Module):
    """y = 2 x, whose gradient is that up to a number of samples, and from there on what `else` says."""

    def __init__(self, size, otherwise):
        super().__init__()
        self.size, self.otherwise = size, otherwise

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return x + x

    def updateGrad(self, grad, x, y):
        return 2 * grad if len(x) < self.size else self.otherwise(grad)


class Cumulated(Turning):
    """y = 2 x, with cumulations along the last axis for a gradient."""

    def updateGrad(self, grad, x, y):
        return sum(np.maximum(cumulate(grad, -1, kind, *self.otherwise), -50) for kind in UFUNCS)


@writesOnnx(Turning)
@writesOnnx(Cumulated)
def written(step):
    """Add."""
    step.op("Add", step.x, step.x, out=step.y)


@pytest.mark.parametrize(("size", "limit"), [(2, 1), (100, 257)])
def test_a_rule_that_does_something_else_for_few_or_many_samples_is_refused(size, limit):
    net = alone(Turning(size, lambda grad: 3 * grad), [("N", 3)])
    with pytest.raises(GraphError, match=f"its rule behaves differently where N is {limit}: give shapes="):
        backwardOnnx(net, ["x0"], net.outputNames[0], shapes=[("N", 3)])
    net = alone(Turning(size, lambda grad: grad + grad), [("N", 3)])
    assert backwardOnnx(net, ["x0"], net.outputNames[0], shapes=[("N", 3)])


@pytest.mark.parametrize("options", [(False, False), (True, False), (False, True)])
def test_cumulations_of_every_kind_are_written(options):
    rng = np.random.default_rng(2)
    net = alone(Cumulated(1, options), [(3, 9)])
    assert check(net, [(3, 9)], [rng.standard_normal((3, 9)).astype("f4")])
