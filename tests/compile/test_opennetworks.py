"""Networks whose sizes vary: programs from open steps compute the bits of programs for each size, from few steps."""

import numpy as np
import pytest
from natively import needsNative
from test_opensteps import closed, counts  # noqa: F401  a fixture

import puregraph as pg
from puregraph import models
from puregraph.compile import Programs
from puregraph.compile.trace.withcost import withCost

pytestmark = needsNative
PAIRS = 40  # sizes in turn
MAX_STEPS = 6  # of a network; twice as many of images of two heights


def images(channels, size, classes):
    return lambda rng, n, length: (
        [rng.standard_normal((n, channels, size, size), np.float32)],
        labels(rng, classes, n),
    )


def labels(rng, classes, *shape):
    return rng.integers(0, classes, shape)


def texts(rng, n, length):
    return [labels(rng, 23, n, length)], labels(rng, 23, n, length)


def tagged(rng, n, length):
    return [rng.standard_normal((n, length, 16), np.float32)], labels(rng, 3, n, length)


def vectors(rng, n, length):
    return [rng.standard_normal((n, length, 16), np.float32)], labels(rng, 3, n)


def pictures(rng, n, length):
    side = 8 * (1 + length % 2)  # pixels of an image shape kernels: a step for each
    return [rng.standard_normal((n, 1, side, 24), np.float32)], labels(rng, 2, n, side, 24)


def clicks(rng, n, length):
    sparse = np.stack([rng.integers(0, size, n) for size in (50, 7, 300)], 1)
    return [rng.standard_normal((n, 13), np.float32), sparse], rng.integers(0, 2, (n, 1)).astype("f4")


def recurrent():
    return pg.Sequential(pg.LSTM(16, 24), pg.LSTM(24, 24, outputs="h"), pg.Linear(24, 3))


def encoder():
    return pg.Sequential(models.transformerBlock(16, 2), pg.Linear(16, 3), pg.Transpose((0, 2, 1)))


def generator():
    return pg.Sequential(models.gpt(23, 40, 2, 2, 16), pg.Transpose((0, 2, 1)))


def clicked():
    return models.dlrm(tables=(50, 7, 300), size=8, bottom=(16, 8), top=(16,))


CROSS = pg.CrossEntropy
NETS = {
    "gpt": (generator, texts, CROSS),
    "encoder": (encoder, tagged, CROSS),
    "unet": (lambda: models.unet(maps=4, depth=2, norm=True), pictures, CROSS),
    "lstm": (recurrent, vectors, CROSS),
    "lenet": (models.lenet, images(1, 28, 10), CROSS),
    "resnet20": (models.resnet20, images(3, 16, 10), CROSS),
    "dlrm": (clicked, clicks, pg.BCE),
}


def inTurn(name, pairs, isTraining):
    """The results of a step with each pair of a batch and a length, then all parameters; and the open steps."""
    pg.seed(0)
    make, data, cost = NETS[name]
    net, rng = make(), np.random.default_rng(3)
    inputs = len(net.inputs)
    graph, options = net.evalMode(), {}
    if isTraining:
        optimizer = pg.SGD(0.05)
        optimizer.setupOn(net)
        graph, options = (
            withCost(net, cost(), inputs, 1, False),
            {"grads": "one", "optimizer": optimizer, "train": True},
        )
    programs, results = Programs(graph), []
    for n, length in pairs:
        xs, target = data(rng, n, length)
        arrays = [*xs, target] if isTraining else xs
        outputs = programs.get(arrays, isAlways=True, **options).run(*arrays)
        results.append(np.array(outputs[0] if isinstance(outputs, (list, tuple)) else outputs))
    results += [np.array(stored.data) for stored in (*net.params.values(), *net.states.values())]
    return results, [len(steps.steps) for steps in programs.openSteps.values()]


@pytest.mark.slow
@pytest.mark.parametrize("isTraining", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", NETS)
def test_sizes_in_turn_compute_the_bits_of_programs_for_each_size(name, isTraining, counts):  # noqa: F811
    rng = np.random.default_rng(7)
    pairs = [(int(n), int(length)) for n, length in zip(rng.integers(1, 70, PAIRS), rng.integers(1, 41, PAIRS))]
    results, steps = inTurn(name, pairs, isTraining)
    with closed():
        wanted, _ = inTurn(name, pairs, isTraining)
    assert all(map(np.array_equal, results, wanted))
    assert counts["open"] >= PAIRS // 2, counts
    assert max(steps) <= (2 if name == "unet" else 1) * MAX_STEPS, steps
