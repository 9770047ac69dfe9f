"""Augmentation: each module is its definition for the random numbers of its key and count, and x in evaluation."""

import colorsys

import numpy as np
import pytest
from peers import ours

from puregraph import MSE, SGD, Sequential, Trainer
from puregraph.compile import Program
from puregraph.core.errors import ArgumentError, ShapeError
from puregraph.modules import (
    AutoContrast,
    Flatten,
    Linear,
    RandomBrightness,
    RandomColorDegeneration,
    RandomContrast,
    RandomErasing,
    RandomFlip,
    RandomGaussianBlur,
    RandomGrayscale,
    RandomHue,
    RandomInvert,
    RandomPosterization,
    RandomSaturation,
    RandomSharpness,
    Solarization,
)
from puregraph.modules.dropout import bits, unit

X = np.random.default_rng(0).random((7, 3, 5, 4))
LUMA = np.array([0.2989, 0.587, 0.114])


def gray(x):
    return np.repeat(np.tensordot(LUMA, x, 1)[None], 3, 0)


def hsv(change):
    """What a function of hue, saturation and value makes of each colour, by Python's colorsys."""
    return lambda x, u: np.apply_along_axis(lambda c: colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*c), u)), 0, x)


def blurred(x, sigma, size):
    """x next to Gaussian windows along both axes, the last elements repeated."""
    weights = np.exp(-0.5 * ((np.arange(size) - size // 2) / sigma) ** 2)
    weights /= weights.sum()
    for axis in (1, 2):
        pad = [(size // 2,) * 2 if a == axis else (0, 0) for a in range(3)]
        x = np.apply_along_axis(np.convolve, axis, np.pad(x, pad, "edge"), weights, "valid")
    return x


def sharpened(x, u):
    wide = np.pad(x, ((0, 0), (1, 1), (1, 1)), "edge")
    smooth = sum(wide[:, i : i + 5, j : j + 4] * (5 if i == j == 1 else 1) for i in range(3) for j in range(3)) / 13
    return np.clip(smooth + (0.3 + 1.4 * u[0]) * (x - smooth), 0, 1)


def posterized(x, bits, low=0, high=1):
    """Bits of the nearest of 256 levels, by shifts of integers."""
    levels = np.rint((np.clip(x, low, high) - low) / (high - low) * 255).astype(int)
    return low + (levels >> (8 - bits) << (8 - bits)) / 255 * (high - low)


def erased(x, u):
    area, aspect = 0.1 + 0.7 * u[0], 0.5 + 1.5 * u[1]
    tall, wide = min((area * aspect * 20) ** 0.5, 5), min((area / aspect * 20) ** 0.5, 4)
    top, left = u[2] * (5 - tall), u[3] * (4 - wide)
    rows, columns = np.arange(5)[:, None], np.arange(4)
    inside = (rows >= top) & (rows < top + tall) & (columns >= left) & (columns < left + wide)
    return np.where(inside & (u[4] < 0.8), 0.25, x)


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
    (RandomSaturation(0.8), hsv(lambda h, s, v, u: (h, min(s * (0.2 + 1.6 * u[0]), 1), v))),
    (RandomHue(0.9), hsv(lambda h, s, v, u: ((h + 0.45 * (2 * u[0] - 1)) % 1, s, v))),
    (RandomPosterization(3), lambda x, u: posterized(x, 3)),
    (RandomPosterization((1, 8), (-1, 2)), lambda x, u: posterized(x, int(1 + 8 * u[0]), -1, 2)),
    (RandomGaussianBlur(3, (0.5, 2.0), 0.7), lambda x, u: blurred(x, 0.5 + 1.5 * u[0], 3) if u[1] < 0.7 else x),
    (RandomGaussianBlur(7, (1.0, 1.0)), lambda x, u: blurred(x, 1, 7)),
    (RandomSharpness(0.7), sharpened),
    (RandomErasing(0.8, (0.1, 0.8), (0.5, 2.0), 0.25), erased),
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
    u = u if shape[1] > 1 else np.broadcast_to(u, (len(X), 2))
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


def test_contrast_is_stretched_to_the_range_in_both_modes_and_a_flat_channel_stays():
    x = X.copy()
    x[0, 1] = 0.3
    for module in (AutoContrast((-1, 2)).trainMode(), AutoContrast((-1, 2)).evalMode()):
        y = module(x)
        assert np.array_equal(y[0, 1], x[0, 1])
        assert np.allclose([y[1:].min((2, 3)), y[1:].max((2, 3))], [[[-1]], [[2]]])
        assert np.allclose(np.diff(y[2, 0].ravel()) / np.diff(x[2, 0].ravel()), 3 / np.ptp(x[2, 0]))


def test_a_gray_pixel_keeps_its_colour_and_its_gradient_stays_finite():
    x = np.repeat(X[:, :1], 3, 1)
    for module in (RandomSaturation(1.0), RandomHue(1.0)):
        y, gx = ours(module.calcMode(np.float64), [x], np.ones(X.shape))
        assert np.allclose(y, x, rtol=0, atol=1e-15) and np.isfinite(gx).all()


def test_what_fits_no_image_is_refused():
    with pytest.raises(ArgumentError, match="RandomInvert: wanted range as two numbers, the smaller one first, got"):
        RandomInvert(range=(1, 0))
    with pytest.raises(ShapeError, match="n, 3, height, width"):
        RandomGrayscale()(X[:, :2])
    with pytest.raises(ShapeError, match="n, channels, height, width"):
        RandomFlip()(X[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomPosterization(9), r"wanted bits as a whole number from 1 to 8, or two \(low, high\), got 9"),
        (lambda: RandomGaussianBlur(4), "wanted size as an odd number of at least 1, got 4"),
        (lambda: RandomGaussianBlur(3, (0.0, 1.0)), "wanted sigma as two numbers .* above 0, got"),
        (lambda: RandomErasing(area=(0.5, 1.5)), "wanted area as two numbers .* from 0 to 1, got"),
        (lambda: RandomErasing(aspect=(0, 1)), "wanted aspect as two numbers .* above 0, got"),
    ],
)
def test_other_settings_are_refused(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()
