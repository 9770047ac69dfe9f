"""Convolutions and transposed convolutions: known values, PyTorch's values, and what they refuse."""

import warnings

import numpy as np
import pytest
from peers import compare, ours, prepared

from puregraph.core.errors import ShapeError
from puregraph.core.shape import asShape
from puregraph.graph import Sequential
from puregraph.modules import BatchNorm, Conv1D, Conv2D, Conv3D, ConvNd, Deconv2D, DeconvNd, GroupNorm

CONV = {1: Conv1D, 2: Conv2D, 3: Conv3D}
DECONV = {1: DeconvNd, 2: Deconv2D, 3: DeconvNd}


def filled(module, W, b=None):
    """The module with these weights."""
    module.calcMode(np.float64)
    module.W.data = np.asarray(W, dtype=np.float64).reshape(module.W.shape)
    if b is not None:
        module.b.data = np.asarray(b, dtype=np.float64)
    return module


def test_a_difference_filter_gives_differences():
    conv = filled(Conv1D(1, 1, 2), [-1, 1], [0.5])
    x = np.array([[[1.0, 4.0, 9.0, 16.0]]])
    y, gx, gW, gb = ours(conv, [x], np.array([[[1.0, 10.0, 100.0]]]))
    assert y.tolist() == [[[3.5, 5.5, 7.5]]]
    assert gx.tolist() == [[[-1, -9, -90, 100]]]
    assert gW.tolist() == [[[1 + 40 + 900, 4 + 90 + 1600]]] and gb.tolist() == [111]


def test_it_is_a_correlation_the_weight_is_not_turned():
    conv = filled(Conv2D(1, 1, 2, useBias=False), [[1, 2], [3, 4]])
    assert conv(np.array([[[[1.0, 0.0], [0.0, 0.0]]]])).tolist() == [[[[1]]]]
    assert conv(np.array([[[[0.0, 0.0], [1.0, 0.0]]]])).tolist() == [[[[3]]]]


def test_a_pair_of_pads_says_before_and_after():
    conv = filled(Conv2D(1, 1, 1, pad=((1, 0), (0, 2)), useBias=False), 1)
    y = conv(np.array([[[[5.0, 7.0]]]]))
    assert y.tolist() == [[[[0, 0, 0, 0], [5, 7, 0, 0]]]]


def test_depthwise_convolution_keeps_maps_apart():
    conv = filled(Conv2D(2, 4, 1, groups=2, useBias=False), [1, 2, 3, 4])
    assert conv(np.array([[[[1.0]], [[10.0]]]])).reshape(-1).tolist() == [1, 2, 30, 40]


def test_a_transposed_convolution_spreads_its_weight():
    deconv = filled(Deconv2D(1, 1, 2, stride=2, postpad=1), [[1, 2], [3, 4]], [0.5])
    y = deconv(np.array([[[[1.0, 10.0]]]]))
    assert y.tolist() == [[[[1.5, 2.5, 10.5, 20.5, 0.5], [3.5, 4.5, 30.5, 40.5, 0.5], [0.5] * 5]]]


@pytest.mark.parametrize("shape", [(2, 3, 7, 8), (1, 3, 8, 9)])
def test_a_transposed_convolution_is_the_adjoint(shape, rng):
    options = {"stride": (2, 3), "pad": ((1, 0), (2, 1)), "dilation": (2, 1), "useBias": False}
    conv = prepared(Conv2D(3, 4, (3, 2), **options), rng)
    x = rng.standard_normal(shape)
    y = conv(x)
    base = [(n - 1) * s + e - p for n, s, e, p in zip(y.shape[2:], (2, 3), (5, 2), (1, 3))]
    postpad = tuple(length - b for length, b in zip(shape[2:], base))
    deconv = filled(Deconv2D(4, 3, (3, 2), postpad=postpad, **options), conv.W.data)
    g = rng.standard_normal(y.shape)
    assert deconv.dataShapeFrom(y.shape) == shape
    assert np.isclose((y * g).sum(), (x * deconv(g)).sum(), rtol=1e-12)


