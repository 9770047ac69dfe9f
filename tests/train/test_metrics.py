"""Metrics: known values, streaming equal to all at once, and what does not fit."""

import math

import numpy as np
import pytest
from fakecupy import useCupy

from puregraph.core.errors import ArgumentError, DataError, PuregraphError
from puregraph.data import Batch
from puregraph.train import MAE, Accuracy, Confusion, Meters, Metric, TopK

LOGITS = np.array([[0.1, 0.7, 0.2], [0.9, 0.0, 0.1], [0.3, 0.3, 0.4], [0.2, 0.5, 0.3]])
LABELS = np.array([1, 0, 1, 2])


def valueOf(metric, *batches):
    metric.reset()
    for prediction, target in batches:
        metric.update(prediction, target)
    return metric.value()


def test_accuracy_counts_the_likeliest_class():
    assert valueOf(Accuracy(), (LOGITS, LABELS)) == 2 / 4
    assert valueOf(Accuracy(ignore=-1), (LOGITS, np.array([1, 0, -1, -1]))) == 1.0
    assert valueOf(Accuracy(), (LOGITS, np.array([1, 0, 0, 0]))) == 0.5


def test_accuracy_of_yes_and_no():
    logits, target = np.array([[-2.0], [3.0], [0.5], [-0.1]]), np.array([[0], [1], [0], [1]])
    assert valueOf(Accuracy(), (logits, target)) == 0.5
    assert valueOf(Accuracy(threshold=0.6), (logits, target)) == 0.75


@pytest.mark.parametrize("metric", [Accuracy(), TopK(2), Confusion(3)], ids=repr)
@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([1, 0, -1, 1], "got label -1 for sample 2 of the batch; .* leave such positions out with ignore=-1"),
        ([1, 3, 2, 1], "got label 3 for sample 1 of the batch; classes are counted from 0: give labels - 1"),
        ([1, -1, 1, 1], "got label -1 for sample 1 of the batch; classes are counted from 0: give .labels . 1. // 2"),
        ([0, 9, 2, 1], "got label 9 for sample 1 of the batch; the network gives 3 classes"),
    ],
)
def test_a_metric_refuses_a_label_that_is_no_class_with_its_position(metric, labels, words):
    with pytest.raises(DataError, match=f"^{metric.name}: wanted labels from 0 to 2 for 3 classes, {words}"):
        valueOf(metric, (LOGITS, np.array(labels)))


@pytest.mark.parametrize("metric", [Accuracy, lambda: TopK(2), lambda: Confusion(3)])
@pytest.mark.parametrize("kind", [int, float, bool])
def test_one_hot_targets_count_as_the_labels_that_they_are(metric, kind):
    hot = np.eye(3)[LABELS].astype(kind)
    np.testing.assert_array_equal(valueOf(metric(), (LOGITS, hot)), valueOf(metric(), (LOGITS, LABELS)))


def test_targets_of_which_several_are_yes_are_decisions_in_every_batch():
    logits = np.array([[2.0, -1.0, 3.0], [-1.0, 2.0, 1.0]])
    several, single = np.array([[1, 0, 1], [0, 1, 0]]), np.array([[0, 0, 1], [0, 1, 0]])
    assert valueOf(Accuracy(), (logits, single), (logits, several)) == (4 + 5) / 12
    assert valueOf(Accuracy(), (logits, several), (logits, single)) == (4 + 5) / 12
    assert valueOf(Accuracy(), (logits, single)) == 1.0


def test_accuracy_goes_on_from_saved_sums_of_decisions():
    logits, target = np.array([[2.0, -1.0], [-1.0, 2.0]]), np.array([[1, 1], [0, 1]])
    metric, other = Accuracy(), Accuracy()
    metric.update(logits, target)
    other.restore(metric.state())
    assert other.value() == metric.value() == 0.75


