"""Augmentation: each module is its definition for the random numbers of its key and count, and x in evaluation."""

import numpy as np
import pytest
from peers import ours

from puregraph import MSE, SGD, Sequential, Trainer
from puregraph.compile import Program
from puregraph.core.errors import ArgumentError, ShapeError
from puregraph.modules import (
    Flatten,
    Linear,
    RandomBrightness,
    RandomColorDegeneration,
    RandomContrast,
    RandomFlip,
    RandomGrayscale,
    RandomInvert,
    Solarization,
)
from puregraph.modules.dropout import bits, unit

X = np.random.default_rng(0).random((7, 3, 5, 4))
LUMA = np.array([0.2989, 0.587, 0.114])


def gray(x):
    return np.repeat(np.tensordot(LUMA, x, 1)[None], 3, 0)


DEFINITIONS = [
    (RandomBrightness(0.4), lambda x, u: np.clip(x + 0.4 * (2 * u[0] - 1), 0, 1)),
    (RandomBrightness(0.4, (-1, 2)), lambda x, u: np.clip(x + 1.2 * (2 * u[0] - 1), -1, 2)),
    (
        RandomContrast(0.9),
        lambda x, u: np.clip(
            (x - x.mean((1, 2), keepdims=True)) * (0.1 + 1.8 * u[0]) + x.mean((1, 2), keepdims=True), 0, 1
        ),
    ),
    (RandomInvert(0.6), lambda x, u: 1 - x if u[0] < 0.6 else x),
    (RandomInvert(1.0, (-1, 2)), lambda x, u: 1 - x),
    (Solarization(), lambda x, u: np.where(x < 0.5, x, 1 - x)),
    (Solarization(0.5, 0.7), lambda x, u: (lambda z: np.where(z < 0.7, z, 1 - z))(np.minimum(x + 0.5 * u[0], 1))),
    (RandomGrayscale(0.5), lambda x, u: gray(x) if u[0] < 0.5 else x),
    (RandomColorDegeneration(0.8), lambda x, u: x * (1 - 0.8 * u[0]) + 0.8 * u[0] * gray(x)),
    (RandomFlip("horizontal"), lambda x, u: x[..., ::-1] if u[0] < 0.5 else x),
    (RandomFlip("vertical"), lambda x, u: x[:, ::-1] if u[1] < 0.5 else x),
    (RandomFlip(), lambda x, u: x[:, :: -1 if u[1] < 0.5 else 1, :: -1 if u[0] < 0.5 else 1]),
]
NAMES = [f"{type(module).__name__}{i}" for i, (module, _) in enumerate(DEFINITIONS)]


@pytest.mark.parametrize(("module", "definition"), DEFINITIONS, ids=NAMES)
def test_each_sample_is_changed_by_its_random_number(module, definition):
    module = module.calcMode(np.float64).trainMode()
    shape = module.drawShape(X.shape)
    u = unit(bits(shape, module.key.data, int(module.count.data))).astype(float)[..., 0, 0]
    u = np.broadcast_to(u, (len(X), 2)) if shape[1] == 1 else u
    before = int(module.count.data)
    y = module(X)
    assert np.allclose(y, [definition(x, v) for x, v in zip(X, u)], rtol=0, atol=1e-6)
    assert int(module.count.data) == before + 1
    assert not np.array_equal(y, X)


@pytest.mark.parametrize("module", [module for module, _ in DEFINITIONS], ids=NAMES)
def test_evaluation_gives_the_input_itself_and_an_empty_batch_stays_empty(module):
    assert module.trainMode()(X[:0]).shape == (0, 3, 5, 4)
    count = int(module.count.data)
    assert np.array_equal(module.evalMode()(X), X) and int(module.count.data) == count
    module.trainMode()


def test_the_gradient_of_a_mirrored_image_is_mirrored():
    module = RandomFlip("horizontal").calcMode(np.float64)
    grad = np.random.default_rng(1).random(X.shape)
    y, gx = ours(module, [X], grad)
    for x, one, g, back in zip(X, y, grad, gx):
        assert np.array_equal(back, g if np.array_equal(x, one) else g[..., ::-1])


@pytest.mark.parametrize("module", [RandomFlip(), RandomInvert(0.5), RandomGrayscale(0.5)], ids=str)
@pytest.mark.parametrize("compiled", [False, True])
def test_an_infinite_pixel_stays_infinite_and_leaves_the_others_as_they_are(module, compiled):
    x, grad = X.astype("f"), np.ones(X.shape, "f")
    x[:, :, 1, 2] = np.inf
    net = Sequential(module).trainMode()
    if compiled:
        program = Program(net, [x.shape], grads=[True])
        y = program.run(x, grad)
        gx = program.grad
    else:
        y = net(x)
        net.backward(grad)
        gx = net.grad
    assert not np.isnan(y).any() and not np.isnan(gx).any()
    assert np.isinf(y).sum() == np.isinf(x).sum()


def test_no_gradient_passes_where_values_are_clipped():
    y, gx = ours(RandomBrightness(1.0).calcMode(np.float64), [X], np.ones(X.shape))
    assert np.array_equal(gx == 0, (y == 0) | (y == 1)) and 0 < (gx == 0).sum() < gx.size


@pytest.mark.parametrize("module", [module for module, _ in DEFINITIONS], ids=NAMES)
def test_a_compiled_step_draws_the_same_numbers(module):
    x, target = X.astype("f"), np.random.default_rng(2).random((7, 2)).astype("f")
    weights = []
    for compiled in (False, True):
        linear = Linear(60, 2)
        linear.W.data = np.linspace(-0.1, 0.1, linear.W.data.size, dtype="f").reshape(linear.W.data.shape)
        module.count.data = np.array(3)
        net = Sequential(module, Flatten(), linear).trainMode()
        trainer = Trainer(net, MSE(), SGD(0.1), batchsize=7, shuffle=False, progress=False, compile=compiled)
        trainer.train(x, target, epochs=3)
        weights.append(linear.W.data)
        assert int(module.count.data) == 6
    assert np.allclose(*weights, rtol=2e-4, atol=2e-5)


def test_what_fits_no_image_is_refused():
    with pytest.raises(ArgumentError, match="RandomInvert: wanted range as two numbers, the smaller one first, got"):
        RandomInvert(range=(1, 0))
    with pytest.raises(ShapeError, match="n, 3, height, width"):
        RandomGrayscale()(X[:, :2])
    with pytest.raises(ShapeError, match="n, channels, height, width"):
        RandomFlip()(X[0])
