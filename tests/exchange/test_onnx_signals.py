"""Fourier transforms, windows, boxes and regions are written again; what has no reference beside it is what it says."""

from itertools import islice

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from onnx import helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from test_onnx_settings import TOLERANCES, expected, modelOf, unlike  # noqa: E402

from puregraph.core.errors import DataError  # noqa: E402
from puregraph.modules import (  # noqa: E402
    Multinomial,
    RandomLike,
    RoiAlign,
)
from puregraph.onnx import fromOnnx, toOnnx  # noqa: E402


@pytest.mark.parametrize(
    "name", ["BitCast", "Col2Im", "DFT", "DeformConv", "MaxUnpool", "NonMaxSuppression", "RoiAlign"]
)
def test_random_settings_are_written_again(name):
    settings = drawn(name, 26 if name == "BitCast" else 19, np.random.default_rng(1))
    for model, given in islice(settings, 3):
        checkWritten(fromOnnx(model), given, 26 if name == "BitCast" else 21)


def drawn(name, opset, rng):
    """Settings of an operator in float32 that onnxruntime takes: models and what is given to them."""
    while True:
        model, given = modelOf(name, opset, rng)
        if expected(model, given) is not None and not any(x.dtype == np.float64 for x in given.values()):
            yield model, given


def checkWritten(net, given, opset):
    """Compare what onnxruntime gives of a graph that is written with what the graph gives."""
    given = dict(zip(net.arguments, given.values()))
    shapes, dtypes = zip(*[(x.shape, x.dtype) for x in given.values()])
    model = toOnnx(net, None, list(shapes), opset, list(dtypes))
    onnx.checker.check_model(model, full_check=True)
    assert unlike(net(*given.values()), expected(model, given), TOLERANCES) is None


def test_windows_of_one_and_three_axes_are_put_back_as_the_standard_says():
    for lengths, size, pads in (([7], [3], [1, 2]), ([4, 5, 6], [2, 1, 3], [1, 0, 2, 0, 1, 1])):
        rank = len(lengths)
        counts = [(n + pads[i] + pads[rank + i] - 2 * (size[i] - 1) - 1) + 1 for i, n in enumerate(lengths)]
        x = np.random.default_rng(1).standard_normal((2, 2 * np.prod(size), np.prod(counts))).astype("f4")
        model = helper.make_model(
            helper.make_graph(
                [helper.make_node("Col2Im", ["x", "lengths", "size"], ["y"], pads=pads, dilations=[2] * rank)],
                "it",
                [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
                [helper.make_empty_tensor_value_info("y")],
                [onnx.numpy_helper.from_array(np.array(v), n) for v, n in ((lengths, "lengths"), (size, "size"))],
            )
        )
        np.testing.assert_allclose(fromOnnx(model)(x), ReferenceEvaluator(model).run(None, {"x": x})[0], 1e-6)


def test_a_deformable_convolution_is_read_for_any_number_of_samples():
    model, given = next(drawn("DeformConv", 19, np.random.default_rng(1)))
    for info in model.graph.input:
        if len(info.type.tensor_type.shape.dim) == 4 and info.name != "x1":
            info.type.tensor_type.shape.dim[0].dim_param = "N"
    net = fromOnnx(model)
    assert net.dataShapeFrom([("N", *x.shape[1:]) if n != "x1" else x.shape for n, x in given.items()])[0] == "N"
    given = {n: np.concatenate([x, x]) if n != "x1" else x for n, x in given.items()}
    assert unlike(net(*given.values()), expected(model, given), TOLERANCES) is None


def test_numbers_at_random_have_their_range_or_mean_and_are_new_in_every_pass():
    x = np.zeros((100, 100), np.float32)
    for module, mean, deviation in (
        (RandomLike("uniform", 2, 3), 3.5, 3 / np.sqrt(12)),
        (RandomLike("normal", -1, 2), -1, 2),
    ):
        first, second = module(x), module(x)
        assert abs(first.mean() - mean) < 0.1 and abs(first.std() - deviation) < 0.1
        assert (first != second).any()
        module.evalMode()
        assert (module(x) != module(x)).mean() > 0.9


@pytest.mark.parametrize("kind", ["RandomNormal", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"])
def test_operators_that_draw_do_so_in_every_pass_and_a_seed_repeats_them(kind):
    x = np.full((40, 50), 0.5, np.float32)
    inputs, options = (["x"] if kind != "RandomNormal" else []), {"seed": 3 if kind == "Dropout" else 3.0}
    options |= {"RandomNormal": {"shape": x.shape}, "Multinomial": {"sample_size": 50}}.get(kind, {})
    inputs += ["ratio", "training"] if kind == "Dropout" else []

    def net(**options):
        constants = {"ratio": np.array(0.25, np.float32), "training": np.array(True)}
        nodes = [helper.make_node(kind, inputs, ["r"], **options), helper.make_node("Add", ["r", "x"], ["y"])]
        nodes[1:1] = [helper.make_node("Cast", ["r"], ["f"], to=1)] if kind == "Multinomial" else []
        nodes[-1].input[0] = "f" if kind == "Multinomial" else "r"
        ends = [helper.make_tensor_value_info(name, 1, x.shape) for name in "xy"]
        stored = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
        graph = helper.make_graph(nodes, "it", ends[:1], ends[1:], stored)
        return fromOnnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))

    first, second = net(**options), net(**options)
    passes = [first(x), first(x)]
    assert (passes[0] != passes[1]).mean() > 0.1
    for wanted in passes:
        np.testing.assert_array_equal(second(x), wanted)
    del options["seed"]
    assert (net(**options)(x) != passes[0]).mean() > 0.1
    if kind == "Dropout":
        dropped = passes[0] == 0.5
        np.testing.assert_allclose(passes[0][~dropped], 0.5 + 0.5 / 0.75, 1e-6)
        assert abs(dropped.mean() - 0.25) < 0.05


def test_classes_at_random_have_their_chances():
    chances = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]])
    with np.errstate(divide="ignore"):
        given = np.log(chances).astype(np.float32) + 3
    drawn = Multinomial(4000)(given)
    assert drawn.dtype == np.int32
    counts = np.stack([(drawn == c).mean(1) for c in range(3)], 1)
    np.testing.assert_allclose(counts, chances, 0, 0.03)


@pytest.mark.parametrize("wrong", [-1, 2])
def test_a_region_of_a_sample_that_is_not_there_is_refused(wrong):
    x, regions = np.ones((2, 1, 4, 4)), np.array([[0.0, 0, 2, 2]])
    with pytest.raises(DataError, match=f"which: wanted samples from 0 to 1, got {wrong}"):
        RoiAlign((2, 2))(x, regions, np.array([wrong]))
