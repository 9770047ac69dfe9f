"""A float network as one of integers: eager, compiled, in files, in ONNX and in onnxruntime, and what it loses."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnxruntime  # noqa: E402
from leftovers import leftToNumpy  # noqa: E402
from onnxtrips import ran  # noqa: E402

import puregraph  # noqa: E402
from puregraph import (  # noqa: E402
    LSTM,
    Add,
    ArgumentError,
    BatchNorm,
    Clip,
    Conv1D,
    Conv2D,
    Conv3D,
    DataError,
    Dropout,
    Embedder,
    FakeQuantise,
    Flatten,
    Gelu,
    GlobalAvgPool,
    Graph,
    Input,
    LayerNorm,
    Linear,
    MaxPool2D,
    Mean,
    Quantiser,
    Relu,
    Relu6,
    Sequential,
    quantise,
    seed,
)
from puregraph.onnx import fromOnnx, toOnnx  # noqa: E402
from puregraph.train.quantising.integerweights import byChannel, byGroup, packed  # noqa: E402
from puregraph.train.quantising.valuerange import ValueRange, scaleOf  # noqa: E402

OPSET = 21  # the newest whose integer operators onnxruntime has
SETTINGS = (
    {},
    {"activations": "int8"},
    {"calibration": "percentile"},
    {"calibration": "entropy", "keep": "last"},
    {"perChannel": False},
    {"mode": "dynamic"},
    {"mode": "weights"},
    {"mode": "weights", "weights": "int4", "group": 5},
)
LOUD = {"entropy": 10, "int4": 10}  # decibels of the result over its error, 20 for all others


def mlp(rng):
    """Linear layers with several activations."""
    a, b, c = (int(i) for i in rng.integers(3, 40, 3))
    acts = [Relu(), Gelu(), Relu6(), Clip(0.0, 2.0)]
    act = acts[int(rng.integers(4))]
    return Sequential(
        Linear(a, b), act, Dropout(0.5), Linear(b, c, useBias=False), Relu(), Linear(c, 5, name="last")
    ), (a,)


def convolutions(rng):
    """Convolutions with groups, strides, dilation and padding of two sides, BatchNorm and pooling."""
    groups, maps = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    c = groups * maps
    first = Conv2D(3, c, 3, stride=int(rng.integers(1, 3)), pad=((1, 0), (0, 2)), useBias=bool(rng.integers(2)))
    middle = Conv2D(c, 2 * c, (3, 2), pad="same", groups=groups, dilation=int(rng.integers(1, 3)))
    net = [first, BatchNorm(c), Relu(), middle, BatchNorm(2 * c, affine=False), Relu6(), MaxPool2D(2), Flatten()]
    shape = (3, 11, 9)
    size = Sequential(*net).evalMode().dataShapeFrom((1, *shape))[1]
    return Sequential(*net, Linear(size, 4, name="last")), shape


def residual(rng):
    """A block with a shortcut and depthwise filters, as of MobileNet and ResNet."""
    c = int(rng.integers(4, 12))
    x = Input(name="x").node()
    stem = Sequential(Conv2D(3, c, 3, pad=1), BatchNorm(c), Relu(), name="stem").node(x)
    path = Sequential(
        Conv2D(c, c, 3, pad=1, groups=c, useBias=False),
        BatchNorm(c),
        Clip(),
        Conv2D(c, c, 1),
        BatchNorm(c),
        name="path",
    ).node(stem)
    tail = Sequential(Relu(), Conv2D(c, 6, 3, stride=2), Relu(), GlobalAvgPool(), name="tail")
    return Graph(x, Linear(6, 3, name="last").node(tail.node(Add(name="add")(stem, path)))), (3, 8, 7)


def oneAxis(rng):
    """Convolutions along one axis."""
    c = int(rng.integers(2, 9))
    net = [Conv1D(4, c, 5, stride=2, pad=2), Relu(), Conv1D(c, c, 3, groups=c), Relu(), Conv1D(c, 6, 1, name="last")]
    return Sequential(*net, Mean(-1)), (4, 23)


def threeAxes(rng):
    """Convolutions along three axes."""
    c = int(rng.integers(2, 5))
    net = [Conv3D(2, c, 3, pad=1), BatchNorm(c), Relu(), Conv3D(c, c, (1, 2, 3), stride=2), Relu(), Flatten()]
    size = Sequential(*net).evalMode().dataShapeFrom((1, 2, 5, 6, 7))[1]
    return Sequential(*net, Linear(size, 3, name="last")), (2, 5, 6, 7)


def encoder(rng):
    """Linear layers behind norms, with shortcuts, over sequences."""
    d = int(rng.integers(6, 20))
    x = Input(name="x").node()
    h = Sequential(LayerNorm(d), Linear(d, 3 * d), Gelu(), Linear(3 * d, d), name="mlp").node(x)
    return Graph(x, Linear(d, 4, name="last").node(Add(name="add")(x, h))), (7, d)


NETS = (mlp, convolutions, residual, oneAxis, threeAxes, encoder)


def built(number):
    """A random network with statistics of its samples, those, and settings: each network with each setting in turn."""
    rng = np.random.default_rng(number)
    seed(number)
    net, shape = NETS[number % len(NETS)](rng)
    x = rng.standard_normal((6, *shape)).astype(np.float32)
    for _ in range(20):
        net.trainMode()(x)
    return net.evalMode(), x, SETTINGS[number // len(NETS) % len(SETTINGS)]


def decibels(y, wanted):
    """Signal to noise."""
    noise = np.square(y.astype(np.float64) - wanted).sum()
    return 200 if not noise else 10 * np.log10(np.square(wanted.astype(np.float64)).sum() / noise)


def inRuntime(model, x):
    """What onnxruntime gives for operators as they are written, which it would otherwise replace by coarser ones."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]