@pytest.mark.parametrize(
    ("prediction", "target", "words"),
    [
        (
            np.zeros((4, 1)),
            [[0.5], [1.5], [0.0], [1.0]],
            r"targets 0 or 1 .* got 0.5 for sample 0 of the batch .*; for a regression .*MAE",
        ),
        (
            np.zeros((4, 1)),
            [[-1], [1], [1], [-1]],
            r"got -1 for sample 0 of the batch .*; give \(target \+ 1\) / 2 in place of -1 and 1",
        ),
        (np.zeros((4, 1)), [[2], [1], [0], [1]], "got 2 for sample 0 of the batch"),
        (np.zeros((4, 3)), [0.3, 1.7, 0.0, 0.9], "float64 targets .4,.; for a regression there is MAE"),
        (np.zeros((4, 3)), [0.0, 1.0, 2.0, 0.0], "float64 targets .4,.; convert them with .astype"),
    ],
)
def test_accuracy_of_a_regression_is_refused(prediction, target, words):
    with pytest.raises(DataError, match=f"accuracy: .*{words}"):
        valueOf(Accuracy(), (prediction, np.array(target)))


def test_a_prediction_that_is_nan_is_not_right():
    nan = np.full((4, 3), np.nan)
    assert valueOf(Accuracy(), (nan, np.zeros(4, int))) == 0.0
    assert valueOf(Accuracy(), (nan[:, :1], np.zeros((4, 1)))) == 0.0


def test_accuracy_of_maps_has_classes_on_its_axis(rng):
    x, t = rng.standard_normal((3, 4, 5, 2)), rng.integers(0, 4, (3, 5, 2))
    wanted = np.mean(x.argmax(1) == t)
    assert valueOf(Accuracy(), (x, t)) == pytest.approx(wanted)
    assert valueOf(Accuracy(axis=-1), (np.moveaxis(x, 1, -1), t)) == pytest.approx(wanted)


def test_topk_counts_the_k_likeliest():
    assert [valueOf(TopK(k), (LOGITS, LABELS)) for k in (1, 2, 3)] == [0.5, 0.75, 1.0]
    assert TopK(3).name == "top3"
    with pytest.raises(DataError, match="top4: wanted k of at most 3, the number of classes, got 4"):
        valueOf(TopK(4), (LOGITS, LABELS))


def test_top1_is_accuracy_also_with_equals(rng):
    x, t = rng.integers(0, 3, (500, 4)).astype(float), rng.integers(0, 4, 500)
    assert valueOf(TopK(1), (x, t)) == valueOf(Accuracy(), (x, t))
    assert valueOf(TopK(2), (np.zeros((4, 4)), np.arange(4))) == 0.5


def test_topk_does_not_count_nan():
    assert valueOf(TopK(3), (np.full((2, 4), np.nan), np.array([0, 1]))) == 0.0


def test_topk_of_maps(rng):
    x, t = rng.standard_normal((3, 5, 4)), rng.integers(0, 5, (3, 4))
    best = np.argsort(-x, axis=1)[:, :2]
    assert valueOf(TopK(2), (x, t)) == pytest.approx(np.mean((best == t[:, None]).any(1)))


def test_confusion_has_the_truth_in_its_rows():
    metric = Confusion(3)
    assert valueOf(metric, (LOGITS, LABELS)).tolist() == [[1, 0, 0], [0, 1, 1], [0, 1, 0]]
    assert metric.recall().tolist() == [1.0, 0.5, 0.0]
    assert metric.precision().tolist() == [1.0, 0.5, 0.0]
    assert metric.f1().tolist() == [1.0, 0.5, 0.0]
    metric.value()[:] = 9
    assert metric.value().sum() == 4


def test_confusion_of_an_absent_class_is_nan():
    metric = Confusion(3)
    valueOf(metric, (LOGITS[:2], np.array([1, 0])))
    assert math.isnan(metric.recall()[2]) and math.isnan(metric.precision()[2]) and math.isnan(metric.f1()[2])


