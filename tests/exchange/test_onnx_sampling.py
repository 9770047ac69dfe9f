"""Resize, GridSample, AffineGrid: gradients are PyTorch's, compiled steps give eager's bits, and what cannot be said is refused."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from puregraph import Graph, Input, PuregraphError, ShapeError
from puregraph.core.dim import Dim
from puregraph.modules import AffineGrid, GridSample, Resize

CASES = [
    ({"mode": "linear"}, {"mode": "bilinear", "align_corners": False}),
    ({"mode": "linear", "coordinates": "align_corners"}, {"mode": "bilinear", "align_corners": True}),
    ({"mode": "cubic"}, {"mode": "bicubic", "align_corners": False}),
    ({"mode": "cubic", "coordinates": "align_corners"}, {"mode": "bicubic", "align_corners": True}),
    ({"coordinates": "asymmetric", "rounding": "floor"}, {"mode": "nearest"}),
    (
        {"mode": "linear", "antialias": True, "excludeOutside": True},
        {"mode": "bilinear", "antialias": True, "align_corners": False},
    ),
]


@pytest.mark.parametrize(("ours", "theirs"), CASES, ids=str)
@pytest.mark.parametrize("size", [(3, 4), (7, 2), (1, 1), (9, 13)])
def test_values_and_gradients_of_a_resize_are_those_of_pytorch(ours, theirs, size):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    x, grad = rng.standard_normal((2, 3, 5, 6)), rng.standard_normal((2, 3, *size))
    net = Resize((2, 3), "sizes", size, **ours)
    t = torch.tensor(x, requires_grad=True)
    wanted = torch.nn.functional.interpolate(t, size=size, **theirs)
    wanted.backward(torch.tensor(grad))
    y = net.updateData(x)
    near = 1e-14 * np.abs(x).max()
    np.testing.assert_allclose(y, wanted.detach().numpy(), 0, 4 * near)
    gx = net.updateGrad(grad, x, None, None, None, y)[0]
    np.testing.assert_allclose(gx, t.grad.numpy(), 0, 20 * near)


@pytest.mark.parametrize("options", [ours for ours, _ in CASES], ids=str)
def test_a_compiled_resize_gives_eagers_bits(options):
    x = Input(name="x").node()
    net = Graph([x], Resize((2, 3), "scales", (2.0, 0.5), name="big", **options).node(x))
    data = np.random.default_rng(1).standard_normal((2, 3, 4, 6)).astype(np.float32)
    program = net.compile((2, 3, 4, 6))
    np.testing.assert_array_equal(program.run(data), net(data))


HALF = Fraction(1, 2)
EXACT = {  # where element i of `length` is among `size`, `ratio` being their quotient or a scale
    "half_pixel": lambda i, size, length, ratio: (i + HALF) / ratio - HALF,
    "pytorch_half_pixel": lambda i, size, length, ratio: (i + HALF) / ratio - HALF if length > 1 else Fraction(0),
    "align_corners": lambda i, size, length, ratio: Fraction(i * (size - 1), length - 1) if length > 1 else Fraction(0),
    "asymmetric": lambda i, size, length, ratio: i / ratio,
    "tf_half_pixel_for_nn": lambda i, size, length, ratio: (i + HALF) / ratio if ratio != 1 else Fraction(i),
}
NEAREST = {
    "round_prefer_floor": lambda at: math.ceil(at - HALF),
    "round_prefer_ceil": lambda at: math.floor(at + HALF),
    "floor": math.floor,
    "ceil": math.ceil,
}


@pytest.mark.parametrize("rounding", NEAREST)
@pytest.mark.parametrize("coordinates", EXACT)
def test_the_nearest_elements_are_those_of_rational_arithmetic(coordinates, rounding):
    for size, length in itertools.product([*range(1, 9), 17, 30], [*range(1, 11), 13, 24, 48]):
        ratio = Fraction(length, size)
        at = [EXACT[coordinates](i, size, length, ratio) for i in range(length)]
        wanted = [min(max(NEAREST[rounding](c), 0), size - 1) for c in at]
        module = Resize((0,), "sizes", (length,), coordinates=coordinates, rounding=rounding)
        np.testing.assert_array_equal(module.updateData(np.arange(size)), wanted, f"{size} to {length}")
        if coordinates != "align_corners":  # which says how a length is rounded that a scale does not give
            scale = float(np.float32(length / size))
            module = Resize((0,), "scales", (scale,), coordinates=coordinates, rounding=rounding)
            np.testing.assert_array_equal(module.updateData(np.arange(size)), wanted, f"{size} by {scale}")


@pytest.mark.parametrize("coordinates", EXACT)
def test_elements_between_others_are_those_of_rational_arithmetic_in_float64(coordinates):
    rng = np.random.default_rng(2)
    for size, length in itertools.product([1, 2, 3, 5, 7, 10, 24], [1, 2, 3, 6, 7, 11, 48]):
        values = [Fraction(int(v), 8) for v in rng.integers(-40, 40, size)]
        wanted = []
        for i in range(length):
            at = EXACT[coordinates](i, size, length, Fraction(length, size))
            low = math.floor(at)
            left, right = (values[min(max(n, 0), size - 1)] for n in (low, low + 1))
            wanted.append(float(left + (right - left) * (at - low)))
        module = Resize((0,), "sizes", (length,), "linear", coordinates)
        np.testing.assert_allclose(module.updateData(np.array(values, np.float64)), wanted, 1e-15, 1e-14)


def test_symbols_are_carried_through_a_scale():
    assert Resize((2, 3), factors=(2.0, 1.5)).dataShapeFrom(("N", 3, 4, 6)) == ("N", 3, 8, 9)
    length = Dim("L")
    assert Resize((1,), factors=(1.5,)).dataShapeFrom((2, length)) == (2, length * 3 // 2)
    assert Resize((1,), factors=(np.float32(0.3),)).dataShapeFrom((2, length)) == (2, length * 3 // 10)
    assert Resize((1,), factors=(0.2718281828,)).dataShapeFrom((2, length)) == (2, None)


def test_a_resize_that_cannot_be_is_refused():
    with pytest.raises(ShapeError, match="wanted 2 factors, got \\[2.0\\]"):
        Resize((0, 1), factors=(2.0,)).dataShapeFrom((2, 3))
    with pytest.raises(ShapeError, match="at least one element to read"):
        Resize((0,), "sizes", (2,)).dataShapeFrom((0, 3))
    with pytest.raises(PuregraphError, match="axis"):
        Resize((4,), factors=(2.0,)).dataShapeFrom((2, 3))


def test_elements_far_from_an_infinite_one_stay_finite():
    x = np.ones((1, 8), np.float32)
    x[0, 0] = np.inf
    y = Resize((1,), factors=(2.0,), mode="linear").updateData(x)
    assert np.isfinite(y[0, 4:]).all()


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("mode", "theirs", "sizes"),
    [
        ("nearest", "nearest", (4, 5)),
        ("linear", "bilinear", (4, 5)),
        ("cubic", "bicubic", (4, 5)),
        ("linear", "bilinear", (3, 1)),
        ("linear", "bilinear", (3, 4, 2)),
        ("nearest", "nearest", (3, 4, 2)),
    ],
)
def test_values_and_gradients_of_reading_at_a_grid_are_those_of_pytorch(mode, theirs, sizes, padding, aligned):
    torch = pytest.importorskip("torch")
    rng, rank = np.random.default_rng(5), len(sizes)
    x, out = rng.standard_normal((2, 3, *sizes)), (5, 3, 2)[:rank]
    grid = rng.uniform(-2.5, 2.5, (2, *out, rank))
    grid[0, 0, 0], grid[1, 0, 0] = 1, -1  # the ends, where positions begin to be moved
    t, g = torch.tensor(x, requires_grad=True), torch.tensor(grid, requires_grad=True)
    wanted = torch.nn.functional.grid_sample(t, g, theirs, padding, aligned)
    grad = rng.standard_normal(wanted.shape)
    wanted.backward(torch.tensor(grad))
    net = GridSample(mode, padding, aligned)
    np.testing.assert_allclose(net.updateData(x, grid), wanted.detach().numpy(), 1e-9, 1e-9)
    gx, gg = net.updateGrad(grad, x, grid, None, (True, True))
    np.testing.assert_allclose(gx, t.grad.numpy(), 1e-8, 1e-8)
    np.testing.assert_allclose(gg, g.grad.numpy(), 1e-8, 1e-8)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.filterwarnings("ignore:Since version")  # of a lone position
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 1, 3), (2, 1, 3, 2, 4)])
def test_an_affine_grid_and_its_gradient_are_those_of_pytorch(size, aligned):
    torch = pytest.importorskip("torch")
    rank = len(size) - 2
    theta = np.random.default_rng(2).standard_normal((2, rank, rank + 1))
    t = torch.tensor(theta, requires_grad=True)
    wanted = torch.nn.functional.affine_grid(t, list(size), aligned)
    wanted.square().sum().backward()
    net = AffineGrid(aligned)
    y = net.updateData(theta, np.array(size))
    np.testing.assert_allclose(y, wanted.detach().numpy(), 1e-12, 1e-12)
    np.testing.assert_allclose(net.updateGrad(2 * y, theta, np.array(size), y)[0], t.grad.numpy(), 1e-9, 1e-9)


def test_what_is_no_number_is_read_as_none_and_an_endless_way_outside_as_its_padding():
    x = np.arange(1.0, 7.0).reshape(1, 1, 6)
    grid = np.array([[[np.nan], [np.inf], [-np.inf]]])
    for mode in ("nearest", "linear"):
        np.testing.assert_array_equal(GridSample(mode).updateData(x, grid), [[[np.nan, 0, 0]]])
        np.testing.assert_array_equal(GridSample(mode, "border").updateData(x, grid), [[[np.nan, 6, 1]]])


def test_a_grid_that_does_not_fit_is_refused():
    with pytest.raises(ShapeError, match=r"a grid of 2 coordinates"):
        GridSample().dataShapeFrom((2, 3, 4, 5), (2, 6, 7, 3))
    with pytest.raises(ShapeError, match=r"a grid of 4 axes, the first of 2"):
        GridSample().dataShapeFrom((2, 3, 4, 5), (1, 6, 7, 2))
    with pytest.raises(ShapeError, match="at least one element to read"):
        GridSample().dataShapeFrom((2, 3, 0, 5), (2, 6, 7, 2))
    with pytest.raises(ShapeError, match="a size of 4 numbers"):
        AffineGrid().dataShapeFrom((2, 2, 3), (5,))
    assert GridSample().dataShapeFrom(("N", 3, 4, 5), ("N", 6, "K", 2)) == ("N", 3, 6, "K")


def test_what_is_beside_a_position_outside_reaches_nothing():
    torch = pytest.importorskip("torch")
    x = np.ones((1, 1, 3, 3))
    x[..., -1, :] = np.inf
    grid = np.array([[[[0.0, 3.0], [0.0, -0.9]]]])
    t, g = torch.tensor(x, requires_grad=True), torch.tensor(grid)
    wanted = torch.nn.functional.grid_sample(t, g, align_corners=False)
    np.testing.assert_array_equal(GridSample().updateData(x, grid), wanted.detach().numpy())
    assert np.isfinite(wanted.detach().numpy()).all()
    grad = np.array([[[[np.inf, 1.0]]]])
    wanted.backward(torch.tensor(grad))
    found = GridSample().updateGrad(grad, x, grid, None, (True, False))[0]
    np.testing.assert_allclose(found, t.grad.numpy(), 1e-12)


@pytest.mark.parametrize("maps", [0, 1])
@pytest.mark.parametrize("samples", [0, 2])
@pytest.mark.parametrize("positions", [0, 3])
def test_nothing_to_read_is_an_empty_array_and_an_empty_gradient(samples, maps, positions):
    x, grid = np.zeros((samples, maps, 4, 5)), np.zeros((samples, positions, 2, 2))
    y = GridSample().updateData(x, grid)
    assert y.shape == (samples, maps, positions, 2)
    dx, dgrid = GridSample().updateGrad(np.ones_like(y), x, grid, y, (True, True))
    assert (dx.shape, dgrid.shape) == (x.shape, grid.shape)
    theta, size = np.ones((samples, 2, 3)), np.array([samples, 1, positions, 2])
    y = AffineGrid().updateData(theta, size)
    assert y.shape == (samples, positions, 2, 2)
    assert AffineGrid().updateGrad(y, theta, size, y)[0].shape == theta.shape


def test_a_size_of_another_batch_that_only_the_data_give_is_refused():
    with pytest.raises(ShapeError, match=r"a size of 2 samples and lengths from 0 on, got \(3, 2, 2\)"):
        AffineGrid().updateData(np.ones((2, 2, 3)), np.array([3, 1, 2, 2]))
