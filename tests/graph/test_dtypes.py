"""Dtypes are known ahead of data, as shapes are, and nobody converts what already fits."""

import numpy as np
import pytest

import puregraph
from puregraph import (
    MSE,
    SGD,
    Add,
    And,
    ArgMax,
    Calculator,
    Cast,
    Concat,
    Conv2D,
    CrossEntropy,
    DataError,
    DtypeError,
    Embedder,
    Equal,
    Flatten,
    Graph,
    GraphWarning,
    Greater,
    Input,
    Linear,
    Module,
    Not,
    OneHot,
    Param,
    PuregraphError,
    Relu,
    Sequential,
    ShapeError,
    SoftMax,
    Sub,
    Sum,
    Trainer,
    Validator,
    Where,
)
from puregraph.autodiff import Variable
from puregraph.data import Batch
from puregraph.models import multiHeadAttention
from puregraph.ops.native.llvm import jit
from puregraph.train.objective import Objective

INTEGERS = [np.dtype(kind) for kind in np.typecodes["AllInteger"]]
FEW = [np.dtype(kind) for kind in ("?", "i4", "i8", "f4", "f8")]


def two():
    return [Input(name="a").node(), Input(name="b").node()]


def test_a_graph_says_its_dtypes_ahead_of_data():
    a, b = two()
    net = Graph([a, b], [Add().node(a, b), Greater().node(a, b), Cast("float32").node(a)])
    assert net.dataTypeFrom("int32", np.int64) == [np.int64, np.bool_, np.float32]
    assert net.dataTypeFrom(["float64", "float32"]) == [np.float64, np.bool_, np.float32]
    assert Sequential(Embedder(5, 3), Relu()).dataTypeFrom(np.uint8) == np.float32
    assert Sequential(Linear(3, 4)).calcMode(np.float64).dataTypeFrom("float64") == np.float64


def test_every_node_that_does_not_fit_is_named_ahead_of_data_shapes_and_dtypes_alike():
    a, b = two()
    net = Graph(
        [a, b], [Linear(3, 2, name="fc").node(a), And(name="both").node(a, b), Linear(9, 2, name="wide").node(b)]
    )
    with pytest.raises(DtypeError) as heard:
        net.dataTypeFrom("int64", "float32")
    assert [fault.path for fault in heard.value.faults] == ["fc", "both"]
    assert "at 'fc' (Linear): wanted float32 for x, got int64 from 'a'" in str(heard.value)
    with pytest.raises(ShapeError) as both:
        net(np.ones((2, 3), np.int64), np.ones((2, 3), np.float32))
    assert [(fault.path, fault.kind) for fault in both.value.faults] == [
        ("fc", "dtype"),
        ("both", "dtype"),
        ("wide", "shape"),
    ]


def test_a_graph_that_reads_one_input_as_ids_and_as_floats_is_refused_by_its_shapes():
    x = Input(name="x").node()
    net = Graph(x, [Embedder(5, 3).node(x), Linear(4, 2, name="fc").node(x)])
    with pytest.raises(DtypeError, match=r"at 'fc' \(Linear\): wanted float32 for x, got int64 from 'x'"):
        net.dataShapeFrom((2, 4))


