"""Weights of a CostSum that change: functions of the step, and weights that are learned."""

import numpy as np
import pytest

import puregraph as pg
from puregraph import MSE, SGD, CostSum, CrossEntropy, Graph, GraphError, Input, Linear, Trainer, Weight

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 4)).astype("f4")
TARGETS = {"digit": RNG.integers(0, 3, 24), "area": RNG.normal(size=(24, 1)).astype("f4")}


def network(*more):
    pg.seed(3)
    x = Input(name="x").node()
    h = Linear(4, 8, name="h")(x)
    return Graph([x], [Linear(8, 3, name="digit")(h), Linear(8, 1, name="area")(h), *more])


def costs(weights):
    return CostSum({"area": MSE(), "digit": CrossEntropy()}, weights)


def trained(net, cost, epochs=3, compile=True, **options):
    trainer = Trainer(net, cost, SGD(0.1), batchsize=8, progress="none", shuffle=False, compile=compile, **options)
    return trainer, trainer.train(X, TARGETS, epochs=epochs)


@pytest.mark.parametrize("compile", [False, True])
def test_a_weight_follows_its_function_of_the_step(compile):
    """As steps by hand, each with the weight of that step as a number."""
    net, own = network(), network()
    _, history = trained(net, costs({"area": lambda step: 0.5 / (1 + step)}), compile=compile)
    optimizer, total = SGD(0.1), []
    optimizer.setupOn(own)
    for step in range(9):
        part = slice(8 * (step % 3), 8 * (step % 3) + 8)
        digit, area = own(X[part])
        one, two = CrossEntropy(), MSE()
        total.append(one(digit, TARGETS["digit"][part]) + 0.5 / (1 + step) * two(area, TARGETS["area"][part]))
        one.backward(), two.backward()
        own.backward([one.grad[0], np.float32(0.5 / (1 + step)) * two.grad[0]])
        optimizer.update()
    for a, b in zip(net.params.values(), own.params.values(), strict=True):
        np.testing.assert_allclose(a.data, b.data, atol=1e-6)
    np.testing.assert_allclose(history[-1]["loss"], np.mean(total[6:]), rtol=1e-6)


def test_a_schedule_has_the_length_of_the_run_and_goes_on_after_resuming(tmp_path):
    trainer, _ = trained(network(), costs({"area": pg.Cosine()}), epochs=4)
    (schedule,) = trainer.cost.schedules
    assert schedule.total == 12
    first, _ = trained(network(), costs({"area": pg.Cosine(12)}), epochs=2)
    first.save(tmp_path / "run.h5")
    net = network()
    second = Trainer(net, costs({"area": pg.Cosine(12)}), SGD(0.1), batchsize=8, progress="none", shuffle=False)
    second.resume(tmp_path / "run.h5").train(X, TARGETS, epochs=2)
    for a, b in zip(net.params.values(), trainer.net.params.values(), strict=True):
        np.testing.assert_array_equal(a.data, b.data)


def doubting():
    return network(Weight((), name="doubt").node(), Weight((), name="other", initial=0.3).node())


@pytest.mark.parametrize("compile", [False, True])
def test_a_learned_weight_is_that_of_the_paper(compile):
    """cost exp(-s) + s / 2 of each task; at the minimum exp(s) is twice the cost."""
    net = doubting()
    weights = {"digit": "doubt", "area": "other"}
    found = costs(weights).inOrderOf(net)
    task = pg.compile.withCost(net, found, 1, 2)
    task(X, TARGETS["digit"], TARGETS["area"])
    total, digit, area, s, other, *parts = task.data
    np.testing.assert_allclose(total, parts[0] * np.exp(-s) + s / 2 + parts[1] * np.exp(-other) + other / 2, rtol=1e-6)
    task.backward([np.float32(1), *[None] * 6])
    np.testing.assert_allclose(net["doubt"].W.grad, 0.5 - parts[0] * np.exp(-s), rtol=1e-5)
    np.testing.assert_allclose(net["other"].W.grad, 0.5 - parts[1] * np.exp(-other), rtol=1e-5)
    _, history = trained(net, costs(weights), epochs=300, compile=compile)
    last = history[-1]
    np.testing.assert_allclose(np.exp(float(net["doubt"].W.data)), 2 * last["digit loss"], rtol=0.1)


def test_a_name_that_is_no_output_is_refused():
    with pytest.raises(GraphError, match="got one for 'doubt'"):
        Trainer(network(), costs({"area": "doubt"}), SGD(0.1))


@pytest.mark.parametrize("compile", [False, True])
def test_a_graph_of_several_outputs_and_targets_is_a_cost(compile):
    """With a margin of its own between the terms."""
    digit, area, digits, areas = (Input(name=name).node() for name in ("digit", "area", "digits", "areas"))
    one, two = CrossEntropy(name="one")(digit, digits), MSE(name="two")(area, areas)
    cost = Graph([digit, area, digits, areas], pg.Pointwise(formula="a + maximum(0.5 + b - a, 0)")(one, two))
    net, own = network(), network()
    targets = [TARGETS["digit"], TARGETS["area"]]
    trainer = Trainer(net, cost, SGD(0.1), batchsize=24, progress="none", compile=compile)
    (row,) = trainer.train(X, targets)
    outputs = own(X)
    value = cost(*outputs, *targets)
    cost.backward(np.float32(1))
    own.backward(cost.grad[:2])
    np.testing.assert_allclose(row["loss"], value, rtol=1e-6)
    for a, b in zip(net.params.values(), own.params.values(), strict=True):
        np.testing.assert_allclose(a.data, b.data - 0.1 * b.grad, atol=1e-6)
