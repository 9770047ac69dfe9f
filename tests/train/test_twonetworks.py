"""Two networks with an optimizer each: a compiled step changes its own network, and of the other one no bit."""

import numpy as np
import pytest

import puregraph
from puregraph import BCE, SGD, Adam, BatchNorm, Linear, MomentumSGD, Relu, Sequential
from puregraph.data import digits

DATA = digits()[0][0].reshape(-1, 64)
SIZE = 32
LABELS = np.repeat(np.float32([[1], [0]]), SIZE, axis=0)


def networks(optimizer, norm=False):
    """A generator and a discriminator, each with an optimizer."""
    puregraph.seed(5)
    g = Sequential(Linear(8, 32), *([BatchNorm(32)] if norm else []), Relu(), Linear(32, 64), name="g")
    d = Sequential(Linear(64, 32), Relu(), Linear(32, 1), name="d")
    return g, d, optimizer().setupOn(g), optimizer().setupOn(d)


def weights(net):
    return {name: param.data.tobytes() for name, param in net.params.items()}


def batches(count):
    rng = np.random.default_rng(1)
    for _ in range(count):
        yield DATA[rng.integers(0, len(DATA), SIZE)], rng.standard_normal((SIZE, 8), dtype=np.float32)


def compiledSteps(g, d, forG, forD):
    stepD = d.compile((2 * SIZE, 64), (2 * SIZE, 1), cost=BCE(), optimizer=forD)
    stepG = Sequential(g, d).compile((SIZE, 8), (SIZE, 1), cost=BCE(), optimizer=forG)
    return lambda x: stepD.run(x, LABELS), lambda z: stepG.run(z, LABELS[:SIZE])


def eagerSteps(g, d, forG, forD):
    cost = BCE()

    def stepD(x):
        cost(d(x), LABELS)
        cost.backward()
        d.backward(cost.grad[0])
        forD.update()

    def stepG(z):
        cost(d(g(z)), LABELS[:SIZE])
        cost.backward()
        d.backward(cost.grad[0], updParamGrads=False)
        g.backward(d.grad)
        forG.update()

    return stepD, stepG


@pytest.mark.parametrize("steps", [compiledSteps, eagerSteps])
@pytest.mark.parametrize("optimizer", [lambda: SGD(0.1), lambda: MomentumSGD(0.1), lambda: Adam(1e-2)])
def test_a_step_changes_its_own_network_and_no_bit_of_the_other(steps, optimizer):
    g, d, forG, forD = networks(optimizer)
    stepD, stepG = steps(g, d, forG, forD)
    for x, z in batches(3):
        ofG, ofD = weights(g), weights(d)
        stepD(np.concatenate([x, g(z)]))
        assert weights(g) == ofG
        assert all(weights(d)[name] != ofD[name] for name in ofD)
        ofD = weights(d)
        stepG(z)
        assert weights(d) == ofD
        assert all(weights(g)[name] != ofG[name] for name in ofG)
    assert (forG.step, forD.step) == (3, 3)


@pytest.mark.parametrize("norm", [False, True])
def test_compiled_steps_of_two_networks_are_the_eager_ones(norm):
    found = []
    for steps in (compiledSteps, eagerSteps):
        g, d, forG, forD = networks(lambda: MomentumSGD(0.05), norm)
        g.trainMode()
        d.trainMode()
        stepD, stepG = steps(g, d, forG, forD)
        for x, z in batches(10):
            stepD(np.concatenate([x, g(z)]))
            stepG(z)
        found.append([param.data for net in (g, d) for param in net.params.values()])
    for compiled, eager in zip(*found, strict=True):
        np.testing.assert_allclose(compiled, eager, rtol=1e-4, atol=1e-6)


def test_a_step_that_keeps_no_gradients_computes_none_of_the_network_that_it_leaves_alone():
    first, second = (
        Sequential(Linear(8, 16), Relu(), name="G"),
        Sequential(Linear(16, 4), Relu(), Linear(4, 1), name="D"),
    )
    step = Sequential(first, second).compile(
        [(32, 8), (32, 1)], cost=BCE(), optimizer=SGD(0.1).setupOn(first), keepGrads=False
    )
    made = [line for line in step.table().splitlines() if "grad:" in line and ".D." in line]
    assert made and not any(" dW = " in line or " db = " in line for line in made)