@pytest.mark.parametrize("number", range(len(NETS) * len(SETTINGS)))
def test_a_network_of_integers_is_one_network_everywhere(number, tmp_path):
    net, x, options = built(number)
    wanted, before = net(x), {path: p.data.copy() for path, p in net.params.items()}
    plan = Quantiser(net, x, **options)
    small = plan.graph()
    y = small(x)
    least = next((value for key, value in LOUD.items() if key in options.values()), 20)
    assert y.dtype == np.float32 and decibels(y, wanted) > least, plan.table()
    assert plan.bytes[1] < plan.bytes[0]
    for path, array in before.items():
        np.testing.assert_array_equal(net.params[path].data, array)
    np.testing.assert_array_equal(net(x), wanted)
    close = {"rtol": 0, "atol": 2e-6 * np.abs(y).max()} if options.get("mode") != "dynamic" else stepsOf(y)
    for rows in (x, x[:1]):
        program = small.compile([rows.shape], train=False)
        assert leftToNumpy(program) == []
        np.testing.assert_allclose(program.run(rows), small(rows), **close)
    small.save(tmp_path / "small.h5")
    np.testing.assert_array_equal(puregraph.load(tmp_path / "small.h5")(x), y)
    model = toOnnx(small, shapes=[("N", *x.shape[1:])], opset=OPSET)
    onnx.checker.check_model(model, full_check=True)
    np.testing.assert_allclose(fromOnnx(model)(x), y, **close)
    np.testing.assert_allclose(inRuntime(model, x), y, **stepsOf(y))
    isOpen = "activations" not in options  # where onnxruntime turns int8 to uint8, it may write a model it refuses
    if options.get("mode") != "weights" and isOpen:
        assert decibels(ran(model, [x])[0], wanted) > least


def stepsOf(y):
    """The tolerance for values that floats summed in another order round to the next integer, in some layers."""
    return {"rtol": 0, "atol": 0.03 * np.abs(y).max()}


def test_layers_of_one_kind_of_output_are_equal_to_the_bit_in_onnxruntime():
    """Without a bias of a convolution, which onnxruntime rounds, nothing depends on the order of a sum."""
    seed(0)
    net = Sequential(Conv2D(3, 8, 3, useBias=False), Relu(), Conv2D(8, 4, 1, useBias=False), Flatten(), Linear(64, 5))
    x = np.random.default_rng(0).standard_normal((5, 3, 6, 6)).astype(np.float32)
    small = quantise(net, x)
    labels = [node.label for node in small.nodes]
    assert labels.count("QuantizedConvolve") == 2 and labels.count("IntegerMatMul") == 1
    model = toOnnx(small, shapes=[("N", 3, 6, 6)], opset=OPSET)
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("QuantizeLinear") == 3 and kinds.count("MatMulInteger") == 1
    np.testing.assert_array_equal(ran(model, [x])[0], small(x))