def test_shapes_of_lenet():
    first, second = Conv2D(1, 6, 5, pad=2), Conv2D(6, 16, 5)
    assert first.dataShapeFrom((32, 1, 28, 28)) == (32, 6, 28, 28)
    assert second.dataShapeFrom((32, 6, 14, 14)) == (32, 16, 10, 10)
    assert Conv2D(3, 64, 7, stride=2, pad=3).dataShapeFrom((1, 3, 224, 224)) == (1, 64, 112, 112)


def test_shapes_of_symbols():
    x = asShape(("N", 3, "H", "W"))
    assert Conv2D(3, 8, 3, stride=2, pad=1).dataShapeFrom(x) == ("N", 8, "(H - 1)//2 + 1", "(W - 1)//2 + 1")
    assert Conv2D(3, 8, 5, pad="same").dataShapeFrom(x) == ("N", 8, "H", "W")
    assert Deconv2D(3, 8, 4, stride=2, pad=1).dataShapeFrom(x) == ("N", 8, "2*H", "2*W")


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_same_keeps_the_length(size, dilation, rng):
    x = rng.standard_normal((2, 1, 6)).astype("f")
    assert Conv1D(1, 2, size, pad="same", dilation=dilation)(x).shape == (2, 2, 6)
    assert DeconvNd(1, 2, (size,), pad="same", dilation=dilation)(x).shape == (2, 2, 6)


def test_same_puts_an_odd_zero_after():
    assert Conv2D(1, 1, (2, 3), pad="same").pad == ((0, 1), (1, 1))
    assert Conv2D(1, 1, (4, 2), pad="same", dilation=(1, 3)).pad == ((1, 2), (1, 2))


def test_the_rank_is_the_number_of_sizes():
    assert ConvNd(2, 3, (2, 2, 2, 2)).dataShapeFrom((1, 2, 3, 4, 5, 6)) == (1, 3, 2, 3, 4, 5)
    with pytest.raises(ShapeError, match="the size of ConvNd for each axis"):
        ConvNd(2, 3, 2)


def test_operations_are_two_for_each_product_and_sum():
    assert Conv2D(3, 8, 3, useBias=False).flopsFrom((2, 3, 5, 5)) == 2 * (3 * 9) * (2 * 8 * 3 * 3)
    assert Conv2D(4, 8, 3, groups=4).flopsFrom((1, 4, 5, 5)) == (2 * 9 + 1) * (8 * 3 * 3)
    assert Deconv2D(3, 8, 3, useBias=False).flopsFrom((2, 3, 5, 5)) == 2 * (2 * 3 * 5 * 5) * (8 * 9)
    assert Conv2D(3, 8, 3, useBias=False).flopsFrom(asShape(("N", 3, 5, 5))) == "3888*N"


def test_weights_start_by_the_scheme():
    W = Conv2D(8, 64, 3, initscheme="he", groups=2).W.data
    assert W.shape == (64, 4, 3, 3) and abs(W.std() / np.sqrt(2 / 36) - 1) < 0.05
    assert not Conv2D(2, 2, 3).b.data.any()
    assert np.abs(Conv2D(2, 2, 3, initscheme="uniform", wscale=0.1).W.data).max() <= 0.1


@pytest.mark.parametrize(
    "shape, words",
    [
        ((3, 8, 8), r"\(n, 3, height, width\), got \(3, 8, 8\); .* give a batch"),
        ((1, 4, 8, 8), r"wanted \(n, 3, height, width\), got \(1, 4, 8, 8\)"),
        ((1, 8, 8, 3), "channels-last"),
        ((1, "C", 8, 8), r"got \(1, C, 8, 8\)"),
        ((1, 3, 8, 2), r"wanted a width of at least 3 .* got \(1, 3, 8, 2\); the window covers 5, the padding 2"),
    ],
)
def test_wrong_inputs_are_refused_with_a_hint(shape, words):
    with pytest.raises(ShapeError, match=words):
        Conv2D(3, 4, 3, pad=1, dilation=2).dataShapeFrom(asShape(shape))


