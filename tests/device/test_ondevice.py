"""What runs outside of rules, eagerly, takes device arrays too: optimizers, metrics, data, special functions, gradients."""

import numpy as np
import pytest
from strict import Strict, useStrict

from puregraph.autodiff import Variable
from puregraph.core import device, initial
from puregraph.core.errors import PuregraphError
from puregraph.data import split
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.sequential import Sequential
from puregraph.modules import BatchNorm, Linear, Relu
from puregraph.modules.costs import CrossEntropy
from puregraph.ops import special
from puregraph.optimizers import SGD, Adam, AdamW, MomentumSGD, NesterovSGD, RMSProp
from puregraph.train import MAE, Accuracy, Confusion, TopK


def test_a_graph_that_is_given_arrays_of_the_host_says_what_to_do(monkeypatch):
    useStrict(monkeypatch)
    net = Sequential(Linear(2, 2))
    toStrict(net, Strict)
    with pytest.raises(TypeError) as caught:
        net(np.ones((3, 2), np.float32))
    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "some arrays are on a GPU, others are not: device.toDevice(x) moves an array there" in told
    net(Strict(np.ones((3, 2), np.float32)))


OPTIMIZERS = {
    "SGD": lambda: SGD(0.1, decay=0.01),
    "MomentumSGD": lambda: MomentumSGD(0.1, clipNorm=0.1),
    "NesterovSGD": lambda: NesterovSGD(0.1, clipValue=0.01),
    "RMSProp": lambda: RMSProp(0.1),
    "Adam": lambda: Adam(0.1, onNonFinite="skip", schedule=lambda step: 1 / (1 + step)),
    "AdamW": lambda: AdamW(0.1, decay=0.1),
}


def onBoth(monkeypatch, go):
    """What is done with arrays of numpy, and with those of a device."""
    wanted = go(np.array, lambda x: x)
    useStrict(monkeypatch)
    return wanted, go(lambda x: Strict(np.array(x)), lambda x: x.values)


def toStrict(net, move):
    for stored in (*net.params.values(), *net.states.values()):
        stored.data = move(stored.data)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_update_what_lies_on_a_device(monkeypatch, rng, name):
    x, t = rng.standard_normal((5, 4)).astype(np.float32), rng.integers(0, 3, 5)

    def go(move, back):
        initial.seed(1)
        net = Sequential(Linear(4, 6), BatchNorm(6), Relu(), Linear(6, 3))
        a, b = Input(name="x").node(), Input(name="t").node()
        task = Graph([a, b], CrossEntropy().node(net.node(a), b))
        toStrict(net, move)
        optimizer = OPTIMIZERS[name]().setupOn(net)
        for _ in range(3):
            task(move(x), move(t))
            task.backward()
            optimizer.update()
        kept = [back(a) for key, a in optimizer.state.items() if "step/" not in key]
        return [back(p.data) for p in net.params.values()] + kept

    wanted, got = onBoth(monkeypatch, go)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_optimizer_names_a_gradient_on_a_device(monkeypatch):
    useStrict(monkeypatch)
    net = Sequential(Linear(2, 2))
    toStrict(net, Strict)
    for stored in net.params.values():
        stored.grad = Strict(np.full(stored.shape, np.inf, np.float32))
    with pytest.raises(PuregraphError, match="the gradient of 'linear.W', 'linear.b' is not finite"):
        SGD(0.1, onNonFinite="raise").setupOn(net).update()


@pytest.mark.parametrize("metric", [Accuracy, lambda: Confusion(3), lambda: TopK(2), MAE])
def test_metrics_take_what_lies_on_a_device(monkeypatch, rng, metric):
    scores, labels = rng.standard_normal((7, 3)), rng.integers(0, 3, 7)

    def go(move, back):
        found = metric()
        found.update(move(scores), move(scores + 1 if isinstance(found, MAE) else labels))
        return found.value()

    wanted, got = onBoth(monkeypatch, go)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("stratify", [True, False])
def test_data_on_a_device_is_split_as_on_the_host(monkeypatch, rng, stratify):
    x, t = rng.standard_normal((20, 3)), rng.integers(0, 2, 20)

    def go(move, back):
        monkeypatch.setattr(device, "toDevice", move)
        return [back(a) for pair in split(move(x), move(t), stratify=stratify) for a in pair]

    wanted, got = onBoth(monkeypatch, go)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", [name for name in special.__all__ if name[0].islower()])
def test_special_functions_take_what_lies_on_a_device(monkeypatch, name):
    function, x = getattr(special, name), np.linspace(0.1, 0.9, 7).astype(np.float32)

    def go(move, back):
        found = function(move([0, 1, 2, 0, 1, 2, 3]), move(x)) if name in ("ive", "polygamma") else function(move(x))
        return back(found)

    wanted, got = onBoth(monkeypatch, go)
    np.testing.assert_array_equal(got, wanted)


READS = {
    "some rows": lambda x, to: x[to([2, 0, 2])],
    "a number of each row": lambda x, to: x[to([0, 1, 2, 3]), to([1, 1, 0, 2])],
    "a slice": lambda x, to: x[1:3, ::2],
    "several times": lambda x, to: np.repeat(x, 3, axis=1),
    "taken": lambda x, to: np.take(x, to([1, 1, 2]), axis=0),
    "taken along": lambda x, to: np.take_along_axis(x, to([[1, 1, 2]]), axis=0),
    "the diagonal": lambda x, to: np.diagonal(x),
    "sorted": lambda x, to: np.sort(x, axis=0),
}


@pytest.mark.parametrize("name", READS)
def test_gradients_of_what_was_read_lie_on_a_device(monkeypatch, rng, name):
    x = rng.standard_normal((4, 3))

    def go(move, back):
        v = Variable(move(x), requires_grad=True)
        y = READS[name](v, move)
        (y * y).sum().backward()
        return back(v.grad)

    wanted, got = onBoth(monkeypatch, go)
    np.testing.assert_array_equal(got, wanted)
