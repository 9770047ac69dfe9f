"""Windows with a ceiling, dilation, any padding, a divisor, a mask, weights as inputs: PyTorch's values and gradients."""

import numpy as np
import pytest
from peers import agree, compare, ours

from puregraph import checkModule, load
from puregraph.core.errors import ShapeError
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules import (
    AvgPool3D,
    AvgPoolNd,
    Conv2D,
    ConvNd,
    Convolve,
    DeconvNd,
    Deconvolve,
    LpPoolNd,
    MaxPool2D,
    MaxPool3D,
    MaxPoolNd,
    MaxUnpool,
    Pad,
)
from puregraph.serialize.blueprintreader import fromBlueprint
from puregraph.serialize.blueprintwriter import toBlueprint

SEEDS = range(20)


def drawn(seed, isPool=True):
    """A generator, rank, sizes, strides, one padding, dilation, and an input that fits."""
    rng = np.random.default_rng(seed)
    rank = 1 + seed % 3
    size, stride, dilation = (tuple(int(n) for n in rng.integers(1, 4, rank)) for _ in range(3))
    dilation = dilation if seed % 2 else (1,) * rank
    pad = tuple(int(rng.integers(0, k // 2 + 1 if isPool else 3)) for k in size)
    lengths = [d * (k - 1) + int(n) for k, d, n in zip(size, dilation, rng.integers(1, 6, rank))]
    return rng, rank, size, stride, pad, dilation, lengths


@pytest.mark.peers
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ceil", [False, True])
def test_max_pools_are_torchs(seed, ceil):
    import torch.nn.functional as F

    rng, rank, size, stride, pad, dilation, lengths = drawn(seed)
    x = rng.permutation(2 * 3 * int(np.prod(lengths))).reshape(2, 3, *lengths).astype(np.float64)
    rule = getattr(F, f"max_pool{rank}d")
    options = {"padding": pad, "dilation": dilation, "ceil_mode": ceil}
    try:
        wanted = rule(__import__("torch").from_numpy(x), size, stride, return_indices=True, **options)
    except RuntimeError:  # of a padding above half of the size, or a window that does not fit
        with pytest.raises(ShapeError):
            MaxPoolNd(size, stride, pad, dilation=dilation, ceil=ceil).dataShapeFrom(x.shape)
        return
    pool = MaxPoolNd(size, stride, pad, dilation=dilation, ceil=ceil, useMask=True)
    y, mask = pool(x)
    planes = (np.arange(6) * int(np.prod(lengths))).reshape(2, 3, *(1,) * rank)
    np.testing.assert_array_equal(y, wanted[0].numpy())
    np.testing.assert_array_equal(mask, wanted[1].numpy() + planes)
    compare(
        MaxPoolNd(size, stride, pad, dilation=dilation, ceil=ceil), lambda x: rule(x, size, stride, **options), rng, x
    )


@pytest.mark.peers
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("includePad", [False, True])
@pytest.mark.parametrize("ceil", [False, True])
def test_average_pools_are_torchs(seed, ceil, includePad):
    import torch.nn.functional as F

    rng, rank, size, stride, pad, _, lengths = drawn(2 * seed)
    x = rng.standard_normal((2, 3, *lengths))
    divisor = int(rng.integers(1, 9)) if rank > 1 and seed % 2 else None
    options = {"padding": pad, "ceil_mode": ceil, "count_include_pad": includePad}
    options |= {} if divisor is None else {"divisor_override": divisor}
    pool = AvgPoolNd(size, stride, pad, includePad, ceil=ceil, divisor=divisor)
    compare(pool, lambda x: getattr(F, f"avg_pool{rank}d")(x, size, stride, **options), rng, x)


@pytest.mark.peers
@pytest.mark.parametrize("seed", SEEDS)
def test_average_and_norm_pools_with_dilation_are_sums_of_strided_windows(seed):
    rng, rank, size, stride, pad, dilation, lengths = drawn(seed)
    x = rng.standard_normal((2, 3, *lengths))

    def windows(x):
        import torch.nn.functional as F

        x = F.pad(x, [side for p in pad[::-1] for side in (p, p)])
        for axis, (k, s, d) in enumerate(zip(size, stride, dilation), 2):
            x = x.unfold(axis, d * (k - 1) + 1, s)[..., ::d]
        return x.reshape(*x.shape[: 2 + rank], -1)

    compare(AvgPoolNd(size, stride, pad, dilation=dilation), lambda x: windows(x).mean(-1), rng, x)
    for p in (1, 2, 3):
        pool = LpPoolNd(p, size, stride, pad, dilation=dilation)
        compare(pool, lambda x, p=p: (windows(x).abs() ** p).sum(-1) ** (1 / p), rng, x)


def test_a_mask_leads_back_to_where_the_maxima_were():
    x = np.random.default_rng(1).permutation(120).reshape(2, 3, 4, 5).astype(np.float32)
    y, mask = MaxPool2D(2, useMask=True)(x)
    back = MaxUnpool((4, 5), (4, 5))(y, mask)
    assert np.count_nonzero(back) in (y.size, y.size - 1) and np.array_equal(back[back != 0], x[back != 0])


def test_integers_have_a_maximum_too():
    x = np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4)
    y = MaxPool2D(2)(x)
    assert y.dtype == np.uint8 and y.tolist() == [[[[5, 7], [13, 15]]]]


def torchConvolve(x, W, b, stride, pad, dilation, groups):
    """PyTorch's, after a padding of its own for each side."""
    import torch.nn.functional as F

    x = F.pad(x, [side for both in pad[::-1] for side in both])
    return getattr(F, f"conv{len(pad)}d")(x, W, b, stride, 0, dilation, groups)


@pytest.mark.peers
@pytest.mark.parametrize("seed", SEEDS)
def test_convolutions_with_any_padding_and_weights_as_inputs_are_torchs(seed):
    rng, rank, size, stride, _, dilation, lengths = drawn(seed, isPool=False)
    pad = tuple(tuple(int(n) for n in rng.integers(-2, 3, 2)) for _ in range(rank))
    lengths = [n + 4 for n in lengths]
    groups = 1 + seed % 2
    x, W, b = (
        rng.standard_normal((2, 4, *lengths)),
        rng.standard_normal((6, 4 // groups, *size)),
        rng.standard_normal(6),
    )
    given = (stride, pad, dilation, groups)
    compare(Convolve(*given), lambda x, W, b: torchConvolve(x, W, b, *given), rng, x, W, b)
    compare(Convolve(*given), lambda x, W: torchConvolve(x, W, None, *given), rng, x, W)
    conv = ConvNd(4, 6, size, stride, pad, dilation, groups=groups)
    compare(conv, lambda x, W, b: torchConvolve(x, W, b, *given), rng, x)


@pytest.mark.peers
@pytest.mark.parametrize("seed", SEEDS)
def test_same_padding_is_what_it_stands_for(seed):
    rng, rank, size, stride, _, dilation, lengths = drawn(seed)
    totals = [max(0, (-(-n // s) - 1) * s + d * (k - 1) + 1 - n) for n, k, s, d in zip(lengths, size, stride, dilation)]
    pad = tuple((total // 2, total - total // 2) for total in totals)
    x, W = rng.standard_normal((2, 2, *lengths)), rng.standard_normal((3, 2, *size))
    assert MaxPoolNd(size, stride, "same", dilation=dilation).dataShapeFrom(x.shape)[2:] == tuple(
        -(-n // s) for n, s in zip(lengths, stride)
    )
    compare(
        Convolve(stride, "same", dilation), lambda x, W: torchConvolve(x, W, None, stride, pad, dilation, 1), rng, x, W
    )
    for make in (MaxPoolNd, AvgPoolNd):
        same, plain = make(size, stride, "same", dilation=dilation), make(size, stride, pad, dilation=dilation)
        grad = rng.standard_normal(same.dataShapeFrom(x.shape))
        agree(ours(same, [x], grad), ours(plain, [x], grad))


def test_same_padding_with_a_stride_takes_symbols():
    assert Conv2D(3, 4, 3, stride=2, pad="same").dataShapeFrom(("N", 3, "H", 7)) == ("N", 4, "(H - 1)//2 + 1", 4)


@pytest.mark.peers
@pytest.mark.parametrize("seed", SEEDS)
def test_transposed_convolutions_with_weights_as_inputs_are_torchs(seed):
    import torch.nn.functional as F

    rng, rank, size, stride, _, dilation, lengths = drawn(seed)
    post = tuple(int(rng.integers(0, max(s, d))) for s, d in zip(stride, dilation))
    pad = tuple(int(rng.integers(0, (d * (k - 1) + 1) // 2 + 1)) for k, d in zip(size, dilation))
    groups = 1 + seed % 2
    x, W, b = rng.standard_normal((2, 4, *lengths)), rng.standard_normal((4, 3, *size)), rng.standard_normal(3 * groups)
    rule = getattr(F, f"conv_transpose{rank}d")
    module = Deconvolve(stride, pad, dilation, post, groups)
    try:
        module.dataShapeFrom(x.shape, W.shape, b.shape)
    except ShapeError:
        return
    compare(module, lambda x, W, b: rule(x, W, b, stride, pad, post, groups, dilation), rng, x, W, b)


@pytest.mark.parametrize("seed", SEEDS)
def test_transposed_convolutions_of_any_padding_are_cut_or_longer(seed):
    rng, rank, size, stride, _, dilation, lengths = drawn(seed)
    pad = tuple(tuple(int(n) for n in rng.integers(-3, 2, 2)) for _ in range(rank))
    post = tuple(int(n) for n in rng.integers(0, 6, rank))
    x, W = rng.standard_normal((2, 2, *[n + 2 for n in lengths])), rng.standard_normal((2, 3, *size))
    full = Deconvolve(stride, 0, dilation)(x, W)
    sides = [(-before, post - after) for (before, after), post in zip(pad, post)]
    around = [(max(0, a), max(0, b)) for a, b in sides]
    cut = tuple(slice(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(full.shape[2:], sides))
    wanted = np.pad(full[(..., *cut)], [(0, 0), (0, 0), *around])
    np.testing.assert_allclose(Deconvolve(stride, pad, dilation, post)(x, W), wanted, atol=1e-12)


def test_a_transposed_convolution_with_same_padding_multiplies_lengths_by_the_stride():
    for size, stride in ((3, 2), (2, 3), (5, 1), (4, 4)):
        assert DeconvNd(1, 1, (size,), stride, "same").dataShapeFrom((1, 1, 5)) == (1, 1, 5 * stride)


@pytest.mark.parametrize("pad", [((-1, 2), (0, -1), (1, 0), (0, 0)), ((1, -2), (-1, -1), (0, 0), (2, 1))])
def test_a_convolution_over_four_axes_cuts_negative_sides_off(pad):
    checkModule(ConvNd(2, 3, (2, 2, 1, 2), (2, 1, 1, 1), pad), [(2, 2, 5, 4, 4, 3)])


@pytest.mark.parametrize("seed", range(6))
def test_a_compiled_step_has_the_values_of_the_rules(seed):
    rng, rank, size, stride, _, dilation, lengths = drawn(seed, isPool=False)
    pad = tuple(tuple(int(n) for n in rng.integers(-1, 2, 2)) for _ in range(rank))
    x = rng.standard_normal((3, 4, *[n + 3 for n in lengths])).astype(np.float32)
    for module in (
        ConvNd(4, 8, size, stride, pad, dilation),
        DeconvNd(4, 8, size, stride, "same", dilation),
        ConvNd(4, 8, size, stride, "same", dilation),
        MaxPoolNd(size, stride, ceil=True, dilation=dilation, useMask=True),
        AvgPoolNd(size, stride, ceil=True, dilation=dilation),
    ):
        checkModule(module, [(2, *x.shape[1:])])
        node = Input(name="x").node()
        net = Graph(node, module.node(node, name="it"))
        wanted, got = net(x), net.compile(x.shape).run(x)
        for a, b in zip(*[y if isinstance(y, (list, tuple)) else [y] for y in (got, wanted)], strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


FORMER = {
    "puregraph:onnx.PoolMax": (
        MaxPoolNd((2,), (2,), ((0, 1),), dilation=(1,), ceil=True, useMask=True),
        [[2], [2], [[0, 1]], [1]],
        {"isOpen": True},
    ),
    "puregraph:onnx.PadAll": (Pad(((1, 2), (-1, 0)), "edge", axes=(0, -1)), [[0, -1], "edge", 0.0, [1, -1, 2, 0]], {}),
    "puregraph:onnx.PoolMean": (
        AvgPoolNd((2,), (2,), ((0, 1),), dilation=(2,), ceil=True, includePad=False),
        [[2], [2], [[0, 1]], [2], True],
        {},
    ),
    "puregraph:onnx.PoolNorm": (LpPoolNd(3, (2,), (1,), ((1, 0),)), [3, [2], [1], [[1, 0]], [1], False], {}),
}


@pytest.mark.parametrize("former", FORMER)
def test_windows_of_older_files_are_made_of_the_arguments_that_they_have(former):
    module, args, kwargs = FORMER[former]
    x = Input(name="x").node()
    blueprint = toBlueprint(Graph(x, module.node(x, name="it")))
    row = next(row for row in blueprint["modules"] if row["class"].endswith(("Pad", "PoolNd")))
    row |= {"class": former, "args": args, "kwargs": kwargs}
    again = fromBlueprint(blueprint)["it"]
    data = np.random.default_rng(1).standard_normal((1, 2, 7))
    assert type(again) is type(module)
    for a, b in zip(again(data), module(data), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.peers
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "mode, theirs", [("constant", "constant"), ("reflect", "reflect"), ("edge", "replicate"), ("wrap", "circular")]
)
def test_pads_with_negative_sides_are_torchs(seed, mode, theirs):
    import torch.nn.functional as F

    rng = np.random.default_rng(seed)
    rank = 1 + seed % 3
    pairs = tuple(tuple(int(n) for n in rng.integers(-2, 3, 2)) for _ in range(rank))
    x = rng.standard_normal((2, 3, *(int(n) for n in rng.integers(7, 9, rank))))

    def rule(x):
        flat = [side for both in pairs[::-1] for side in both]
        return F.pad(F.pad(x, [min(0, n) for n in flat]), [max(0, n) for n in flat], mode=theirs)

    compare(Pad(pairs, mode), rule, rng, x)
    compare(Pad(pairs[::-1], mode, axes=tuple(range(-1, -1 - rank, -1))), rule, rng, x)


def test_pools_over_three_axes_have_names(tmp_path):
    x = Input(name="x").node()
    net = Graph(x, [MaxPool3D(2, name="a").node(x), AvgPool3D(2, name="b").node(x)])
    net.save(tmp_path / "net.h5")
    data = np.arange(64.0, dtype=np.float32).reshape(1, 1, 4, 4, 4)
    for a, b in zip(load(tmp_path / "net.h5")(data), net(data)):
        np.testing.assert_array_equal(a, b)


def test_options_that_fit_nothing_are_refused():
    with pytest.raises(ShapeError, match=r"every side of pad below the size \(3,\), got 3"):
        MaxPoolNd((2,), pad=3, dilation=2)
    with pytest.raises(ShapeError, match="useMask=True for a mask of columns"):
        MaxPoolNd((2,), columns=True)
    with pytest.raises(ShapeError, match="a length of at least 4"):
        MaxPoolNd((5,), 2, ceil=True).dataShapeFrom((1, 1, 3))
    with pytest.raises(ShapeError, match="stride as a whole number of at least 1"):
        Convolve(stride=0)
    with pytest.raises(ShapeError, match="postpad as a whole number of at least 0"):
        Deconvolve(postpad=-1)
