"""Penalties: what modules inside a network add to its cost, in eager passes, backward graphs and compiled steps."""

import numpy as np
import pytest

import puregraph as pg
from puregraph import (
    MSE,
    SGD,
    CostSum,
    CrossEntropy,
    Graph,
    Input,
    Linear,
    Penalty,
    Pointwise,
    Relu,
    Sequential,
    Trainer,
)
from puregraph.compile import withCost
from puregraph.train import Validator

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 4)).astype("f4")
DIGITS, AREAS = RNG.integers(0, 3, 40), RNG.normal(size=(40, 1)).astype("f4")
TARGETS = {"digit": DIGITS, "area": AREAS}


def network(nested=True):
    """Two heads on a body with a penalty, which is in a graph of its own if nested."""
    pg.seed(3)
    x = Input(name="x").node()
    body = [Linear(4, 8, name="h"), Relu(name="relu"), Penalty(0.1, "x ** 2", name="small")]
    if nested:
        h = Sequential(*body, name="body")(x)
    else:
        h = body[2](body[1](body[0](x)))
    return Graph([x], [Linear(8, 3, name="digit")(h), Linear(8, 1, name="area")(h)])


def costs(ignoreIndex=1):
    return CostSum({"digit": CrossEntropy(ignoreIndex=ignoreIndex), "area": MSE()}, {"area": 0.25})


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_the_figures_in_history_add_up_to_the_loss(compile, nested):
    name = "body.small loss" if nested else "small loss"
    for accumulate in (1, 2):
        options = {"batchsize": 16, "accumulate": accumulate, "progress": "none", "compile": compile}
        trainer = Trainer(network(nested), costs(1 if accumulate == 1 else None), SGD(0.05), **options)
        for row in trainer.train(X, TARGETS, epochs=2, validation=(X, TARGETS)):
            for p in ("", "val "):
                parts = row[f"{p}digit loss"] + 0.25 * row[f"{p}area loss"] + row[p + name]
                assert row[f"{p}loss"] == pytest.approx(parts, abs=1e-6)
                assert row[p + name] > 0.01


@pytest.mark.parametrize("compile", [False, True])
def test_beside_a_single_cost_it_is_a_figure_too(compile):
    pg.seed(1)
    net = Sequential(Linear(4, 3, name="fc"), Penalty(0.2, name="flat"))
    trainer = Trainer(net, CrossEntropy(ignoreIndex=1), SGD(0.1), batchsize=7, progress="none", compile=compile)
    (row,) = trainer.train(X[:14], DIGITS[:14])
    assert row["loss"] > row["flat loss"] > 0.01
    (after,) = [Validator(net, CrossEntropy(ignoreIndex=1), batchsize=40, compile=compile).validate(X, DIGITS)]
    y, counts = net(X), DIGITS != 1
    cost = CrossEntropy()(y[counts], DIGITS[counts])
    np.testing.assert_allclose(after["flat loss"], 0.2 * np.abs(y).sum() / 40, rtol=1e-5)
    np.testing.assert_allclose(after["loss"], cost + after["flat loss"], rtol=1e-6)


def asOneGraph(net):
    """The sum written as one graph, by hand."""
    small = net.getNodeByName("small")
    digits, areas = Input(name="digits").node(), Input(name="areas").node()
    (a, b), x = net.outputs, net.inputs[0]
    parts = CrossEntropy(ignoreIndex=1)(a, digits), MSE()(b, areas)
    both = Pointwise(formula="1.0 * c0 + 0.25 * c1")(*parts)
    return Graph([x, digits, areas], Pointwise(formula="c0 + c1")(both, (small, "cost")))


@pytest.mark.parametrize("compiled", [False, True])
def test_the_gradient_is_that_of_the_sum_written_as_one_graph(compiled):
    nets = [network(nested=False) for _ in range(2)]
    linked, written = withCost(nets[0], costs(), 1, 2), asOneGraph(nets[1])
    for graph in (linked, written):
        if compiled:
            program = pg.compile.Program(graph, [X.shape, DIGITS.shape, AREAS.shape], grads="one", train=True)
            program.run(X, DIGITS, AREAS)
        else:
            graph(X, DIGITS, AREAS)
            seeds = [np.float32(1), *[None] * (len(graph.data) - 1)] if isinstance(graph.data, list) else None
            graph.backward(seeds)
    for a, b in zip(nets[0].params.values(), nets[1].params.values(), strict=True):
        np.testing.assert_array_equal(a.grad, b.grad)


