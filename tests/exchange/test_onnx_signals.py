"""Fourier transforms, windows, boxes and regions give what onnxruntime gives, with the gradients of PyTorch."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from onnx import helper  # noqa: E402
from test_onnx_loops import checked, expected, modelOf  # noqa: E402

from puregraph.onnx import fromOnnx  # noqa: E402
from puregraph.onnx.modules import RandomLike  # noqa: E402


def dft(rng):
    n, isComplex, isInverse = int(rng.integers(1, 7)), rng.random() < 0.5, rng.random() < 0.5
    isOneSided = not isComplex and not isInverse and rng.random() < 0.5
    x = rng.standard_normal((2, n, 3, 1 + isComplex)).astype("f4")
    node = helper.make_node(
        "DFT", ["x"], ["y"], axis=int(rng.choice([1, 2])), inverse=int(isInverse), onesided=int(isOneSided), name="it"
    )
    return node, {"x": x}, []


def stft(rng):
    size, count = int(rng.choice([4, 8])), int(rng.integers(8, 20))
    x = rng.standard_normal((2, count, 1)).astype("f4")
    constants = [("step", np.array(rng.integers(1, 5))), ("window", rng.random(size).astype("f4"))]
    constants.append(("size", np.array(size)))
    isOneSided = int(rng.integers(0, 2))
    return helper.make_node("STFT", ["x", "step", "window", "size"], ["y"], onesided=isOneSided), {"x": x}, constants


def suppression(rng):
    n, boxes, classes = (int(rng.integers(1, k)) for k in (3, 8, 3))
    given = {
        "boxes": rng.random((n, boxes, 4)).astype("f4"),
        "scores": rng.random((n, classes, boxes)).astype("f4"),
    }
    constants = [("most", np.array([rng.integers(0, 5)])), ("least", np.array([rng.random() / 2], "f4"))]
    constants.append(("threshold", np.array([rng.random()], "f4")))
    names = ["boxes", "scores", "most", "threshold", "least"][: int(rng.integers(3, 6))]
    kept = [row for row in constants if row[0] in names]
    node = helper.make_node("NonMaxSuppression", names, ["y"], center_point_box=int(rng.integers(0, 2)))
    return node, given, kept


def regions(rng):
    low = rng.uniform(-1, 3, (3, 2))
    rois = np.concatenate([low, low + rng.uniform(0.5, 4, (3, 2))], 1).astype("f4")
    given = {"x": rng.standard_normal((2, 2, 5, 6)).astype("f4"), "rois": rois, "which": rng.integers(0, 2, 3)}
    node = helper.make_node(
        "RoiAlign",
        list(given),
        ["y"],
        mode=str(rng.choice(["avg", "max"])),
        output_height=int(rng.integers(1, 4)),
        output_width=int(rng.integers(1, 4)),
        sampling_ratio=int(rng.integers(0, 3)),
        spatial_scale=float(rng.choice([0.5, 1.0])),
        coordinate_transformation_mode=str(rng.choice(["half_pixel", "output_half_pixel"])),
    )
    return node, given, []


def windows(rng):
    lengths, size = rng.integers(3, 7, 2).tolist(), rng.integers(1, 4, 2).tolist()
    stride, dilation, pads = rng.integers(1, 3, 2).tolist(), [1, 1], rng.integers(0, 2, 4).tolist()
    counts = [(n + a + b - k) // s + 1 for n, k, s, a, b in zip(lengths, size, stride, pads, pads[2:])]
    x = rng.standard_normal((2, 2 * size[0] * size[1], counts[0] * counts[1])).astype("f4")
    node = helper.make_node("Col2Im", ["x", "lengths", "size"], ["y"], strides=stride, dilations=dilation, pads=pads)
    return node, {"x": x}, [("lengths", np.array(lengths)), ("size", np.array(size))]


@pytest.mark.parametrize(("make", "opset"), [(dft, 17), (stft, 17), (suppression, 17), (regions, 17), (windows, 18)])
def test_20_random_settings_give_what_onnxruntime_gives_and_are_written_again(make, opset):
    rng = np.random.default_rng(1)
    for _ in range(20):
        node, given, constants = make(rng)
        model = modelOf(node, given, constants)
        model.opset_import[0].version = opset
        if make is stft:  # its frames are gathered, and so written in other operators
            np.testing.assert_allclose(fromOnnx(model)(*given.values()), expected(model, given)[0], 1e-4, 1e-5)
        else:
            checked(model, given, near=2e-5)


def test_a_deformable_convolution_is_that_of_its_samples():
    """Offsets of whole numbers move a window: what is sampled are elements."""
    rng = np.random.default_rng(2)
    given = {
        "x": rng.standard_normal((1, 2, 5, 5)).astype("f4"),
        "W": rng.standard_normal((3, 2, 2, 2)).astype("f4"),
        "offset": np.zeros((1, 8, 3, 3), np.float32),
    }
    given["offset"][:, ::2] = 1
    node = helper.make_node("DeformConv", list(given), ["y"], kernel_shape=[2, 2])
    model = modelOf(node, given)
    model.opset_import[0].version = 19
    net = fromOnnx(model)
    x, W = given["x"], given["W"]
    wanted = np.zeros((1, 3, 3, 3), np.float32)
    for i in range(3):
        for j in range(3):
            wanted[..., i, j] = np.einsum("nchw,mchw->nm", x[:, :, i + 1 : i + 3, j : j + 2], W)
    np.testing.assert_allclose(net(*given.values()), wanted, 1e-5, 1e-5)
    net.backward(wanted)
    assert all(g.shape == x.shape and np.isfinite(g).all() for g, x in zip(net.grad, given.values()))


def test_numbers_at_random_have_their_range_or_mean_and_stay_the_same_in_eval_mode():
    x = np.zeros((100, 100), np.float32)
    for module, mean, deviation in (
        (RandomLike("uniform", 2, 3), 3.5, 3 / np.sqrt(12)),
        (RandomLike("normal", -1, 2), -1, 2),
    ):
        first, second = module(x), module(x)
        assert abs(first.mean() - mean) < 0.1 and abs(first.std() - deviation) < 0.1
        assert (first != second).any()
        module.evalMode()
        np.testing.assert_array_equal(module(x), module(x))
