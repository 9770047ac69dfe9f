"""Optimizers that ask for the cost again, SAM and LBFGS: by definition, as PyTorch's, in a Trainer, compiled, resumed."""

import numpy as np
import pytest

from puregraph import MSE, Linear, Sequential, Tanh, Trainer, seed
from puregraph.core.errors import ArgumentError, DataError, PuregraphError
from puregraph.optimizers import LBFGS, SAM, SGD, Adam

RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((16, 5)), RNG.standard_normal((16, 2))


def network():
    seed(0)
    return Sequential(Linear(5, 6, name="a"), Tanh(), Linear(6, 2, name="b")).calcMode("float64")


def closureOf(net):
    cost = MSE()

    def closure():
        value = cost(net(X), Y)
        cost.backward()
        net.backward(cost.grad[0])
        return value

    return closure


def run(net, optimizer, how, updates):
    """Updates in a loop, in compiled steps, or by a Trainer."""
    if how == "loop":
        optimizer.setupOn(net.trainMode())
        for _ in range(updates):
            optimizer.update(closureOf(net))
    elif how == "compiled":
        program = net.compile((16, 5), (16, 2), cost=MSE(), optimizer=optimizer)
        for _ in range(updates):
            program.run(X, Y)
    else:
        trainer = Trainer(net, MSE(), optimizer, batchsize=16, progress="none", shuffle=False)
        trainer.train(X, Y, epochs=updates)
    return [p.data.copy() for p in net.params.values()]


@pytest.mark.parametrize("how", ["loop", "compiled", "trainer"])
@pytest.mark.parametrize("adaptive", [False, True])
def test_sam_steps_with_the_gradient_of_the_worst_point_nearby(how, adaptive):
    net, rho, w = network(), 0.3, [p.data.copy() for p in network().params.values()]
    other = network()
    params = list(other.params.values())
    closure = closureOf(other.trainMode())

    def gradients(arrays):
        for p, array in zip(params, arrays):
            p.data = array
        closure()
        return [p.grad.copy() for p in params]

    for _ in range(4):
        g = gradients(w)
        scaled = [x * y for x, y in zip(g, w)] if adaptive else g
        length = np.sqrt(sum((x**2).sum() for x in scaled)) + 1e-12
        near = [y + rho / length * (x * y if adaptive else x) for x, y in zip(scaled, w)]
        w = [y - 0.1 * x for x, y in zip(gradients(near), w)]
    found = run(net, SAM(SGD(0.1), rho, adaptive), how, 4)
    for one, two in zip(found, w):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-11)