def test_a_step_by_hand_is_the_step_of_a_trainer():
    """Costs and network each go back for themselves; the penalty adds its gradient in trainMode, not in evalMode."""
    own, net = network(), network()
    trainer = Trainer(net, costs(), SGD(0.1), batchsize=40, shuffle=False, progress="none")
    trainer.train(X, TARGETS)
    digit, area = own(X)
    one, two = CrossEntropy(ignoreIndex=1), MSE()
    one(digit, DIGITS), two(area, AREAS)
    one.backward()
    two.backward()
    seeds = [one.grad[0], np.float32(0.25) * two.grad[0]]
    optimizer = SGD(0.1)
    optimizer.setupOn(own)
    own.backward(seeds)
    kept = own.params["body.h.W"].grad.copy()
    optimizer.update()
    for a, b in zip(own.params.values(), net.params.values(), strict=True):
        np.testing.assert_allclose(a.data, b.data, atol=1e-6)
    other = network().evalMode()
    other(X)
    other.backward(seeds)
    without = other.grad
    other.trainMode()(X)
    other.backward(seeds)
    assert np.abs(other.grad - without).max() > 1e-4
    np.testing.assert_array_equal(other.params["body.h.W"].grad, kept)


def test_a_cost_that_another_node_reads_is_not_added_again():
    pg.seed(3)
    x = Input(name="x").node()
    p = Penalty(0.5, "x ** 2", name="small")(x)
    total = Pointwise(formula="3 * c")((p, "cost"))
    net = Graph([x], [Linear(4, 1, name="fc")(p), total])
    row = Validator(net, CostSum({"fc": MSE()}), batchsize=40).validate(X, {"fc": AREAS})
    assert row["loss"] == row["fc loss"]
    assert float(net(X)[1]) == pytest.approx(1.5 * (X**2).sum() / 40, rel=1e-5)


@pytest.mark.parametrize(("module", "shape"), [*Penalty.examples()])
def test_its_gradient_is_that_of_both_outputs(module, shape, rng):
    x, v = rng.normal(size=shape[0]), rng.normal(size=shape[0])
    node = Input(name="x").node()
    p = module(node)
    net = Graph(node, [(p, 0), (p, "cost")])
    seeds = [rng.normal(size=shape[0]), np.float64(rng.normal())]

    def along(t):
        y, cost = net(x + t * v)
        return float((y * seeds[0]).sum() + cost * seeds[1])

    h = 1e-6
    wanted = (along(h) - along(-h)) / (2 * h)
    net(x)
    net.backward(seeds)
    np.testing.assert_allclose((net.grad * v).sum(), wanted, rtol=1e-7)
    program = pg.compile.Program(net, [x.shape], [x.dtype], grads=(True, True))
    program.run(x, *seeds)
    np.testing.assert_allclose(program.grad, net.grad, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_an_empty_batch_and_extremes(dtype):
    net = Sequential(Penalty(0.5, "x ** 2", name="small"))
    net.calcMode(dtype)
    for x in (np.zeros((0, 3)), np.array([[1e4, -88.0, 0.0]])):
        x = x.astype(dtype)
        np.testing.assert_array_equal(net(x), x)
        net.backward(np.zeros_like(x))
        np.testing.assert_allclose(net.grad, x, rtol=1e-3)


def test_it_is_stored_and_written(tmp_path):
    pytest.importorskip("onnx")
    from puregraph.onnx import toOnnx

    net = network()
    net.save(tmp_path / "net.h5")
    again = pg.load(tmp_path / "net.h5")
    trainer = Trainer(again, costs(), SGD(0.05), batchsize=40, progress="none")
    other = Trainer(net, costs(), SGD(0.05), batchsize=40, progress="none")
    assert trainer.train(X, TARGETS)[-1]["body.small loss"] == other.train(X, TARGETS)[-1]["body.small loss"]
    assert len(toOnnx(net, shapes=[("N", 4)]).graph.output) == 2


def test_a_formula_of_something_else_is_refused():
    with pytest.raises(pg.FormulaError, match="wanted a formula of x, such as 'abs"):
        Penalty(0.1, "y ** 2")
    with pytest.raises(pg.ShapeError, match="samples along the first axis"):
        Penalty().dataShapeFrom(())


def test_a_summary_and_the_pictures_show_it():
    net = network()
    (row,) = [line for line in pg.summary(net, (40, 4)).splitlines() if "Penalty" in line]
    assert "40, 8" in row
    backward = str(net.backwardGraph())
    assert "grad:body.small" in backward
    assert net.dataShapeFrom(("N", 4)) == [("N", 3), ("N", 1)]
