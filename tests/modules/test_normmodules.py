"""Normalisation over the batch and over each sample: known values, running statistics, PyTorch's values."""

import numpy as np
import pytest
from peers import CLOSE, agree, compare, ours, prepared

from puregraph.core.errors import GraphWarning, ShapeError
from puregraph.core.shape import asShape
from puregraph.modules import BatchNorm, LayerNorm


def test_a_batch_of_two_becomes_plus_and_minus_one():
    y = BatchNorm(1, epsilon=0)(np.array([[3.0], [7.0]]))
    assert y.tolist() == [[-1], [1]]


def test_running_statistics_follow_the_batches():
    norm = BatchNorm(1, momentum=0.25).calcMode(np.float64)
    norm(np.array([[3.0], [7.0]]))  # mean 5, unbiased variance 8
    assert norm.mean.data == [1.25] and norm.var.data == [0.75 + 2] and norm.count.data == 1
    norm(np.array([[0.0], [2.0]]))  # mean 1, unbiased variance 2
    assert norm.mean.data == [1.1875] and norm.var.data == [2.5625] and norm.count.data == 2


def test_without_momentum_they_are_averages(rng):
    norm = BatchNorm(2, momentum=None).calcMode(np.float64)
    batches = rng.standard_normal((4, 5, 2, 3))
    for x in batches:
        norm(x)
    assert np.allclose(norm.mean.data, batches.mean(axis=(0, 1, 3)), rtol=1e-12)
    assert np.allclose(norm.var.data, np.mean([x.var(axis=(0, 2), ddof=1) for x in batches], axis=0), rtol=1e-12)


def test_evaluation_uses_the_running_statistics_and_one_sample_is_enough():
    norm = BatchNorm(2, epsilon=0).calcMode(np.float64).evalMode()
    norm.mean.data, norm.var.data = np.array([1.0, 2.0]), np.array([4.0, 16.0])
    norm.scale.data, norm.bias.data = np.array([1.0, 10.0]), np.array([0.0, 5.0])
    assert norm(np.array([[3.0, 6.0]])).tolist() == [[1, 15]]
    assert norm.count.data == 0 and norm.mean.data.tolist() == [1, 2]


@pytest.mark.parametrize("shape", [(1, 3), (1, 3, 1, 1), (0, 3)])
def test_one_value_a_map_cannot_be_normalised_in_training(shape):
    norm = BatchNorm(3)
    words = r"at least two values of each map in trainMode, got .*; give a larger batch, .* or use evalMode\(\)"
    with pytest.raises(ShapeError, match=words):
        norm.dataShapeFrom(shape)
    with pytest.raises(ShapeError, match=words):
        norm(np.zeros(shape, dtype="f"))
    assert norm.count.data == 0
    assert norm.evalMode()(np.zeros(shape, dtype="f")).shape == shape


def test_one_sample_with_several_places_is_enough():
    assert BatchNorm(1, epsilon=0)(np.array([[[1.0, 3.0]]])).tolist() == [[[-1, 1]]]


def test_a_large_mean_does_not_drown_the_variance():
    x = np.array([[10001.0], [10002.0], [10003.0]], dtype="f")
    assert np.allclose(BatchNorm(1, epsilon=0)(x)[:, 0], [-np.sqrt(1.5), 0, np.sqrt(1.5)], rtol=1e-4)


def test_statistics_of_halves_are_kept_in_float32():
    norm = BatchNorm(1).calcMode(np.float16)
    x = np.array([[0.0], [600.0]], dtype=np.float16)  # the variance, 90000, is no float16
    y, center, factor = norm.updateData(x, *norm.ruleValues())
    assert y.dtype == np.float16 and y.tolist() == [[-1], [1]]
    assert center.dtype == factor.dtype == norm.mean.data.dtype == norm.var.data.dtype == np.float32
    layer = LayerNorm(2).calcMode(np.float16)
    assert layer(x.reshape(1, 2)).tolist() == [[-1, 1]]


def test_batch_normalisation_refuses_other_maps():
    for shape in ((2, 4), (2,), (2, "C", 3)):
        with pytest.raises(ShapeError, match=r"wanted \(n, 3, \*spatial\)"):
            BatchNorm(3).dataShapeFrom(asShape(shape))
    assert BatchNorm(3).dataShapeFrom(asShape(("N", 3, "H"))) == ("N", 3, "H")


