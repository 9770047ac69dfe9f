"""A layer of floats between changes of kind is one layer of integers: weights stay small, numbers are those of the parts."""

from fractions import Fraction

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnxtrips import ran  # noqa: E402

from puregraph.modules.convolution import Convolve  # noqa: E402
from puregraph.onnx import fromOnnx, toOnnx  # noqa: E402

EACH, MORE = 4, 150  # settings of each kind, everyday and in the slow tier
OPSET = 21
LAYERS = ("Conv", "Gemm", "MatMul")
HALVES = 1e-4  # how near to a half the floats of the parts, which are rounded at each step, may go either way
WITHIN = {"int8": 64, "uint8": 127}  # where a processor has no VNNI, onnxruntime adds two products of 8 bits in 16


class Setting:
    """A model of one layer: QuantizeLinear, DequantizeLinear, the layer, perhaps a Relu, and QuantizeLinear."""

    def __init__(self, kind, seed):
        self.rng = rng = np.random.default_rng([seed, LAYERS.index(kind)])
        self.nodes, self.tensors = [], []
        kinds = [str(each) for each in rng.choice(["uint8", "int8"], 3)]
        kinds[1] = "int8" if kinds[0] == "int8" else kinds[1]  # which is what onnxruntime has
        shape, W, axis, options = getattr(self, kind.lower())()
        outs = W[axis]
        each = outs if rng.integers(2) else None
        low, high = (0, WITHIN[kinds[1]]) if kinds[1] == "uint8" else (-WITHIN["int8"], WITHIN["int8"])
        self.weights = rng.integers(low, high + 1, W).astype(kinds[1])
        q = self.op("QuantizeLinear", "x", *self.scaling("x", kinds[0], 0.02))
        x = self.op("DequantizeLinear", q, *self.scaling("x", kinds[0], 0.02))
        names = self.scaling("W", kinds[1], 0.01, each, isZero=True)
        own = {"axis": axis} if each else {}
        given = [x, self.op("DequantizeLinear", self.array("W", self.weights), *names, **own)]
        hasBias = bool(rng.integers(2))
        bias = self.array("b", rng.standard_normal(outs).astype(np.float32)) if hasBias else None
        y = self.op(kind, *given, *([bias] if hasBias and kind != "MatMul" else []), **options)
        y = self.op("Add", y, bias) if hasBias and kind == "MatMul" else y
        self.isRectified = bool(rng.integers(2))
        y = self.op("Relu", y) if self.isRectified else y
        self.quotient = y
        names = self.scaling("y", kinds[2], 0.05)
        y = self.op("QuantizeLinear", y, *names)
        self.model = self.made(shape, [y], kinds[2])
        self.parts = self.made(shape, [self.quotient], "float32")
        scale = next(numpy_helper.to_array(t) for t in self.tensors if t.name == "xScale")
        self.data = ((rng.integers(-120, 120, shape) + 0.25) * scale).astype(np.float32)  # near no half

    def conv(self):
        n, c, o, g = (int(i) for i in self.rng.integers(1, 4, 4))
        options = {"group": g, "pads": [1, 0, 0, 1], "strides": [int(i) for i in self.rng.integers(1, 3, 2)]}
        return (n, c * g, 5, 6), (o * g, c, 3, 2), 0, options

    def gemm(self):
        n, i, o = (int(i) for i in self.rng.integers(1, 6, 3))
        isTransposed = int(self.rng.integers(2))
        return (n, i), (o, i) if isTransposed else (i, o), 1 - isTransposed, {"transB": isTransposed}

    def matmul(self):
        n, i, o = (int(i) for i in self.rng.integers(1, 6, 3))
        return (n, 2, i) if self.rng.integers(2) else (n, i), (i, o), 1, {}

    def op(self, kind, *inputs, **attributes):
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [out], name=out, **attributes))
        return out

    def array(self, name, array):
        if name not in {tensor.name for tensor in self.tensors}:
            self.tensors.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def scaling(self, name, kind, near, count=None, isZero=False):
        """The names of a scale and a zero point."""
        shape = () if count is None else (count,)
        zero = np.zeros(shape, kind) if isZero else self.rng.integers(0, 20, shape).astype(kind)
        scale = (near * self.rng.uniform(0.5, 2, shape)).astype(np.float32)
        return self.array(f"{name}Scale", scale), self.array(f"{name}Zero", zero)

    def made(self, shape, outputs, kind):
        ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *shape[1:]])]
        outs = [helper.make_tensor_value_info(outputs[0], helper.np_dtype_to_tensor_dtype(np.dtype(kind)), None)]
        nodes = self.nodes if kind != "float32" else self.nodes[:-1]
        graph = helper.make_graph(nodes, "it", ends, outs, self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)

    def tensor(self, name):
        """A tensor of the model, None if there is none."""
        return next((numpy_helper.to_array(tensor) for tensor in self.tensors if tensor.name == name), None)

    def sums(self):
        """The sums of products of integers, and what makes of values for each output what is added to them."""
        scale, zero = self.tensor("xScale"), self.tensor("xZero")
        ends = np.iinfo(zero.dtype)
        x = np.clip(np.rint(self.data / scale) + zero, ends.min, ends.max) - zero
        layer = next(node for node in self.nodes if node.op_type in LAYERS)
        options = {a.name: helper.get_attribute_value(a) for a in layer.attribute}
        W = self.weights.astype(np.float64)
        if layer.op_type == "Conv":
            (top, left, bottom, right), groups = options["pads"], options["group"]
            module = Convolve(tuple(options["strides"]), ((top, bottom), (left, right)), (1, 1), groups)
            return module.updateData(x.astype(np.float64), W), (-1, 1, 1)
        return x @ (W.T if options.get("transB") else W), (-1,)

    def rounded(self, quotients):
        """Quotients by the scale of the output as its integers."""
        zero = self.tensor("yZero")
        ends = np.iinfo(zero.dtype)
        return np.clip(np.rint(quotients) + zero.astype(np.float32), ends.min, ends.max).astype(zero.dtype)

    def exactly(self):
        """What the layer gives in rational numbers, rounded once to floats of 32 bits, and then to integers."""
        sums, along = self.sums()
        scale, (W, b) = Fraction(float(self.tensor("xScale"))), (self.tensor(name) for name in ("WScale", "b"))
        each = [np.zeros_like(sums) + (0 if v is None else v.reshape(along) if v.ndim else v) for v in (W, b)]
        rows = zip(sums.flat, *(values.flat for values in each))
        found = [float(int(total) * scale * Fraction(float(w)) + Fraction(float(c))) for total, w, c in rows]
        y = np.array(found).astype(np.float32).reshape(sums.shape)
        return self.rounded((np.maximum(y, 0) if self.isRectified else y) / self.tensor("yScale"))

    def withWholeBias(self):
        """What QLinearConv gives, whose bias are integers: that is what onnxruntime makes of a convolution."""
        sums, along = self.sums()
        W = self.tensor("WScale")
        scale = self.tensor("xScale") * (W.reshape(along) if W.ndim else W)
        sums = sums + np.rint(self.tensor("b").reshape(along) / scale)
        y = sums.astype(np.float32) * (scale / self.tensor("yScale"))
        return self.rounded(np.maximum(np.rint(y), 0) if self.isRectified else y)