def test_an_input_may_declare_what_comes_in():
    x = Input(("N", 3), "int32", name="x").node()
    net = Graph(x, Cast("float32").node(x))
    assert net.inputTypes() == [np.int32] and net.dataShapeFrom(("M", 3)) == ("M", 3)
    with pytest.raises(ShapeError, match=r"at 'x' \(Input\): wanted \(N, 3\), got \(2, 4\)"):
        net.dataShapeFrom((2, 4))
    with pytest.raises(DtypeError, match=r"at 'x' \(Input\): wanted int32, got int64"):
        net(np.ones((2, 3), np.int64))
    assert net(np.ones((2, 3), np.int32)).dtype == np.float32
    assert Input("x").name == "x"
    image = Input(("N", 3), "float32", name="image").node()
    network = Graph(image, Linear(3, 2)(image))
    back = puregraph.autodiff.add_backward_pass(network, list(network.outputNames), ["image"])
    data = np.ones((2, 3), np.float32)
    network(data)
    network.backward(np.ones((2, 2), np.float32))
    assert np.allclose(back(data, np.ones((2, 2), np.float32))[-1], network.grad)
    program = network.compile(data.shape)
    assert np.allclose(program.run(data), network(data)) and np.allclose(network.evalMode()(data), network.data)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_a_cost_of_integers_is_refused_and_integers_as_targets_are_not(dtype):
    x = np.arange(6).reshape(2, 3).astype(dtype)
    with pytest.raises(DtypeError, match=r"at 'mse' \(MSE\): wanted floats for x"):
        MSE()(x, x)
    assert MSE()(x.astype(np.float32) + 1, x) == 1
    for module in (SoftMax(), puregraph.LayerNorm(3), puregraph.Dropout()):
        with pytest.raises(DtypeError):
            module(x)


def test_a_rule_that_gives_another_dtype_than_it_says_is_named():
    class Positive(Module):
        def dataShapeFrom(self, x):
            return x

        def updateData(self, x):
            return x > 0

    with pytest.raises(PuregraphError, match="dataTypeFrom says float32, updateData gave bool; one of the two"):
        Sequential(Positive(name="p"))(np.ones(2, np.float32))


def test_a_mask_of_booleans_stays_one_wherever_it_is_given():
    net = multiHeadAttention(8, 2, masked=True).evalMode()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 5, 8)).astype(np.float32)
    mask = np.tril(np.ones((2, 1, 5, 5), bool))
    wanted = net(x, mask)
    assert abs(Calculator(net).calculate([x, mask]) - wanted).max() < 1e-6
    assert abs(Calculator(net, compile=False).calculate([x, mask]) - wanted).max() < 1e-6
    program = net.compile([x.shape, mask.shape])
    assert abs(program.run(x, mask) - wanted).max() < 1e-6
    added = np.where(mask, 0, -np.inf).astype(np.float32)
    assert abs(program.run(x, added) - wanted).max() < 1e-6
    assert abs(program.run(x, mask) - wanted).max() < 1e-6
    t = np.zeros_like(x)
    loss = {compile: Validator(net, MSE(), compile=compile).validate([x, mask], t) for compile in (True, False)}
    assert abs(loss[True]["loss"] - (wanted**2).mean()) < 1e-6 and abs(loss[False]["loss"] - (wanted**2).mean()) < 1e-6


def test_ids_stay_whole_through_what_hands_them_on():
    a, b = two()
    net = Graph([a, b], Sequential(Embedder(7, 3), Flatten(), Linear(15, 2)).node(Concat(axis=1).node(a, b)))
    x, y = np.arange(6).reshape(3, 2), np.arange(9).reshape(3, 3) % 7
    assert np.array_equal(Calculator(net).calculate([x, y]), Calculator(net, compile=False).calculate([x, y]))
    assert np.allclose(Calculator(net).calculate([x, y]), net(x, y), atol=1e-6)
    Trainer(net, CrossEntropy(), SGD(0.1), batchsize=3).train([x, y], np.array([0, 1, 1]), epochs=2)


@pytest.mark.skipif(not jit.available(), reason="no llvmlite")
@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "bool"])
def test_labels_and_ids_of_any_integers_run_in_native_code(dtype):
    x, labels = np.ones((4, 5), np.float32), np.array([0, 1, 1, 0]).astype(dtype)
    objective = Objective(Sequential(Linear(5, 3)), CrossEntropy())
    program = objective.program(objective.prepare(Batch([x], [labels], 4)))
    assert "numpy" not in program.table()
    if dtype != "bool":
        words = Sequential(Embedder(9, 3)).compile((4,))
        assert words.run(labels).shape == (4, 3) and "numpy" not in words.table()