@pytest.mark.parametrize("maps", [0, -1, 2.0, "3"])
def test_a_batch_norm_of_no_channels_is_refused_when_it_is_made(maps):
    with pytest.raises(ShapeError, match="maps as a whole number of at least 1"):
        BatchNorm(maps)


def test_layer_normalisation_of_two_values():
    y, gx, gscale, gbias = ours(LayerNorm(2, epsilon=0), [np.array([[3.0, 7.0]])], np.array([[1.0, 2.0]]))
    assert y.tolist() == [[-1, 1]] and gscale.tolist() == [-1, 2] and gbias.tolist() == [1, 2]
    assert gx.tolist() == [[0, 0]]  # two values become -1 and 1, wherever they are


def test_layer_normalisation_refuses_other_last_axes():
    with pytest.raises(ShapeError, match=r"wanted \(..., 2, 3\), got \(4, 3, 2\); normalised are the last axes"):
        LayerNorm((2, 3)).dataShapeFrom((4, 3, 2))
    with pytest.raises(ShapeError, match=r"wanted \(..., 2, 3\), got \(3,\)"):
        LayerNorm((2, 3)).dataShapeFrom((3,))
    with pytest.raises(ShapeError, match="shape as a whole number of at least 1"):
        LayerNorm(())
    assert LayerNorm(3).dataShapeFrom(asShape(("N", "T", 3))) == ("N", "T", 3)


@pytest.mark.peers
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("momentum", [0.1, 0.7, None])
@pytest.mark.parametrize("shape", [(7, 3), (4, 3, 5), (2, 3, 4, 3), (3, 3, 2, 1, 3)])
def test_batch_normalisation_is_pytorch_s_over_several_steps(shape, momentum, affine, rng):
    import torch

    for dtype in CLOSE:
        norm = prepared(BatchNorm(3, epsilon=1e-3, momentum=momentum, affine=affine), rng).calcMode(np.dtype(dtype))
        kind = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d, 5: torch.nn.BatchNorm3d}
        peer = kind[len(shape)](3, eps=1e-3, momentum=momentum, affine=affine).double()
        if affine:
            peer.weight.data, peer.bias.data = (
                torch.from_numpy(p.data.astype(np.float64)) for p in (norm.scale, norm.bias)
            )
        for step in range(5):
            train = step < 3
            norm.isTraining = train
            peer.train(train)
            x, grad = rng.standard_normal(shape) * 3 + 2, rng.standard_normal(shape)
            t = torch.from_numpy(x).requires_grad_()
            peer.zero_grad()
            out = peer(t)
            out.backward(torch.from_numpy(grad))
            y = norm(x.astype(dtype))
            norm.backward(grad.astype(dtype))
            agree([y, norm.grad], [out.detach().numpy(), t.grad.numpy()], dtype)
            if affine and train:
                agree([norm.scale.grad, norm.bias.grad], [peer.weight.grad.numpy(), peer.bias.grad.numpy()], dtype)
            agree([norm.mean.data, norm.var.data], [peer.running_mean.numpy(), peer.running_var.numpy()], dtype)
            assert norm.count.data == peer.num_batches_tracked.item() == min(step + 1, 3)


@pytest.mark.peers
@pytest.mark.parametrize("shape, last", [((5, 4), 4), ((2, 3, 4), (3, 4)), ((2, 3, 4), (2, 3, 4)), ((2, 1, 3, 5), 5)])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_normalisation_is_pytorch_s(shape, last, affine, rng):
    import torch.nn.functional as F

    norm = LayerNorm(last, epsilon=1e-3, affine=affine)
    x = rng.standard_normal(shape) * 3 + 1
    compare(norm, lambda x, *params: F.layer_norm(x, norm.shape, *params, eps=1e-3), rng, x)


@pytest.mark.parametrize("momentum", [0.9, 0.99, 0.997])
def test_the_momentum_of_keras_is_told_from_ours(momentum):
    with pytest.warns(GraphWarning, match=rf"Keras counts the other share: .* is momentum={1 - momentum:.3g} here"):
        BatchNorm(3, momentum=momentum)


@pytest.mark.parametrize("momentum", [0.0, 0.01, 0.1, 0.5, 1.0, None])
def test_a_momentum_as_pytorch_has_it_is_not_doubted(momentum):
    BatchNorm(3, momentum=momentum)