def test_mae_is_the_mean_over_elements():
    x, t = np.array([[1.0, 2.0], [3.0, 5.0]], np.float32), np.array([[0, 2], [5, 5]])
    assert valueOf(MAE(), (x, t)) == 0.75


@pytest.mark.parametrize("make", [Accuracy, lambda **own: TopK(2, **own), lambda **own: Confusion(4, **own)])
def test_streaming_equals_all_at_once(rng, make):
    x, t = rng.standard_normal((100, 4)), rng.integers(-1, 4, 100)
    parts = np.split(np.arange(100), [7, 50, 93])
    whole, streamed = valueOf(make(ignore=-1), (x, t)), valueOf(make(ignore=-1), *[(x[p], t[p]) for p in parts])
    assert np.array_equal(whole, streamed)


@pytest.mark.parametrize("make", [Accuracy, lambda: TopK(2), lambda: Confusion(4)])
def test_a_metric_goes_on_from_its_state(rng, make):
    x, t = rng.standard_normal((20, 4)), rng.integers(0, 4, 20)
    first, second = make(), make()
    first.update(x[:8], t[:8])
    state = first.state()
    first.update(x[8:], t[8:])
    second.restore(state)
    second.update(x[8:], t[8:])
    assert np.array_equal(first.value(), second.value())


def test_a_metric_without_samples_is_nan():
    assert math.isnan(Accuracy().value()) and math.isnan(valueOf(Accuracy(ignore=-1), (LOGITS, np.full(4, -1))))


@pytest.mark.parametrize(
    ("metric", "prediction", "target", "words"),
    [
        (Accuracy(), LOGITS, LABELS[:2], r"accuracy: wanted .* got predictions \(4, 3\)"),
        (Accuracy(), LOGITS, LABELS.astype(float), "float64 targets"),
        (TopK(2), LOGITS[:, 0], LABELS, "classes on axis 1"),
        (TopK(2), LOGITS, np.array([0, 1, 2, 3]), "top2: wanted labels from 0 to 2 .*, got label 3"),
        (Confusion(3), LOGITS, np.array([0, 1, 2, 3]), "wanted labels from 0 to 2 .* got label 3"),
        (Confusion(5), LOGITS, LABELS, "wanted predictions of 5 classes, got 3"),
        (MAE(), LOGITS, LABELS, r"mae: wanted targets of shape \(4, 3\), got \(4,\)"),
    ],
)
def test_what_does_not_fit_is_named(metric, prediction, target, words):
    with pytest.raises(DataError, match=words):
        metric.update(prediction, target)


def test_k_is_at_least_one():
    with pytest.raises(ArgumentError, match="k as a whole number of at least 1, got 0"):
        TopK(0)


def test_an_own_metric_says_what_it_counts():
    class Largest(Metric):
        def share(self, prediction, target):
            return prediction.max(), 1

    assert valueOf(Largest(), (LOGITS, LABELS)) == 0.9 and Largest().name == "largest"
    with pytest.raises(NotImplementedError, match="write share"):
        Metric().update(LOGITS, LABELS)


def test_two_metrics_of_one_name_are_refused():
    with pytest.raises(DataError, match="two have one name"):
        Meters([Accuracy(), Accuracy(axis=2)])
    Meters([Accuracy(), Accuracy(axis=2, name="other")])
    with pytest.raises(DataError, match="wanted Metrics"):
        Meters(["accuracy"])


# Meters --------------------------------------------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch):
    """A GPU that does things when somebody waits for them; its arrays."""
    return useCupy(monkeypatch, late="null first")