LAST = [(4, 9, 8, 3), (4, 8, 8, 32), ("N", "H", "W", 16), (2, 5, 5, 5, 16), ("N", "L", 8)]
FIRST = [(8, 16, 32, 32), (4, 16, 30, 32), (4, 16, 32), (2, 16, 3, 3), (2, 8, 8, 16, 16)]


@pytest.mark.parametrize("shape", [*LAST, *FIRST], ids=str)
def test_only_data_with_channels_last_is_to_be_transposed(shape):
    maps, shape = shape[-1], asShape(shape)
    wanted = "transpose the data from channels-last" if shape in map(asShape, LAST) else "expected {} channels"
    modules = [BatchNorm(maps), GroupNorm(1, maps), ConvNd(maps, 2, (1,) * (len(shape) - 2))]
    for module in modules:
        with pytest.raises(ShapeError, match=wanted.format(maps)):
            module.dataShapeFrom(shape)


def test_a_transposed_convolution_of_which_nothing_is_left_is_refused():
    deconv = Deconv2D(1, 1, 3, pad=3)
    with pytest.raises(ShapeError, match="wanted a height of at least 5, got .* the padding takes all"):
        deconv.dataShapeFrom((1, 1, 4, 9))
    assert deconv.dataShapeFrom((1, 1, 5, 9)) == (1, 1, 1, 5)
    with pytest.raises(ShapeError, match=r"wanted \(n, 1, height, width\)"):
        deconv.dataShapeFrom((1, 2, 5, 9))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"inmaps": 3, "groups": 2}, r"inmaps and outmaps in 2 groups, got \(3, 4\); groups=2 must divide both"),
        ({"groups": 0}, "groups as a whole number of at least 1, got 0"),
        ({"outmaps": 2.0}, "outmaps as a whole number of at least 1, got 2.0"),
        ({"size": (3, 3, 3)}, r"size as .* a tuple of 2 of them, got \(3, 3, 3\)"),
        ({"stride": 0}, "stride as a whole number of at least 1"),
        ({"dilation": (1, 1.5)}, "dilation as a whole number"),
        ({"pad": 0.5}, "pad as a whole number"),
        ({"pad": "full"}, "pad as .* got 'full'"),
    ],
)
def test_wrong_options_are_refused(options, words):
    given = {"inmaps": 4, "outmaps": 4, "size": 3, **options}
    for kind in (Conv2D, Deconv2D):
        with pytest.raises(ShapeError, match=words):
            kind(**given)


def test_two_numbers_for_one_axis_are_refused_with_the_right_form():
    with pytest.raises(ShapeError, match=r"write \(\(before, after\),\)"):
        Conv1D(1, 1, 3, pad=(1, 2))


def test_postpad_stays_below_the_stride_or_the_dilation():
    with pytest.raises(ShapeError, match=r"postpad below the stride \(2, 2\) or the dilation \(1, 1\), got \(2, 2\)"):
        Deconv2D(1, 1, 3, stride=2, postpad=2)


def options(rng, rank):
    """Random options of a convolution, and an input that fits them."""
    groups = int(rng.choice([1, 2, 3]))
    inmaps, outmaps = (groups * int(rng.integers(1, 4)) for _ in range(2))
    size, stride, dilation = (tuple(map(int, rng.integers(1, high, rank))) for high in (4, 4, 3))
    pad = tuple(tuple(map(int, rng.integers(0, 3, 2))) for _ in range(rank))
    least = [max(1, d * (k - 1) + 1 - sum(p)) for k, d, p in zip(size, dilation, pad)]
    x = rng.standard_normal((int(rng.integers(1, 4)), inmaps, *(m + int(rng.integers(0, 6)) for m in least)))
    return inmaps, outmaps, {"size": size, "stride": stride, "pad": pad, "dilation": dilation, "groups": groups}, x