@pytest.mark.parametrize("kinds", [("int64", "float32"), ("float16", "int64"), ("bool", "float32"), ("int32", "int64")])
def test_where_says_the_dtype_that_it_gives_for_integers_beside_floats(kinds):
    a, b = (np.ones(3, kind) for kind in kinds)
    found = Where()(np.array([True, False, True]), a, b).dtype
    assert found == Where().dataTypeFrom(np.dtype(bool), a.dtype, b.dtype)


@pytest.mark.parametrize(("module", "count"), [(And(), 2), (Not(), 1), (Where(), 3)])
def test_a_module_of_booleans_refuses_floats_in_a_graph_and_alone(module, count):
    data = [np.full(2, 0.5, np.float32)] * count
    with pytest.raises(DtypeError, match="wanted booleans for"):
        module(*data)
    inputs = [Input().node() for _ in data]
    with pytest.raises(DtypeError, match="wanted booleans for"):
        Graph(inputs, module.node(*inputs))(*data)


def test_pixels_of_bytes_are_made_floats_where_rules_want_them():
    net = Sequential(Conv2D(1, 2, 3), Flatten(), Linear(18, 2))
    x = np.arange(50, dtype=np.uint8).reshape(2, 1, 5, 5)
    with pytest.warns(GraphWarning, match="bytes from 0 to 49 go into 'conv2d'"):
        assert np.allclose(Calculator(net).calculate(x), net(x.astype(np.float32)), atol=1e-4)


def test_large_integers_are_compared_exactly_wherever_they_are_given():
    a, b = two()
    net = Graph([a, b], [Equal().node(a, b), (a > b), Sub().node(a, b)])
    x, y = np.array([2**53 + 1, 2**24 + 1]), np.array([2**53, 2**24])
    for found in (net(x, y), net.compile([(2,), (2,)]).run(x, y), Calculator(net).calculate([x, y])):
        assert [y.tolist() for y in found] == [[False, False], [True, True], [1, 1]]


@pytest.mark.parametrize(("kind", "n"), [("int64", 2**53 + 1), ("int32", 2**31 - 1), ("int8", 127), ("uint8", 255)])
def test_sums_and_differences_of_integers_are_numpys_eager_and_compiled(kind, n):
    a, b = two()
    net = Graph([a, b], [Add().node(a, a), Sub().node(a, b), Equal().node(a, b)])
    x, y = np.full(3, n, kind), np.full(3, n - 1, kind)
    for found in (net(x, y), net.compile((3,), (3,), dtypes=[kind, kind]).run(x, y), net.compile((3,), (3,)).run(x, y)):
        for got, wanted in zip(found, (x + x, x - y, x == y), strict=True):
            assert got.dtype == wanted.dtype and np.array_equal(got, wanted)


class Quantised(Module):
    """y = s (x W), with integers in W."""

    def __init__(self, name=None):
        super().__init__(name)
        self.W = Param((3, 2), lambda rng, shape: rng.integers(-9, 9, shape), np.int8)
        self.s = Param((2,), "ones")

    def dataShapeFrom(self, x):
        return (*x[:-1], 2)

    def updateData(self, x, W, s):
        return x @ W.astype(x.dtype) * s

    def updateGrad(self, grad, x, W, s, y):
        return (grad * s) @ W.astype(x.dtype).T, None, (grad * (x @ W.astype(x.dtype))).sum(axis=0)


