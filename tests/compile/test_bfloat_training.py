"""Training in bfloat16: the costs of 200 steps follow float32's as closely as those of PyTorch's autocast do."""

import sys

import numpy as np
import pytest
from source import ROOT

import puregraph as pg
from puregraph import models
from puregraph.core import device
from puregraph.ops.native.llvm import jit

if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

from benchmarks.workloads import gpt, lenet

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("benchmarks.contenders.torch")
if not jit.available() or not jit.multipliesBfloat16():
    pytest.skip("no instruction for bfloat16", allow_module_level=True)

pytestmark = [pytest.mark.peers, pytest.mark.slow]
STEPS, RATE = 200, 1e-3
WORDS, LENGTH, LAYERS, HEADS, SIZE = 64, 32, 2, 4, 64
CLOSE = 1.5  # times the distance of autocast: it varies with the order of sums


def texts(rng):
    """Words that mostly follow from the word before."""
    words = rng.integers(0, WORDS, (STEPS, 8, LENGTH + 1))
    isFree = rng.random(words.shape) < 0.1
    for i in range(LENGTH):
        words[..., i + 1] = np.where(isFree[..., i + 1], words[..., i + 1], (3 * words[..., i] + 1) % WORDS)
    return words[..., :-1], words[..., 1:].reshape(STEPS, -1)


def images(rng):
    """Ten patterns in noise."""
    patterns, labels = rng.standard_normal((10, 1, 28, 28), np.float32), rng.integers(0, 10, (STEPS, 64))
    return patterns[labels] + 2 * rng.standard_normal((STEPS, 64, 1, 28, 28), np.float32), labels


def smallGpt():
    return pg.Sequential(models.gpt(WORDS, LENGTH, LAYERS, HEADS, SIZE), pg.Reshape((-1, WORDS)))


CASES = {
    "GPT": (smallGpt, lambda: gpt.torchNet(torch, WORDS, LENGTH, LAYERS, HEADS, SIZE), texts),
    "LeNet": (lenet.ours, lambda: lenet.torch(torch), images),
}


def ourCosts(make, xs, targets, precision):
    pg.seed(0)
    net = make().calcMode(precision)
    program = net.compile(xs[0].shape, targets[0].shape, cost=pg.CrossEntropy(), optimizer=pg.Adam(RATE))
    assert ("bf16" in program.table()) == (precision == "bfloat16")
    return np.array([float(program.run(x, t)[0]) for x, t in zip(xs, targets)])


def theirCosts(make, weights, xs, targets, isHalf):
    net = theirs.fill(make(), weights)
    optimizer, costs = torch.optim.Adam(net.parameters(), RATE), []
    for x, t in zip(map(torch.from_numpy, xs), map(torch.from_numpy, targets)):
        with torch.autocast("cpu", torch.bfloat16, enabled=isHalf):
            cost = torch.nn.functional.cross_entropy(net(x), t)
        optimizer.zero_grad()
        cost.backward()
        optimizer.step()
        costs.append(float(cost.detach()))
    return np.array(costs)


@pytest.fixture(autouse=True)
def oneThread():
    """One thread of PyTorch: several wait for each other where processors are busy."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


@pytest.mark.parametrize("name", CASES)
def test_costs_follow_those_of_float32_as_autocast_does(name):
    make, makeTheirs, data = CASES[name]
    with device.useDevice("cpu"):
        xs, targets = data(np.random.default_rng(1))
        pg.seed(0)
        weights = [p.data for p in make().params.values()]
        plain, half = (ourCosts(make, xs, targets, precision) for precision in ("float32", "bfloat16"))
        peer, peerHalf = (theirCosts(makeTheirs, weights, xs, targets, isHalf) for isHalf in (False, True))
    np.testing.assert_allclose(plain[:10], peer[:10], rtol=2e-3)
    assert plain[-20:].mean() < 0.3 * plain[0]
    assert 0 < np.abs(half - plain).mean() <= CLOSE * np.abs(peerHalf - peer).mean()
    assert abs(half[-20:].mean() - plain[-20:].mean()) < 0.05 * plain[-20:].mean()