def test_a_gpu_is_read_every_few_batches(gpu):
    meters = Meters([Accuracy()])
    logits, labels = gpu.asarray(LOGITS), gpu.asarray(LABELS)
    for number in range(70):
        meters.add(gpu.asarray(np.float32(number)), [logits], Batch([], [labels], 4))
        assert meters.weight == 4 * 16 * max((number + 1) // 16 - 1, 0)
    assert meters.samples == 280
    assert gpu.machine.reads == 0
    assert meters.row() == {"loss": 34.5, "accuracy": 0.5}
    assert meters.weight == 280


def test_how_often_is_for_people_to_say(gpu):
    meters = Meters(every=3)
    seen = []
    for number in range(12):
        meters.add(gpu.asarray(np.float32(number)), [], Batch([], [], 4))
        seen.append(meters.weight // 4)
    assert seen == [0, 0, 0, 0, 0, 3, 3, 3, 6, 6, 6, 9]


def test_large_results_are_read_sooner(gpu):
    meters = Meters([MAE()])
    large = gpu.asarray(np.zeros((1 << 22, 1), np.float32))
    for number in range(5):
        meters.add(gpu.asarray(np.float32(0)), [large], Batch([], [large], 1))
        assert len(meters.waiting) == min(number + 1, 3)


def test_what_no_metric_looks_at_is_not_sent(gpu):
    meters = Meters([MAE(which=1)])
    logits = gpu.asarray(LOGITS)
    meters.add(gpu.asarray(np.float32(1)), [None, logits], Batch([], [LABELS, LOGITS], 4), "epoch 1, batch 1")
    assert meters.waiting[0].parcel.nbytes == 64 + -(-LOGITS.nbytes // 64) * 64
    assert meters.row()["mae"] == 0.0


@pytest.mark.parametrize("wrong", [0, 7, 15])
def test_a_cost_that_is_read_late_is_still_named(gpu, wrong):
    meters = Meters()
    with pytest.raises(PuregraphError, match=f"^epoch 1, batch {wrong}: the cost is nan"):
        for number in range(32):
            cost = gpu.asarray(np.float32(np.nan if number >= wrong else 1))
            meters.add(cost, [], Batch([], [], 4), f"epoch 1, batch {number}")


def test_what_was_wrong_with_data_is_said_while_the_data_is_kept(gpu, monkeypatch):
    monkeypatch.setattr("puregraph.train.meters.MAX_PENDING_BYTES", 4000)

    def go(later):
        meters, data = Meters(), np.full((10, 10), np.nan, np.float32)
        meters.add(gpu.asarray(np.float32(np.nan)), [], Batch([data], [], 10), "here")
        for _ in range(later):
            meters.add(gpu.asarray(np.float32(1)), [], Batch([data], [], 10), "there")
        with pytest.raises(PuregraphError) as caught:
            meters.flush()
        return str(caught.value)

    words = "here: the cost is nan; data (sample 0) of this batch holds values that are not finite; np.argwhere("
    assert go(3).startswith(words)
    assert "look at the data" in go(12)


def test_results_that_nobody_reads_are_waited_for_before_their_memory_is_free(gpu):
    meters = Meters()
    meters.add(gpu.asarray(np.float32(1)), [], Batch([], [], 1))
    before = gpu.machine.waits
    meters.reset()
    assert gpu.machine.waits == before + 1


def test_the_mean_cost_is_weighted():
    meters = Meters()
    for cost, size in ((1.0, 4), (4.0, 1), (2.0, 5)):
        meters.add(np.float64(cost), [], Batch([], [], size))
    assert meters.row("val ") == {"val loss": (4 + 4 + 10) / 10}
    other = Meters()
    other.restore(meters.state())
    assert other.row() == {"loss": 1.8}


def test_a_metric_of_an_output_that_is_not_there_is_named():
    meters = Meters([MAE(which=1)])
    with pytest.raises(DataError, match="mae: wanted number 1 of the outputs, got 1"):
        meters.add(np.float64(0), [LOGITS], Batch([], [LOGITS], 4))


@pytest.mark.parametrize("share", [0.5, np.float64(0.5), np.ones(3), [1, 2, 3]])
def test_a_share_that_is_not_two_sums_is_refused(share):
    class Own(Metric):
        def share(self, prediction, target):
            return share

    with pytest.raises(DataError, match=r"own: wanted share\(prediction, target\) to give two sums, such as"):
        Own().update(np.ones((3, 2)), np.ones(3))