def test_parameters_of_integers_stay_as_they_are():
    net = Sequential(Quantised(), Linear(2, 2))
    assert net.dtype == np.float32
    weights = net["quantised"].W.data.copy()
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    assert net(x).dtype == np.float32
    optimizer = SGD(0.1).setupOn(net)
    assert "quantised.W" not in optimizer.params and "quantised.s" in optimizer.params
    net.calcMode(np.float64)
    assert net["quantised"].W.dtype == np.int8 and net["quantised"].s.dtype == np.float64
    net.calcMode(np.float32)
    before = net["quantised"].s.data.copy()
    Trainer(net, MSE(), SGD(0.1), batchsize=4).train(x, np.ones((4, 2), np.float32), epochs=3)
    assert np.array_equal(net["quantised"].W.data, weights) and not np.array_equal(net["quantised"].s.data, before)
    with pytest.raises(DtypeError, match="a parameter of int8 has no gradient and cannot be trained"):
        net["quantised"].W.trainable = True
    net.trainable = True
    assert not net["quantised"].W.trainable and net["quantised"].s.trainable


def test_a_mask_that_a_rule_wants_of_booleans_is_never_made_one_of_other_numbers():
    x, m = Input(name="x").node(), Input(name="m").node()
    net = Graph([x, m], Where().node(m, x, x * 0))
    assert net.inputTypes() == [np.float32, np.bool_]
    data, mask = np.ones((4, 2), np.float32), np.array([[True, False]] * 4)
    assert np.array_equal(Calculator(net).calculate([data, mask]), data * mask)
    assert np.array_equal(net.compile([data.shape, mask.shape]).run(data, mask), data * mask)
    with pytest.raises(DataError, match=r"data\[1\]: wanted booleans, got float32; compare it, as in x != 0"):
        Calculator(net).calculate([data, np.where(mask, 0, -1e9).astype(np.float32)])


def test_a_shape_with_a_symbol_is_not_compiled():
    with pytest.raises(ShapeError, match=r"wanted sizes to compile for, got \(N, 4\); give a number for each symbol"):
        Sequential(Linear(4, 2)).compile([("N", 4)])


MAKERS = [
    lambda a, b: Add().node(a, b),
    lambda a, b: Sub().node(a, b),
    lambda a, b: Equal().node(a, b),
    lambda a, b: a > b,
    lambda a, b: And().node(a, b),
    lambda a, b: Where().node(a, b, a),
    lambda a, b: Concat(axis=0).node(a, b),
    lambda a, b: a % b,
    lambda a, b: Cast("int32").node(a),
    lambda a, b: Cast("float32").node(b),
    lambda a, b: ~a,
    lambda a, b: a * 2,
    lambda a, b: a / b,
    lambda a, b: Relu().node(b),
    lambda a, b: ArgMax(axis=0, keepdims=True).node(a),
    lambda a, b: OneHot(3).node(a),
    lambda a, b: puregraph.Sum(axis=-1).node(a),
    lambda a, b: puregraph.Mean(axis=-1).node(b),
    lambda a, b: puregraph.Max(axis=-1, keepdims=True).node(a),
    lambda a, b: SoftMax().node(b),
    lambda a, b: puregraph.Pad((1, 0)).node(a),
    lambda a, b: puregraph.MatMul().node(a, b),
    lambda a, b: puregraph.Clip(0, 2).node(a),
]


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 400), *[pytest.param(seed, 1000, marks=pytest.mark.slow) for seed in range(10)]]
)
def test_of_thousands_of_random_graphs_each_runs_as_its_dtypes_say_or_is_refused_ahead_of_data(seed, count):
    rng = np.random.default_rng(seed)
    ran = 0
    for _ in range(count):
        inputs, kinds = two(), [FEW[i] for i in rng.integers(len(FEW), size=2)]
        nodes = list(inputs)
        for _ in range(rng.integers(1, 6)):
            one, other = (nodes[i] for i in rng.integers(len(nodes), size=2))
            nodes.append(MAKERS[rng.integers(len(MAKERS))](one, other))
        used = [Add(name=f"use{i}").node(node) for i, node in enumerate(inputs)]
        net = Graph(inputs, [*used, *nodes[2:]])
        try:
            shapes = net.infer([(3, 3), (3, 3)]).shapes  # whatever the dtypes are
            net.dataShapeFrom([(3, 3), (3, 3)])
        except ShapeError:
            continue
        except DtypeError:
            pass  # of what comes in if nothing else is said
        try:
            said = net.dataTypeFrom(kinds)
        except DtypeError as error:
            assert error.faults and all(fault.path for fault in error.faults)
            continue
        x = [(rng.integers(0, 4, (3, 3)) * (1 if k.kind in "iu" else 0.5)).astype(k) for k in kinds]
        with np.errstate(all="ignore"):
            found = net(*x)
        assert [y.dtype for y in found] == said and [y.shape for y in found] == shapes
        ran += 1
    assert ran > 50