def test_the_table_names_the_layer_that_hurts():
    seed(0)
    net = Sequential(Linear(8, 32, name="good"), Relu(), Linear(32, 8, name="bad"), Linear(8, 4, name="end"))
    net["bad"].W.data[0, :] = 1000.0  # one weight of each output is so large that the others are 0
    net["good"].W.data[:, 0] = 0.0
    x = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
    plan = Quantiser(net, x)
    assert plan.decibels["bad"] < 10 < 30 < min(plan.decibels["good"], plan.decibels["end"])
    rows = {line.split()[0]: line.split() for line in plan.table().splitlines()}
    assert rows["good"][1:4] == ["int8", "1,152", "512"]
    assert float(rows["bad"][-1]) == pytest.approx(plan.decibels["bad"], abs=0.06)
    kept = Quantiser(net, x, keep="bad")
    assert "kept" in kept.table() and "bad" not in kept.decibels
    assert decibels(kept.graph()(x), net(x)) > 30 > decibels(plan.graph()(x), net(x))


def test_what_stays_in_floats_is_named():
    net = Sequential(Embedder(9, 4, name="words"), LSTM(4, 6, name="cell"), Linear(6, 3, name="fc"))
    table = Quantiser(net, mode="dynamic").table()
    assert "words    float" in table and 'mode="weights"' in table and "LSTM has no integer form" in table
    negative = Sequential(Conv2D(2, 2, 2, pad=((-1, 0), (0, 0)), name="cut"), Flatten(), Linear(36, 2))
    assert "negative padding" in Quantiser(negative, mode="dynamic").table()
    wide = Sequential(Linear(33_100, 1, name="long"), Linear(1, 1))
    assert "33100 products" in Quantiser(wide, mode="dynamic").table()


def test_an_embedding_is_stored_as_bytes_and_widened_by_row():
    seed(0)
    net = Sequential(Embedder(50, 16, name="words"), Linear(16, 4, name="fc"))
    x = np.array([[0, 49, -1], [7, 7, 3]])
    small = quantise(net, mode="weights")
    held = [s.materialize() for node in small.nodes for s in node.module.states.values()]
    assert {a.dtype.name for a in held if a.size > 60} == {"int8"}
    np.testing.assert_allclose(small(x), net(x), atol=0.02 * np.abs(net(x)).max())
    np.testing.assert_array_equal(small(x)[0, 2], net["fc"].b.data)
    with pytest.raises(DataError):
        small(np.array([[50]]))


def test_scales_of_training_are_those_of_the_integers():
    seed(0)
    rng = np.random.default_rng(0)
    net = Sequential(Conv2D(2, 4, 3, name="conv"), BatchNorm(4), Relu(), Flatten(), Linear(64, 3, name="fc"))
    FakeQuantise.on(net, "*.W", bits=4)
    x = rng.standard_normal((8, 2, 6, 6)).astype(np.float32)
    net["batchnorm"].scale.data = np.array([1, -2, 0, 0.5], np.float32)  # a negative factor turns signs
    net.trainMode()(x)
    net.evalMode()
    plan = Quantiser(net, x)
    np.testing.assert_allclose(plan.weights["fc"].floats, net["fc"].W.data, rtol=1e-6, atol=1e-9)
    assert np.abs(plan.weights["fc"].integers).max() == np.abs(plan.weights["conv"].integers).max() == 7
    assert isinstance(net["fc"].W, FakeQuantise)
    only = Quantiser(net, x, mode="weights")
    assert min(only.decibels.values()) > 100
    grouped = Quantiser(net, x, mode="weights", weights="int4", group=10)
    np.testing.assert_allclose(grouped.graph()(x), net(x), atol=1e-5)


def test_zeros_dead_channels_and_one_sample_have_scales():
    net = Sequential(Conv2D(1, 3, 2, name="conv"), Relu(), Flatten(), Linear(12, 2, name="fc"))
    net["conv"].W.data[1] = 0
    net["conv"].b.data[:] = -1000  # so that the activation is zero for all samples
    x = np.ones((1, 1, 3, 3), np.float32)
    for options in ({}, {"calibration": "entropy"}, {"calibration": "percentile"}, {"mode": "dynamic"}):
        small = quantise(net, x, **options)
        np.testing.assert_allclose(small(x), net(x), atol=1e-6)
        np.testing.assert_allclose(small(0 * x), net(0 * x), atol=1e-6)
        np.testing.assert_allclose(small.compile([x.shape], train=False).run(0 * x), net(0 * x), atol=1e-6)


def test_shared_layers_share_their_integers():
    layer = Linear(6, 6, name="twice")
    x = Input(name="x").node()
    net = Graph(x, Relu(name="end")(layer.node(Relu(name="mid")(layer.node(x)))))
    data = np.random.default_rng(0).standard_normal((9, 6)).astype(np.float32)
    small = quantise(net, data)
    assert sum(node.label == "Constant" and node.module.state.shape == (6, 6) for node in small.nodes) == 1
    assert decibels(small(data), net(data)) > 25