@pytest.mark.peers
@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize("iterations", [1, 2, 7])
def test_lbfgs_takes_the_steps_of_pytorch(rate, iterations):
    import torch

    net = network().trainMode()
    ours = list(net.params.values())
    params = [torch.tensor(p.data.copy(), requires_grad=True) for p in ours]
    peer = torch.optim.LBFGS(params, rate, iterations, history_size=10)
    x, y = torch.tensor(X), torch.tensor(Y)

    def theirs():
        peer.zero_grad()
        loss = ((torch.tanh(x @ params[0] + params[1]) @ params[2] + params[3] - y) ** 2).mean()
        loss.backward()
        return loss

    optimizer = LBFGS(rate, iterations).setupOn(net)
    scale = float(MSE()(net(X), Y)) / float(theirs().detach())
    assert scale == pytest.approx(1.0)
    closure = closureOf(net)
    for _ in range(4):
        optimizer.update(closure)
        peer.step(theirs)
        for p, q in zip(ours, params):
            np.testing.assert_allclose(p.data, q.detach().numpy(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("how", ["loop", "compiled", "trainer"])
def test_a_line_search_goes_down_to_the_minimum_of_a_quadratic(how):
    net = Sequential(Linear(5, 2, name="fc")).calcMode("float64")
    optimizer = LBFGS(iterations=15, changeTolerance=1e-16, lineSearch="wolfe")
    w, b = run(net, optimizer, how, 4)
    exact = np.linalg.lstsq(np.concatenate([X, np.ones((16, 1))], axis=1), Y, rcond=None)[0]
    np.testing.assert_allclose(w, exact[:5], atol=1e-5)
    np.testing.assert_allclose(b, exact[5], atol=1e-5)


def test_every_step_of_a_line_search_lowers_the_cost():
    net = network()
    optimizer, closure = LBFGS(iterations=1, lineSearch="wolfe").setupOn(net.trainMode()), closureOf(net)
    costs = []
    for _ in range(12):
        optimizer.update(closure)
        costs.append(float(MSE()(net(X), Y)))
    assert all(later <= earlier for earlier, later in zip(costs, costs[1:])) and costs[-1] < 0.5 * costs[0]


@pytest.mark.parametrize("optimizer", [lambda: SAM(Adam(0.05)), lambda: LBFGS(0.5, 3)], ids=["SAM", "LBFGS"])
def test_a_run_that_is_resumed_is_the_run_that_was_not_stopped(optimizer, tmp_path):
    whole = network()
    wanted = run(whole, optimizer(), "trainer", 5)
    options = {"batchsize": 16, "progress": "none", "shuffle": False}
    first = Trainer(network(), MSE(), optimizer(), **options)
    first.train(X, Y, epochs=2)
    first.save(tmp_path / "run.h5")
    second = Trainer(network(), MSE(), optimizer(), **options).resume(tmp_path / "run.h5")
    second.train(X, Y, epochs=3)
    for one, two in zip(wanted, second.net.params.values()):
        np.testing.assert_array_equal(one, two.data)


def test_accumulated_batches_are_one_step_that_is_asked_for_again():
    one, two = network(), network()
    options = {"progress": "none", "shuffle": False}
    Trainer(one, MSE(), SAM(SGD(0.1)), batchsize=16, **options).train(X, Y, epochs=2)
    Trainer(two, MSE(), SAM(SGD(0.1)), batchsize=4, accumulate=4, **options).train(X, Y, epochs=2)
    for p, q in zip(one.params.values(), two.params.values()):
        np.testing.assert_allclose(p.data, q.data, rtol=1e-9, atol=1e-12)


def test_an_update_without_a_closure_says_what_it_wants():
    for optimizer in (SAM(SGD(0.1)), LBFGS()):
        with pytest.raises(
            PuregraphError, match=r"wanted update\(closure\), where closure\(\) runs forward and backward"
        ):
            optimizer.setupOn(network()).update()
    with pytest.raises(ArgumentError):
        SAM(SGD(0.1), rho=-1)
    for way in ({"stages": 2}, {"tensor": 2}):
        with pytest.raises(DataError, match="LBFGS updates in a way of its own"):
            Trainer(network(), MSE(), LBFGS(), batchsize=16, progress="none", grains=2, **way).train(X, Y, epochs=1)


@pytest.mark.parametrize("optimizer", [lambda: SAM(SGD(0.1)), lambda: LBFGS(0.5, 3)], ids=["SAM", "LBFGS"])
def test_grains_of_a_batch_are_one_step_that_is_asked_for_again(optimizer):
    one, two = network(), network()
    options = {"progress": "none", "shuffle": False, "batchsize": 16}
    Trainer(one, MSE(), optimizer(), **options).train(X, Y, epochs=3)
    Trainer(two, MSE(), optimizer(), grains=4, **options).train(X, Y, epochs=3)
    for p, q in zip(one.params.values(), two.params.values()):
        np.testing.assert_allclose(p.data, q.data, rtol=1e-8, atol=1e-11)


def test_a_line_search_that_fails_leaves_the_weights_where_they_were():
    net = network().trainMode()
    optimizer, closure, calls = LBFGS(lineSearch="wolfe").setupOn(net), closureOf(net), []
    before = [p.data.copy() for p in net.params.values()]

    def failing():
        calls.append(1)
        if len(calls) > 3:
            raise KeyboardInterrupt
        cost = closure()
        return 1e9 if len(calls) == 3 else cost

    with pytest.raises(KeyboardInterrupt):
        optimizer.update(failing)
    for p, w in zip(net.params.values(), before):
        np.testing.assert_array_equal(p.data, w)
