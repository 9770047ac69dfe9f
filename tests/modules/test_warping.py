"""Warping: each sample is scipy's interpolation at the positions of its definition; the gradient is the transposed map."""

import numpy as np
import pytest
from peers import ours

from puregraph import MSE, SGD, Flatten, Linear, Sequential, Trainer
from puregraph.core.errors import ArgumentError, ShapeError
from puregraph.modules import RandomPerspective, RandomRotation, RandomShear, RandomTranslation, RandomZoom
from puregraph.modules.dropout import bits, unit

X = np.random.default_rng(0).standard_normal((6, 2, 7, 5))
PADDINGS = {"symmetric": "reflect", "edge": "nearest", "wrap": "grid-wrap", "constant": "grid-constant"}
KINDS = [RandomTranslation, RandomZoom, RandomShear, RandomRotation, RandomPerspective]


def drawn(module, x):
    """The numbers from 0 to 1 that the next call draws, for each sample."""
    shape = module.drawShape(x.shape)
    return unit(bits(shape, module.key.data, int(module.count.data))).astype(float)[..., 0, 0]


def ranged(span, u):
    low, high = span if isinstance(span, tuple) else (-span, span)
    return low + (high - low) * u


def positionsOf(module, u, height, width):
    """Rows and columns in elements that are read for one sample, by matrices of homogeneous coordinates."""
    row, column = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    points = np.stack([column - (width - 1) / 2, row - (height - 1) / 2, np.ones(row.shape)]).reshape(3, -1)
    matrix = np.eye(3)
    if type(module) is RandomTranslation:
        matrix[:2, 2] = -ranged(module.width, u[1]) * width, -ranged(module.height, u[0]) * height
    if type(module) is RandomZoom:
        matrix[0, 0], matrix[1, 1] = 1 + ranged(module.width, u[-1]), 1 + ranged(module.height, u[0])
    if type(module) is RandomShear:
        matrix[0, 1], matrix[1, 0] = ranged(module.width, u[1]), ranged(module.height, u[0])
    if type(module) is RandomRotation:
        angle = 2 * np.pi * ranged(module.factor, u[0])
        matrix[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    if type(module) is RandomPerspective and u[8] < module.p:
        sides = (max(width - 1, 1), max(height - 1, 1))
        corners = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)]) * sides
        moved = corners + module.scale * (u[:8].reshape(4, 2) - 0.5) * sides
        rows = [[x, y, 1, 0, 0, 0, -x * a, -y * a] for (x, y), (a, _) in zip(corners, moved)]
        rows += [[0, 0, 0, x, y, 1, -x * b, -y * b] for (x, y), (_, b) in zip(corners, moved)]
        matrix = np.append(np.linalg.solve(rows, np.concatenate([moved[:, 0], moved[:, 1]])), 1).reshape(3, 3)
    x, y, share = matrix @ points
    return (y / share + (height - 1) / 2).reshape(row.shape), (x / share + (width - 1) / 2).reshape(row.shape)


def sampled(module, image, u):
    ndimage = pytest.importorskip("scipy.ndimage")
    positions = positionsOf(module, u, *image.shape[1:])
    order, mode = int(module.mode == "linear"), PADDINGS[module.padding]
    return [ndimage.map_coordinates(one, positions, order=order, mode=mode, cval=module.value) for one in image]


SETTINGS = [
    *[cls(padding=padding, value=0.7) for cls in KINDS for padding in PADDINGS],
    *[cls(mode="nearest") for cls in KINDS],
    *(RandomTranslation(0.9, (0.2, 0.3)), RandomZoom((0.5, 1.5), (-0.9, 0.0)), RandomShear((-1, 1), 0.0)),
    *(RandomRotation(0.5, "wrap"), RandomRotation((0.25, 0.25)), RandomPerspective(0.5, 0.49)),
]


@pytest.mark.parametrize("module", SETTINGS, ids=str)
def test_each_sample_is_read_where_its_random_map_says(module):
    module = module.calcMode(np.float64).trainMode()
    for shape in ((6, 2, 7, 5), (3, 1, 4, 1), (2, 3, 1, 6)):
        x = np.random.default_rng(1).standard_normal(shape)
        u = drawn(module, x)
        assert np.allclose(module(x), [sampled(module, *one) for one in zip(x, u)], rtol=0, atol=1e-9)


@pytest.mark.parametrize("cls", KINDS)
def test_evaluation_gives_the_input_itself_and_an_empty_batch_stays_empty(cls):
    module = cls().trainMode()
    assert module(X[:0]).shape == (0, 2, 7, 5)
    count = int(module.count.data)
    assert np.array_equal(module.evalMode()(X), X) and int(module.count.data) == count


@pytest.mark.parametrize("cls", KINDS)
def test_the_gradient_is_the_transposed_map(cls):
    rng = np.random.default_rng(2)
    for padding in PADDINGS:
        module = cls(padding=padding).calcMode(np.float64)
        a, b = rng.standard_normal(X.shape), rng.standard_normal(X.shape)
        y, gx = ours(module, [a], b)
        assert np.isclose((y * b).sum(), (gx * a).sum(), rtol=1e-12, atol=1e-12)


def test_a_turn_by_a_quarter_moves_elements_counter_clockwise():
    module = RandomRotation((0.25, 0.25), mode="nearest").calcMode(np.float64).trainMode()
    x = np.arange(9.0).reshape(1, 1, 3, 3)
    assert np.array_equal(module(x)[0, 0], np.rot90(x[0, 0]))


@pytest.mark.parametrize("module", SETTINGS[:-6:3], ids=str)
def test_a_compiled_step_draws_the_same_maps(module):
    x, target = X.astype("f"), np.random.default_rng(3).random((6, 2)).astype("f")
    weights = []
    for compiled in (False, True):
        linear = Linear(70, 2)
        linear.W.data = np.linspace(-0.1, 0.1, linear.W.data.size, dtype="f").reshape(linear.W.data.shape)
        module.calcMode(np.float32).count.data = np.array(3)
        net = Sequential(module, Flatten(), linear).trainMode()
        Trainer(net, MSE(), SGD(0.1), batchsize=6, shuffle=False, progress=False, compile=compiled).train(
            x, target, epochs=3
        )
        weights.append(linear.W.data)
    assert np.allclose(*weights, rtol=2e-4, atol=2e-5)


def test_what_cannot_be_warped_is_refused():
    with pytest.raises(ArgumentError, match=r"RandomZoom: wanted spans above -1, got \(-1, 0\) and \(-1, 0\)"):
        RandomZoom((-1, 0))
    with pytest.raises(ArgumentError, match="wanted padding as one of 'symmetric', 'edge', 'wrap', 'constant'"):
        RandomShear(padding="zeros")
    with pytest.raises(ArgumentError, match=r"wanted scale as a number with 0 <= scale < 0.5, got 0.5"):
        RandomPerspective(scale=0.5)
    with pytest.raises(ArgumentError, match=r"wanted factor as a number, or two numbers \(low, high\), got \(1, 0\)"):
        RandomRotation((1, 0))
    with pytest.raises(ShapeError, match="no side 0"):
        RandomRotation()(X[:, :, :0])
