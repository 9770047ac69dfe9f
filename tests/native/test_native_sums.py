"""Long sums of native code are as exact as numpy's, in whatever order they are made."""

import numpy as np
import pytest
from natively import needsNative

import puregraph as pg

pytestmark = needsNative

LAYERS = {
    "convolution 1x1": (lambda: [pg.Conv2D(16, 16, 1)], (16, 16, 64, 64)),
    "convolution 5x5 of one map": (lambda: [pg.Conv2D(1, 8, 5)], (16, 1, 64, 64)),
    "convolution 3x3": (lambda: [pg.Conv2D(16, 16, 3, pad=1)], (16, 16, 64, 64)),
    "depthwise convolution": (lambda: [pg.Conv2D(16, 16, 3, pad=1, groups=16)], (16, 16, 64, 64)),
    "grouped convolution": (lambda: [pg.Conv2D(16, 16, 3, pad=1, groups=4)], (16, 16, 64, 64)),
    "batch normalisation of few numbers": (
        lambda: [pg.Conv2D(16, 64, 1, useBias=False), pg.BatchNorm(64)],
        (8, 16, 8, 8),
    ),
    "batch normalisation of few maps": (
        lambda: [pg.Conv2D(3, 8, 3, 2, 1, useBias=False), pg.BatchNorm(8)],
        (8, 3, 64, 64),
    ),
    "batch normalisation of rows": (lambda: [pg.BatchNorm(16)], (16, 16, 64, 64)),
    "layer normalisation": (lambda: [pg.LayerNorm(64)], (16384, 64)),
    "linear": (lambda: [pg.Linear(32, 32)], (65536, 32)),
    "mean of a map": (lambda: [pg.Conv2D(4, 4, 1), pg.GlobalAvgPool()], (4, 4, 128, 128)),
}
FACTOR = 4  # a tile of Winograd's is less exact than a plain sum


@pytest.mark.parametrize("name", LAYERS)
def test_results_and_gradients_are_as_near_to_float64_as_those_of_numpy(name):
    layers, shape = LAYERS[name]
    rng = np.random.default_rng(0)
    pg.seed(0)
    net = pg.Sequential(*layers()).trainMode()
    x = rng.standard_normal(shape) + 0.5
    grad = rng.standard_normal(net.dataShapeFrom(shape)) + 0.5

    def computed(kind, isCompiled):
        net.calcMode(np.dtype(kind))
        data = [each.astype(np.float32).astype(kind) for each in (x, grad)]
        if isCompiled:
            y = net.compile([shape], train=True).run(*data)
        else:
            y = net(data[0])
            net.backward(data[1])
        return {"y": y} | {k: p.grad.copy() for k, p in net.params.items()}

    exact, eager, compiled = computed("f8", False), computed("f4", False), computed("f4", True)
    for k, truth in exact.items():
        size = np.linalg.norm(truth)
        allowed = np.linalg.norm(eager[k] - truth) / size
        assert np.linalg.norm(compiled[k] - truth) / size < FACTOR * allowed + 1e-7, k
