"""Upsample2D, GroupNorm, Position, PairDot, HardSwish and the transposed Linear: known values, and PyTorch's."""

import numpy as np
import pytest
from peers import compare

from puregraph.core.errors import ShapeError
from puregraph.core.shape import asShape
from puregraph.graph.sequential import Sequential
from puregraph.modules import Embedder, GroupNorm, HardSwish, LayerNorm, Linear, PairDot, Position, Upsample2D


def test_nearest_repeats_and_its_gradient_adds_up():
    up = Upsample2D((2, 3))
    y = up(np.array([[1.0, 2.0]]).reshape(1, 1, 1, 2))
    assert y[0, 0].tolist() == [[1, 1, 1, 2, 2, 2]] * 2
    up.backward(np.ones_like(y))
    assert up.grad[0, 0].tolist() == [[6, 6]]
    assert up.dataShapeFrom(asShape(("N", 3, "H", "W"))) == asShape(("N", 3, "2*H", "3*W"))


def test_linear_lies_between():
    up = Upsample2D((1, 2), mode="linear")
    assert up(np.array([0.0, 4.0, 8.0]).reshape(1, 1, 1, 3))[0, 0, 0].tolist() == [0, 1, 3, 5, 7, 8]
    assert Upsample2D(3, mode="linear")(np.full((1, 1, 2, 2), 7.0)).tolist() == np.full((1, 1, 6, 6), 7.0).tolist()


def test_what_upsampling_does_not_know_is_refused():
    with pytest.raises(ValueError, match="wanted mode as one of 'nearest', 'linear', got 'cubic'"):
        Upsample2D(mode="cubic")
    with pytest.raises(ShapeError, match="scale as a whole number of at least 1"):
        Upsample2D(0)
    with pytest.raises(ShapeError, match=r"\(n, c, height, width\)|\(n, c, h, w\)"):
        Upsample2D().dataShapeFrom((2, 3, 4))


@pytest.mark.peers
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scale", [2, (3, 1), (4, 5)])
def test_upsampling_is_that_of_torch(mode, scale, rng):
    import torch

    name = {"nearest": "nearest", "linear": "bilinear"}[mode]
    options = {} if mode == "nearest" else {"align_corners": False}
    factor = scale if isinstance(scale, tuple) else (scale, scale)
    compare(
        Upsample2D(scale, mode),
        lambda x: torch.nn.functional.interpolate(x, scale_factor=tuple(map(float, factor)), mode=name, **options),
        rng,
        rng.standard_normal((2, 3, 4, 5)),
    )


@pytest.mark.peers
@pytest.mark.parametrize(("groups", "shape"), [(1, (3, 4)), (2, (2, 4, 5)), (4, (2, 4, 3, 2))])
def test_group_normalisation_is_that_of_torch(groups, shape, rng):
    import torch

    norm = GroupNorm(groups, 4, epsilon=1e-3)
    rule = lambda x, scale, bias: torch.nn.functional.group_norm(x, groups, scale, bias, 1e-3)  # noqa: E731
    compare(norm, rule, rng, rng.standard_normal(shape))


def test_one_group_is_a_layer_norm(rng):
    x = rng.standard_normal((2, 3, 4, 5))
    assert np.allclose(GroupNorm(1, 3, affine=False)(x), LayerNorm((3, 4, 5), affine=False)(x), atol=1e-12)
    y = GroupNorm(3, 3, affine=False)(x)
    assert np.allclose(y.mean(axis=(2, 3)), 0, atol=1e-12) and np.allclose(y.var(axis=(2, 3)), 1, atol=1e-4)


def test_groups_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match="groups=3 must divide both"):
        GroupNorm(3, 4)
    with pytest.raises(ShapeError, match=r"wanted \(n, 4, \*spatial\), got \(2, 3, 5\)"):
        GroupNorm(2, 4).dataShapeFrom((2, 3, 5))


@pytest.mark.peers
def test_hard_swish_is_that_of_torch(rng):
    import torch

    compare(HardSwish(), torch.nn.functional.hardswish, rng, 4 * rng.standard_normal((4, 50)))


def test_positions_are_added_and_get_what_stood_there(rng):
    place = Position(5, 3).calcMode("float64")
    x, g = rng.standard_normal((4, 2, 3)), rng.standard_normal((4, 2, 3))
    assert np.array_equal(place(x), x + place.W.data[:2])
    place.backward(g)
    assert np.array_equal(place.grad, g)
    assert np.allclose(place.W.grad[:2], g.sum(axis=0)) and not place.W.grad[2:].any()
    assert place.dataShapeFrom(asShape(("N", "T", 3))) == ("N", "T", 3)
    with pytest.raises(ShapeError, match=r"wanted at most 5 positions, got \(4, 6, 3\); give a larger length"):
        place.dataShapeFrom((4, 6, 3))


def test_pairs_are_in_the_order_of_the_rows_below_the_diagonal(rng):
    xs = [rng.standard_normal((4, 3)) for _ in range(4)]
    y = PairDot()(*xs)
    pairs = [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
    assert np.allclose(y, np.stack([(xs[i] * xs[j]).sum(axis=1) for i, j in pairs], axis=1))
    with pytest.raises(ShapeError, match="wanted at least two inputs"):
        PairDot().dataShapeFrom((2, 3))
    with pytest.raises(ShapeError, match=r"inputs of one shape \(n, d\)"):
        PairDot().dataShapeFrom((2, 3), (2, 4))


# A transposed Linear --------------------------------------------------------------------------------------------------


def test_a_transposed_linear_is_a_linear_with_its_weight_turned(rng):
    plain, turned = Linear(3, 4).calcMode("float64"), Linear(3, 4, transpose=True).calcMode("float64")
    turned.W.data = plain.W.data.T.copy()
    x, g = rng.standard_normal((2, 5, 3)), rng.standard_normal((2, 5, 4))
    assert turned.W.shape == (4, 3) and np.allclose(turned(x), plain(x), rtol=1e-14)
    for each in (plain, turned):
        each.backward(g)
    assert np.allclose(turned.grad, plain.grad, rtol=1e-13)
    assert np.allclose(turned.W.grad.T, plain.W.grad, rtol=1e-13)
    assert turned.flopsFrom((2, 5, 3)) == plain.flopsFrom((2, 5, 3))


def test_an_output_layer_may_share_the_table_of_an_embedder(rng, tmp_path):
    words, out = Embedder(6, 3, name="words"), Linear(3, 6, useBias=False, transpose=True, name="out")
    out.W = words.W
    net = Sequential(words, out).calcMode("float64")
    assert net.numOfParams() == 18 and net.ties == {"out.W": "words.W"}
    x = np.array([[1, 5, 1]])
    y, g = net(x), rng.standard_normal((1, 3, 6))
    W = words.W.data
    assert np.allclose(y, W[x] @ W.T)
    net.backward(g)
    wanted = np.einsum("ntv,ntd->vd", g, W[x])
    np.add.at(wanted, x, g @ W)
    assert np.allclose(words.W.grad, wanted)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("insize, outsize", [(0, 2), (2, 0), (0, 0)])
def test_a_linear_layer_of_no_inputs_or_no_outputs_goes_backward(insize, outsize, transpose):
    module = Linear(insize, outsize, transpose=transpose)
    x = np.ones((3, 4, insize), np.float32)
    y = module(x)
    module.backward(np.ones_like(y))
    assert y.shape == (3, 4, outsize)
    assert module.grad.shape == x.shape and not module.grad.any()
    assert module.W.grad.shape == module.W.shape
    assert module.b.grad.tolist() == [12] * outsize
