"""Resize: gradients are PyTorch's, compiled steps give eager's bits, and what cannot be said is refused."""

import numpy as np
import pytest

from puregraph import Graph, Input, PuregraphError, ShapeError
from puregraph.core.dim import Dim
from puregraph.onnx.modules import ResizeAxes

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
    net = ResizeAxes((2, 3), "sizes", size, **ours)
    t = torch.tensor(x, requires_grad=True)
    wanted = torch.nn.functional.interpolate(t, size=size, **theirs)
    wanted.backward(torch.tensor(grad))
    y = net.updateData(x)
    near = 1e-6 * np.abs(x).max()  # positions are in float32, as the standard's implementations have them
    np.testing.assert_allclose(y, wanted.detach().numpy(), 0, 4 * near)
    gx = net.updateGrad(grad, x, None, None, None, y)[0]
    np.testing.assert_allclose(gx, t.grad.numpy(), 0, 20 * near)


@pytest.mark.parametrize("options", [ours for ours, _ in CASES], ids=str)
def test_a_compiled_resize_gives_eagers_bits(options):
    x = Input(name="x").node()
    net = Graph([x], ResizeAxes((2, 3), "scales", (2.0, 0.5), name="big", **options).node(x))
    data = np.random.default_rng(1).standard_normal((2, 3, 4, 6)).astype(np.float32)
    program = net.compile((2, 3, 4, 6))
    np.testing.assert_array_equal(program.run(data), net(data))


def test_symbols_are_carried_through_a_scale():
    assert ResizeAxes((2, 3), factors=(2.0, 1.5)).dataShapeFrom(("N", 3, 4, 6)) == ("N", 3, 8, 9)
    length = Dim("L")
    assert ResizeAxes((1,), factors=(1.5,)).dataShapeFrom((2, length)) == (2, length * 3 // 2)
    assert ResizeAxes((1,), factors=(0.3,)).dataShapeFrom((2, length)) == (2, None)


def test_a_resize_that_cannot_be_is_refused():
    with pytest.raises(ShapeError, match="wanted 2 factors, got \\[2.0\\]"):
        ResizeAxes((0, 1), factors=(2.0,)).dataShapeFrom((2, 3))
    with pytest.raises(ShapeError, match="at least one element to read"):
        ResizeAxes((0,), "sizes", (2,)).dataShapeFrom((0, 3))
    with pytest.raises(PuregraphError, match="axis"):
        ResizeAxes((4,), factors=(2.0,)).dataShapeFrom((2, 3))


def test_elements_far_from_an_infinite_one_stay_finite():
    x = np.ones((1, 8), np.float32)
    x[0, 0] = np.inf
    y = ResizeAxes((1,), factors=(2.0,), mode="linear").updateData(x)
    assert np.isfinite(y[0, 4:]).all()
