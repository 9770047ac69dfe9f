"""Weights of samples: costs, gradients and figures are those by hand, in batches, in steps of several, in validation."""

import numpy as np
import pytest

import puregraph
from puregraph import (
    BCE,
    BLEU,
    CER,
    MSE,
    SGD,
    WER,
    Accuracy,
    CostSum,
    CrossEntropy,
    Graph,
    Linear,
    MeanAveragePrecision,
    Metric,
    Module,
    RocAuc,
    Spearman,
    Trainer,
    Validator,
)
from puregraph.core.errors import ArgumentError, DataError, GraphError, ShapeError

RNG = np.random.default_rng(3)
X = RNG.standard_normal((12, 4)).astype(np.float32)
LABELS = RNG.integers(0, 3, 12)
WEIGHT = RNG.random(12).astype(np.float32) * 3


def net(outputs=3):
    puregraph.seed(1)
    return Linear(4, outputs, name="fc")


def trained(cost, target, outputs=3, weight=WEIGHT, **options):
    """A network after one pass, the trainer, and the network as it was."""
    made = net(outputs)
    trainer = Trainer(made, cost, SGD(0.1), progress="none", shuffle=False, **options)
    trainer.train(X, target, sampleWeight=weight)
    return made, trainer, net(outputs)


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("compile", [True, False])
def test_a_step_of_weighed_labels_is_the_one_by_hand(compile):
    made, trainer, before = trained(CrossEntropy(), LABELS, compile=compile)
    p = softmax(before(X).astype(np.float64))
    slope = WEIGHT[:, None] * (p - np.eye(3)[LABELS]) / 12
    np.testing.assert_allclose(made.W.data, before.W.data - 0.1 * X.T @ slope, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(trainer.history[-1]["loss"], (-WEIGHT * np.log(p[range(12), LABELS])).mean(), rtol=1e-5)


@pytest.mark.parametrize("compile", [True, False])
def test_a_step_of_weighed_numbers_is_the_one_by_hand(compile):
    target = RNG.standard_normal((12, 2)).astype(np.float32)
    made, trainer, before = trained(MSE(), target, 2, compile=compile)
    off = before(X) - target
    np.testing.assert_allclose(
        made.W.data, before.W.data - 0.1 * X.T @ (2 * WEIGHT[:, None] * off / 24), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(trainer.history[-1]["loss"], (WEIGHT[:, None] * off**2).mean(), rtol=1e-5)


def test_four_batches_of_one_step_are_one_batch():
    whole, one, _ = trained(CrossEntropy(), LABELS, batchsize=12)
    parts, four, _ = trained(CrossEntropy(), LABELS, batchsize=3, accumulate=4)
    np.testing.assert_allclose(parts.W.data, whole.W.data, rtol=1e-5)
    np.testing.assert_allclose(four.history[-1]["loss"], one.history[-1]["loss"], rtol=1e-5)


def test_weights_of_one_change_nothing():
    weighed, _, _ = trained(CrossEntropy(), LABELS, weight=np.ones(12, int))
    plain, _, _ = trained(CrossEntropy(), LABELS, weight=None)
    np.testing.assert_allclose(weighed.W.data, plain.W.data, rtol=1e-6)


def test_class_weights_ignored_labels_and_smoothing_go_with_weights_of_samples():
    cost = CrossEntropy(weights=[1.0, 2.0, 0.5], ignoreIndex=0, smoothing=0.2)
    x = RNG.standard_normal((12, 3))
    classes = np.array([1.0, 2.0, 0.5])
    log = np.log(softmax(x))
    each = -0.8 * classes[LABELS] * log[range(12), LABELS] - 0.2 / 3 * (log * classes).sum(1)
    counts = LABELS != 0
    wanted = (each * WEIGHT * counts).sum() / (classes[LABELS] * counts).sum()
    np.testing.assert_allclose(cost(x, LABELS, WEIGHT.astype(np.float64)), wanted, rtol=1e-12)


def test_a_validation_is_weighed_by_its_own_weights_and_metrics_are_not():
    made = net()
    trainer = Trainer(made, CrossEntropy(), SGD(0.1), metrics=[Accuracy()], progress="none")
    row = trainer.train(X, LABELS, sampleWeight=WEIGHT, validation=(X, LABELS, WEIGHT))[-1]
    p = softmax(made(X).astype(np.float64))
    np.testing.assert_allclose(row["val loss"], (-WEIGHT * np.log(p[range(12), LABELS])).mean(), rtol=1e-5)
    assert row["val accuracy"] == (p.argmax(1) == LABELS).mean()
    found = Validator(made, CrossEntropy()).validate(X, LABELS, sampleWeight=WEIGHT)
    np.testing.assert_allclose(found["loss"], row["val loss"], rtol=1e-6)


def test_a_weighted_metric_reads_the_weights_of_samples_in_training_and_validation():
    made = net()
    metrics = [Accuracy(), Accuracy(name="again").weighted()]
    trainer = Trainer(made, CrossEntropy(), SGD(0.0), metrics=metrics, batchsize=5, progress="none")
    row = trainer.train(X, LABELS, sampleWeight=WEIGHT, validation=(X, LABELS))[-1]
    right = made(X).argmax(1) == LABELS
    assert row["accuracy"] == row["val weighted again"] == right.mean()  # no weights there
    np.testing.assert_allclose(row["weighted again"], (right * WEIGHT).sum() / WEIGHT.sum(), rtol=1e-6)
    found = Validator(made, CrossEntropy(), metrics[1:]).validate(X, LABELS, sampleWeight=WEIGHT)
    np.testing.assert_allclose(found["weighted again"], row["weighted again"], rtol=1e-6)


def test_grains_count_weighted_metrics_alike():
    rows = []
    for grains in (1, 3):
        metrics = [Accuracy().weighted(), RocAuc(classes=3).weighted()]
        trainer = Trainer(net(), CrossEntropy(), SGD(0.0), metrics=metrics, batchsize=6, grains=grains, progress="none")
        rows.append(trainer.train(X, LABELS, sampleWeight=WEIGHT)[-1])
    for name in ("weighted accuracy", "weighted rocauc"):
        np.testing.assert_allclose(rows[0][name], rows[1][name], rtol=1e-12)


def test_a_metric_without_weights_refuses_them():
    class Errors(Metric):
        def share(self, prediction, target):
            return (prediction.argmax(1) != target).sum(), len(target)

    with pytest.raises(ArgumentError, match=r"Errors: takes no weights of samples; .*weight=None"):
        Errors().weighted()
    for weight, words in ((-np.ones(12), "finite numbers from 0 on"), (np.ones(5), r"got shape \(5,\)")):
        with pytest.raises(DataError, match=words):
            Accuracy().update(np.zeros((12, 3)), LABELS, weight)


@pytest.mark.parametrize(
    ("metric", "prediction", "target"),
    [
        (Spearman(), np.arange(3.0), np.arange(3.0)),
        (CER(), ["kitten"], ["sitting"]),
        (WER(), ["the cat sat"], ["the cat sat down"]),
        (BLEU(order=2), ["the cat sat"], [["the cat sat down", "a cat sat"]]),
        (MeanAveragePrecision(thresholds=0.5), [[[0, 0, 10, 10, 0.9, 0]]], [[[0, 0, 10, 8, 0]]]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_metric_that_is_not_defined_with_weights_says_so(metric, prediction, target):
    with pytest.raises(ArgumentError, match=f"{type(metric).__name__}: takes no weights of samples; leave them out"):
        metric.update(prediction, target, np.ones(len(target)))
    assert np.isnan(metric.value())
    metric.update(prediction, target, None)
    assert metric.value() > 0


def test_a_fraction_is_held_out_with_its_weights():
    made = net()
    trainer = Trainer(made, CrossEntropy(), SGD(0.0), progress="none")
    row = trainer.train(X, LABELS, validation=0.25, sampleWeight=np.full(12, 2.0))[-1]
    plain = Trainer(net(), CrossEntropy(), SGD(0.0), progress="none").train(X, LABELS, validation=0.25)[-1]
    np.testing.assert_allclose(row["val loss"], 2 * plain["val loss"], rtol=1e-6)


def test_batches_have_weights_behind_their_targets():
    made = net()
    batches = [(X[i : i + 6], LABELS[i : i + 6], WEIGHT[i : i + 6]) for i in (0, 6)]
    Trainer(made, CrossEntropy(), SGD(0.1), progress="none").train(batches)
    other, _, _ = trained(CrossEntropy(), LABELS, batchsize=6)
    np.testing.assert_array_equal(made.W.data, other.W.data)


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (WEIGHT[:5], "wanted a number for each of 12 samples, got shape (5,)"),
        (WEIGHT[:, None], "wanted a number for each of 12 samples, got shape (12, 1)"),
        (-WEIGHT, "wanted finite numbers from 0 on, got -"),
        (np.full(12, np.nan), "got nan for sample 0"),
    ],
)
def test_weights_that_cannot_be_meant_are_refused(weight, words):
    with pytest.raises(DataError) as caught:
        trained(CrossEntropy(), LABELS, weight=weight)
    assert words in str(caught.value) and str(caught.value).startswith("sampleWeight: ")


class Plain(Module):
    """A cost without an input for weights."""

    def dataShapeFrom(self, x, labels):
        return ()

    def updateData(self, x, labels):
        return x.sum()

    def updateGrad(self, grad, x, labels, *outputs, needs):
        return np.broadcast_to(grad, x.shape), None


def test_a_cost_without_weights_says_which_have_them():
    for cost, label in ((Plain(), "Plain"), (CostSum({"fc": Plain()}), "the cost of 'fc', Plain,")):
        with pytest.raises(DataError, match=f"sampleWeight: {label} takes none; CrossEntropy, MSE"):
            trained(cost, LABELS)
    trainer = Trainer(net(), CrossEntropy(), SGD(0.1), progress="none")
    with pytest.raises(DataError, match="each is .data, target, sampleWeight."):
        trainer.train([(X, LABELS)], sampleWeight=WEIGHT)


def test_a_column_in_place_of_weights_is_refused_by_the_cost_and_as_a_second_target():
    with pytest.raises(ShapeError, match=r"sampleWeight of shape \(12,\)"):
        BCE().dataShapeFrom((12, 1), (12, 1), (12, 1))
    trainer = Trainer(net(1), BCE(), SGD(0.1), progress="none")
    with pytest.raises(GraphError, match="BCE takes x, target; .* got 2 targets"):
        trainer.train(X, [np.ones((12, 1), np.float32), WEIGHT[:, None]])


def test_a_compiled_step_takes_weights_behind_the_target():
    made = net()
    graph = Graph(x := puregraph.Input().node(), made.node(x))
    program = graph.compile([(12, 4), (12,)], cost=CrossEntropy(), sampleWeight=(12,))
    np.testing.assert_allclose(program.run(X, LABELS, WEIGHT)[0], CrossEntropy()(made(X), LABELS, WEIGHT), rtol=1e-5)


def test_a_last_shape_is_never_taken_for_that_of_weights_where_a_step_is_compiled():
    graph = Graph(x := puregraph.Input().node(), net().node(x))
    with pytest.raises(GraphError, match=r"got 2 targets; weights of samples are given as .* sampleWeight="):
        graph.compile([(12, 4), (12,), (12,)], cost=CrossEntropy())
    with pytest.raises(ShapeError, match=r"sampleWeight of shape \(12,\)"):
        graph.compile([(12, 4), (12,)], cost=CrossEntropy(), sampleWeight=(11,))
    with pytest.raises(GraphError, match="sampleWeight needs a cost, got none"):
        graph.compile([(12, 4)], sampleWeight=(12,))
    with pytest.raises(DataError, match="sampleWeight: the cost of 'fc', Plain, takes none"):
        graph.compile([(12, 4), (12,)], cost=CostSum({"fc": Plain()}), sampleWeight=(12,))
    program = graph.compile([(12, 4), (12,)], cost=CostSum({"fc": CrossEntropy()}), sampleWeight=(12,))
    found, wanted = program.run(X, LABELS, WEIGHT)[0], CrossEntropy()(graph(X), LABELS, WEIGHT)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_an_own_graph_reads_a_weight_by_name():
    x, t, w = (puregraph.Input(name=name).node() for name in "xtw")
    graph = Graph([x, t, w], CrossEntropy().node(net().node(x), t, sampleWeight=w))
    np.testing.assert_allclose(graph(X, LABELS, WEIGHT), CrossEntropy()(net()(X), LABELS, WEIGHT), rtol=1e-6)


@pytest.mark.parametrize("cost", [MSE(), BCE()], ids=["MSE", "BCE"])
def test_a_second_target_of_a_number_for_each_sample_is_never_taken_for_weights(cost):
    target = np.ones((12, 1), np.float32)
    for data, second in ((X, [target, WEIGHT]), ([(X, [target, WEIGHT])], None)):
        trainer = Trainer(net(1), cost, SGD(0.1), progress="none")
        with pytest.raises(GraphError, match=r"got 2 targets; weights of samples are given as .data, target, sampleW"):
            trainer.train(data, second)
    with pytest.raises(GraphError, match="got 2 targets; weights"):
        Trainer(net(1), cost, SGD(0.1), progress="none").train(X, target, validation=(X, [target, WEIGHT]))


def spoilt(i, value):
    found = WEIGHT.copy()
    found[i] = value
    return found


@pytest.mark.parametrize(("value", "shown"), [(np.nan, "nan"), (np.inf, "inf"), (-1.0, "-1.0")])
def test_weights_in_batches_and_validations_are_checked_and_their_position_named(value, shown):
    def refused(words, *given, **options):
        made = net()
        before = made.W.data.copy()
        with pytest.raises(DataError) as caught:
            Trainer(made, CrossEntropy(), SGD(0.1), progress="none").train(*given, **options)
        assert words in str(caught.value)
        return made, before

    words = f"sampleWeight: wanted finite numbers from 0 on, got {shown} for sample 4"
    refused(f"batch 2: {words}", [(X, LABELS, WEIGHT), (X, LABELS, spoilt(4, value))])
    made, before = refused(f"validation: {words}", X, LABELS, validation=(X, LABELS, spoilt(4, value)))
    np.testing.assert_array_equal(made.W.data, before)  # before the first step
    refused(f"batch 1: {words}", X, LABELS, validation=[(X, LABELS, spoilt(4, value))])
    refused("batch 1: sampleWeight: wanted a number for each of 12 samples, got shape (5,)", [(X, LABELS, WEIGHT[:5])])


def test_weights_that_are_all_zero_would_train_nothing_and_are_refused():
    trainer = Trainer(net(), CrossEntropy(), SGD(0.1), progress="none")
    with pytest.raises(DataError, match="sampleWeight: wanted a number above 0 for some sample, got 0 for all 12"):
        trainer.train(X, LABELS, sampleWeight=np.zeros(12))
    trainer.train([(X, LABELS, WEIGHT), (X, LABELS, 0 * WEIGHT)])  # a batch of the many may have none


def test_a_cost_without_weights_refuses_them_in_batches_and_in_a_validation():
    cost = {"fc": Plain()}
    for given, options in (([(X, LABELS, WEIGHT)], {}), ((X, LABELS), {"validation": (X, LABELS, WEIGHT)})):
        trainer = Trainer(net(), cost, SGD(0.1), progress="none")
        with pytest.raises(DataError, match="sampleWeight: the cost of 'fc', Plain, takes none; CrossEntropy, MSE"):
            trainer.train(*(given if isinstance(given, tuple) else [given]), **options)


@pytest.mark.parametrize("compile", [True, False])
def test_grains_have_the_weights_of_their_samples(compile):
    whole, one, _ = trained(CrossEntropy(), LABELS, batchsize=6, compile=compile)
    parts, four, _ = trained(CrossEntropy(), LABELS, batchsize=6, compile=compile, grains=4)
    np.testing.assert_allclose(parts.W.data, whole.W.data, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(four.history[-1]["loss"], one.history[-1]["loss"], rtol=1e-6)


def test_a_fast_run_has_the_weights():
    made = net()
    trainer = Trainer(made, CrossEntropy(), SGD(0.1), batchsize=2, progress="none", shuffle=False, fastRun=True)
    trainer.train(X, LABELS, sampleWeight=WEIGHT, validation=(X, LABELS, WEIGHT))
    other = net()
    Trainer(other, CrossEntropy(), SGD(0.1), batchsize=2, progress="none", shuffle=False).train(
        X[:6], LABELS[:6], sampleWeight=WEIGHT[:6]
    )
    np.testing.assert_array_equal(made.W.data, other.W.data)