@pytest.mark.peers
@pytest.mark.parametrize("case", range(36))
def test_convolution_is_pytorch_s(case, rng):
    import torch.nn.functional as F

    rank = case % 3 + 1
    inmaps, outmaps, given, x = options(rng, rank)
    conv = CONV[rank](inmaps, outmaps, useBias=case % 2 == 0, **given)

    def rule(x, W, b=None):
        x = F.pad(x, [side for both in reversed(conv.pad) for side in both])
        return getattr(F, f"conv{rank}d")(x, W, b, conv.stride, 0, conv.dilation, conv.groups)

    compare(conv, rule, rng, x)


@pytest.mark.peers
@pytest.mark.parametrize("maps, shape", [(8, (2, 8, 9, 7)), (5, (1, 5, 16, 16))])
def test_depthwise_and_pointwise_convolution_are_pytorch_s(maps, shape, rng):
    import torch.nn.functional as F

    x = rng.standard_normal(shape)
    depth = Conv2D(maps, maps, 3, pad=1, groups=maps)
    compare(depth, lambda x, W, b: F.conv2d(x, W, b, padding=1, groups=maps), rng, x)
    compare(Conv2D(maps, 3, 1), lambda x, W, b: F.conv2d(x, W, b), rng, x)


@pytest.mark.peers
@pytest.mark.parametrize("size", [2, 3, 4])
def test_same_is_pytorch_s(size, rng):
    import torch.nn.functional as F

    def rule(x, W, b):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch says that an even size makes a copy
            return F.conv2d(x, W, b, padding="same", dilation=2)

    compare(Conv2D(2, 3, size, pad="same", dilation=2), rule, rng, rng.standard_normal((2, 2, 5, 6)))


@pytest.mark.peers
@pytest.mark.parametrize("case", range(36))
def test_transposed_convolution_is_pytorch_s(case, rng):
    import torch.nn.functional as F

    rank = case % 3 + 1
    inmaps, outmaps, given, _ = options(rng, rank)
    post = tuple(int(rng.integers(0, max(both))) for both in zip(given["stride"], given["dilation"]))
    deconv = DECONV[rank](inmaps, outmaps, postpad=post, useBias=case % 2 == 0, **given)
    x = rng.standard_normal((2, inmaps, *map(int, rng.integers(5, 8, rank))))

    def rule(x, W, b=None):
        extend = [side for p in reversed(post) for side in (0, p)]
        transposed = getattr(F, f"conv_transpose{rank}d")
        y = F.pad(transposed(x, W, None, deconv.stride, 0, 0, deconv.groups, deconv.dilation), extend)
        cut = [slice(before, length - after) for (before, after), length in zip(deconv.pad, y.shape[2:])]
        y = y[(..., *cut)]
        return y if b is None else y + b.reshape(-1, *[1] * rank)

    compare(deconv, rule, rng, x)


@pytest.mark.peers
def test_postpad_is_pytorch_s_output_padding(rng):
    import torch.nn.functional as F

    deconv = Deconv2D(4, 6, (4, 3), stride=(2, 3), pad=(1, 2), postpad=(1, 2), groups=2)
    compare(
        deconv,
        lambda x, W, b: F.conv_transpose2d(x, W, b, (2, 3), (1, 2), (1, 2), 2),
        rng,
        rng.standard_normal((3, 4, 5, 4)),
    )


@pytest.mark.peers
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("pad", [0, 1, 3])
@pytest.mark.parametrize("post", [1, 3, 4])
def test_postpad_beyond_the_stride_is_pytorch_s_eager_and_compiled(post, pad, stride, rng):
    import torch.nn.functional as F

    given = {"stride": stride, "dilation": 5, "pad": pad, "postpad": post}
    deconv, x = Deconv2D(2, 3, (3, 2), **given), rng.standard_normal((2, 2, 4, 5))
    compare(deconv, lambda x, W, b: F.conv_transpose2d(x, W, b, stride, pad, post, dilation=5), rng, x)
    net = Sequential(deconv).calcMode(np.float64)
    assert np.allclose(net.compile(x.shape).run(x), net(x), rtol=1e-12, atol=1e-12)
    assert net.dataShapeFrom(("N", 2, 4, 5)) == ("N", *net(x).shape[1:])