def check(kind, seed):
    """One setting: known again, exact, in onnxruntime but for its bias, written and read to the same bytes."""
    each = Setting(kind, seed)
    net = fromOnnx(each.model)
    labels = [node.label for node in net.nodes]
    assert f"Quantized{'Convolve' if kind == 'Conv' else 'MatMul'}" in labels and "Dequantize" not in labels
    y, wanted = net(each.data), fromOnnx(each.model, patterns=False)(each.data)
    assert y.dtype == wanted.dtype
    np.testing.assert_array_equal(y, each.exactly())
    quotient = fromOnnx(each.parts, patterns=False)(each.data) / each.tensor("yScale")
    isSure = np.abs(np.abs(quotient % 1) - 0.5) > HALVES
    np.testing.assert_array_equal(y[isSure], wanted[isSure])
    assert np.abs(y.astype(int) - wanted).max(initial=0) <= 1
    model = toOnnx(net, opset=OPSET)
    onnx.checker.check_model(model, full_check=True)
    isRounded = kind == "Conv" and each.tensor("b") is not None
    for file in (each.model, model):
        np.testing.assert_array_equal(ran(file, [each.data])[0], each.withWholeBias() if isRounded else y)
    assert toOnnx(fromOnnx(model), opset=OPSET).SerializeToString() == model.SerializeToString()


@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_between_changes_of_kind_is_a_layer_of_integers(kind):
    for seed in range(EACH):
        check(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LAYERS)
def test_more_layers_between_changes_of_kind_are_layers_of_integers(kind):
    for seed in range(EACH, MORE):
        check(kind, seed)


@pytest.mark.parametrize("patterns", [True, False])
def test_weights_stay_as_small_as_they_are(patterns):
    net = fromOnnx(Setting("Conv", 0).model, patterns=patterns)
    held = [np.asarray(state.materialize()) for node in net.nodes for state in node.module.states.values()]
    assert max(held, key=np.size).dtype.itemsize == 1
    assert all(array.dtype.itemsize == 1 or array.ndim < 2 for array in held)
    assert not any(p.data.ndim > 1 for p in net.params.values())


def test_a_layer_whose_floats_somebody_else_reads_stays_as_it_is():
    model = Setting("MatMul", 1).model
    inner = next(node for node in model.graph.node if node.op_type == "MatMul").output[0]
    model.graph.output.append(helper.make_tensor_value_info(inner, TensorProto.FLOAT, None))
    labels = [node.label for node in fromOnnx(model).nodes]
    assert "QuantizedMatMul" not in labels and "Dequantize" in labels


def test_a_compiled_layer_of_integers_gives_the_same():
    for kind in LAYERS:
        each = Setting(kind, 3)
        net = fromOnnx(each.model)
        program = net.compile(each.data.shape, train=False)
        np.testing.assert_array_equal(program.run(each.data), net(each.data))


def test_a_dequantized_input_that_others_read_is_still_one_of_integers():
    """As of a residual block: its sum reads the floats, its layer the integers."""
    model = Setting("Conv", 2).model
    inner = next(node for node in model.graph.node if node.op_type == "DequantizeLinear").output[0]
    model.graph.output.append(helper.make_tensor_value_info(inner, TensorProto.FLOAT, None))
    net, plain = fromOnnx(model), fromOnnx(model, patterns=False)
    labels = [node.label for node in net.nodes]
    assert "QuantizedConvolve" in labels and "Dequantize" in labels and "Conv" not in labels
    data = Setting("Conv", 2).data
    np.testing.assert_array_equal(net(data)[1], plain(data)[1])
    assert np.abs(net(data)[0].astype(int) - plain(data)[0]).max() <= 1