JOINED = {"Add": puregraph.Add, "Mul": puregraph.Mul, "Sub": puregraph.Sub, "Div": puregraph.Div,
          "MatMul": puregraph.MatMul, "PairDot": puregraph.PairDot, "Concat": lambda: puregraph.Concat(0),
          "Einsum": lambda: puregraph.Einsum("ab,bc->ac")}  # fmt: skip


@pytest.mark.parametrize("kinds", [("float16", "float32"), ("float32", "float16"), ("float16", "float64")], ids=str)
@pytest.mark.parametrize("name", JOINED)
def test_floats_of_two_sizes_give_the_larger_as_said_ahead_of_data(name, kinds, rng):
    inputs = two()
    net = Graph(inputs, JOINED[name]().node(*inputs))
    shape = (3, 3)
    x = [rng.standard_normal(shape).astype(kind) for kind in kinds]
    wanted = np.result_type(*kinds)
    assert net.dataTypeFrom([a.dtype for a in x]) == net(*x).dtype == wanted
    assert net.compile([shape, shape], dtypes=[a.dtype for a in x]).run(*x).dtype == wanted


def test_inputs_that_declare_floats_are_converted_with_the_parameters_in_nested_graphs_too():
    x, ids = Input(dtype="float32", name="x").node(), Input(dtype="int32", name="ids").node()
    inner = Input(("N", 3), "float32", name="inner").node()
    nested = Graph(inner, Linear(3, 3, name="fc")(inner), name="nested")
    net = Graph([x, ids], [nested.node(x), ids], name="net").calcMode(np.float64)
    y, same = net(np.ones((2, 3)), np.ones(2, np.int32))
    assert y.dtype == np.float64 and same.dtype == np.int32
    assert net.calcMode("bfloat16").inputs[0].module.dtype == np.float64  # a precision converts nothing


SWAPPED = {
    "graph": lambda net, x: net(x),
    "Variable": lambda net, x: net(Variable(x)),
    "program": lambda net, x: net.compile(x.shape).run(x),
}


@pytest.mark.parametrize("door", SWAPPED)
@pytest.mark.parametrize("kind", [">f4", ">f8", ">f2"])
def test_floats_of_another_byte_order_are_to_be_converted_and_not_the_graph(door, kind):
    net, x = Sequential(Linear(3, 2, name="fc"), name="net"), np.ones((4, 3), kind)
    with pytest.raises(DtypeError, match=rf"got {kind}; convert .*\.astype\('float32'\)$") as caught:
        SWAPPED[door](net, x)
    assert "calcMode" not in str(caught.value)
    wanted = net(x.astype(np.float32))
    np.testing.assert_allclose(Calculator(net).calculate(x), wanted, rtol=1e-6)


def test_a_cast_to_more_digits_than_a_graph_has_keeps_them():
    x = Input((2, 3)).node()
    net = Graph(x, Cast("float32")(Sum(-1)(Cast("float64")(Linear(3, 3)(x)))))
    net.calcMode(np.float16)
    assert [node.module.dtype.name for node in net.nodes if node.module.label == "Cast"] == ["float64", "float16"]
    assert [node.module.dtype.name for node in net.calcMode("float64").nodes if node.module.label == "Cast"] == [
        "float64"
    ] * 2