def test_several_inputs_and_batches_of_samples():
    a, b = Input(name="a").node(), Input(name="b").node()
    net = Graph([a, b], Linear(4, 2, name="fc").node(Add(name="add")(a, b)))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((70, 4)).astype(np.float32) for _ in range(2)]
    wanted = quantise(net, arrays)(arrays)
    np.testing.assert_array_equal(quantise(net, dict(zip("ab", arrays)))(arrays), wanted)
    np.testing.assert_array_equal(
        quantise(net, iter([[v[:9] for v in arrays], [v[9:] for v in arrays]]))(arrays), wanted
    )


def test_samples_that_cannot_be_measured_are_refused_by_name():
    net = Sequential(Linear(4, 2, name="fc"))
    x = np.ones((3, 4), np.float32)
    with pytest.raises(DataError, match="give samples"):
        quantise(net)
    for none in (x[:0], iter([])):
        with pytest.raises(DataError, match="quantise: there are no samples|at least one sample"):
            quantise(net, none)
    with pytest.raises(DataError, match=r"samples of input 'fc' have nan"):
        quantise(net, np.where(x > 0, np.nan, x))
    with pytest.raises(ArgumentError, match="keep='head' is no layer"):
        quantise(net, x, keep=["head"])
    with pytest.raises(ArgumentError, match='mode="weights"'):
        quantise(net, x, weights="int4")
    with pytest.raises(ArgumentError, match="percentile"):
        quantise(net, x, calibration="percentile", percentile=20)
    net["fc"].W.data[0] = 1e38
    with pytest.raises(DataError, match="output of fc"):
        with np.errstate(over="ignore", invalid="ignore"):
            quantise(Sequential(net["fc"], Linear(2, 2)), 1e5 * x)


def test_ranges_of_values_follow_their_method():
    x = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    x[0] = 1000.0  # one outlier
    limits = {}
    for method in ("minmax", "percentile", "entropy"):
        seen = ValueRange("it")
        seen.observe(x)
        seen.count(x, method)
        limits[method] = seen.limits(method, 99.0)
    assert limits["minmax"] == (float(x.min()), 1000.0)
    assert limits["percentile"][1] < 10 and limits["entropy"][1] < 150
    scale, zero = scaleOf((-1.0, 3.0), "uint8")
    assert scale == np.float32(4 / 255) and zero == 64
    assert scaleOf((0.0, 3.0), "int8")[1] == -128


def test_percentiles_are_those_of_numpy():
    x = np.random.default_rng(0).standard_normal(50_000).astype(np.float32)
    seen = ValueRange("it")
    seen.observe(x)
    seen.count(x, "percentile")
    bin = (x.max() - x.min()) / 2048
    np.testing.assert_allclose(seen.limits("percentile", 98.0), np.percentile(x, [1, 99]), atol=2 * bin)


def test_integer_weights_are_within_half_a_step():
    W = np.random.default_rng(0).standard_normal((13, 7)).astype(np.float32)
    for made in (byChannel(W, 1), byChannel(W, 0, 4), byChannel(W, 1, perChannel=False), byGroup(W, 0, 5)):
        assert (np.abs(made.floats - W) <= made.spread / 2 * (1 + 1e-5)).all()
    made = byGroup(W, 0, 5)
    pairs = packed(made)
    unpacked = np.concatenate([pairs & 15, pairs >> 4])[:13].astype(int) - 8
    np.testing.assert_array_equal(unpacked, made.integers)
    assert made.nbytes == 7 * 7 + 3 * 7 * 5


def test_handwritten_digits_are_read_as_well(tmp_path):
    pytest.importorskip("sklearn")
    from puregraph import Adam, CrossEntropy, Trainer
    from puregraph.data import digits
    from puregraph.models import lenet

    (data, target), (rest, labels) = digits()
    seed(0)
    net = lenet(size=8, maps=(16, 32), norm=True)
    Trainer(net, CrossEntropy(), Adam(3e-3), 64, progress="none", seed=0).train(data, target, epochs=6)
    net.evalMode()
    share = np.mean(net(rest).argmax(1) == labels)
    assert share > 0.95
    for options in ({}, {"mode": "dynamic"}, {"mode": "weights", "weights": "int4"}, {"calibration": "percentile"}):
        plan = Quantiser(net, data[:200], **options)
        small = plan.graph()
        assert np.mean(small(rest).argmax(1) == labels) > share - 0.015, (options, plan.table())
        assert plan.bytes[1] < plan.bytes[0] * (0.3 if "weights" not in options else 0.2)
