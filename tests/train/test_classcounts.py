"""Precision, recall and F1, against their formulas written out class by class, as scikit-learn has them."""

import math
import re

import numpy as np
import pytest

import puregraph
from puregraph import (
    BCE,
    F1,
    Adam,
    ArgumentError,
    Confusion,
    DataError,
    EarlyStop,
    GraphWarning,
    Linear,
    Precision,
    Recall,
    Sequential,
    Sigmoid,
    Trainer,
)

KINDS = (Precision, Recall, F1)


def written(kind, taken, there):
    """tp / (tp + fp), tp / (tp + fn) and their harmonic mean, of bools; 0 for 0 / 0."""
    tp, fp, fn = (taken & there).sum(), (taken & ~there).sum(), (~taken & there).sum()
    precision, recall = tp / max(tp + fp, 1), tp / max(tp + fn, 1)
    both = 2 * precision * recall / (precision + recall) if tp else 0.0
    return {Precision: precision, Recall: recall, F1: both}[kind]


def classes(count):
    """For each class where it was taken and where it is: what `written` takes."""
    return lambda taken, there: [(taken == k, there == k) for k in range(count)]


def valueOf(metric, *batches):
    for prediction, target in batches:
        metric.update(prediction, target)
    return metric.value()


@pytest.fixture
def scores(rng):
    """Scores and labels of four classes; the last is never right."""
    x, t = rng.standard_normal((90, 4)), rng.integers(0, 3, 90)
    x[np.arange(90), t] += 0.7
    return x, t


@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_is_that_of_its_formula(kind, scores, rng):
    x, t = scores
    y, parts = x.argmax(1), np.split(np.arange(90), [7, 50])
    each = [written(kind, *pair) for pair in classes(4)(y, t)]
    batches = [(x[p], t[p]) for p in parts]
    assert valueOf(kind(classes=4), *batches) == pytest.approx(np.mean(each))
    assert valueOf(kind(average="micro"), *batches) == pytest.approx(np.mean(y == t))  # as of single labels
    assert [valueOf(kind(of=k), *batches) for k in range(4)] == pytest.approx(each)
    two = x[:, :2], (t > 0).astype(int)
    assert valueOf(kind(), two) == pytest.approx(written(kind, two[0].argmax(1) == 1, two[1] == 1))
    kept = t != 2
    assert valueOf(kind(of=1, ignore=2), (x, t)) == pytest.approx(written(kind, y[kept] == 1, t[kept] == 1))
    maps = np.moveaxis(x.reshape(9, 10, 4), -1, 1), t.reshape(9, 10)
    assert valueOf(kind(classes=4), maps) == valueOf(kind(classes=4, axis=-1), (x.reshape(9, 10, 4), maps[1]))
    assert valueOf(kind(classes=4), maps) == pytest.approx(np.mean(each))
    assert valueOf(kind(classes=4), (x, np.eye(4)[t])) == pytest.approx(np.mean(each))


@pytest.mark.parametrize("kind", KINDS)
def test_of_one_logit_and_of_decisions_it_is_that_of_the_yes(kind, rng):
    x, t = rng.standard_normal((40, 1)), rng.integers(0, 2, (40, 1)).astype("f4")
    assert valueOf(kind(), (x, t)) == pytest.approx(written(kind, x > 0, t == 1))
    assert valueOf(kind(), (x[:, 0], t[:, 0])) == pytest.approx(written(kind, x > 0, t == 1))
    assert valueOf(kind(threshold=0.5), (x, t)) == pytest.approx(written(kind, x > 0.5, t == 1))
    assert valueOf(kind(of=0), (x, t)) == pytest.approx(written(kind, x <= 0, t == 0))
    assert valueOf(kind(classes=2), (x, t)) == (valueOf(kind(of=0), (x, t)) + valueOf(kind(of=1), (x, t))) / 2
    x, t = rng.standard_normal((40, 3)), rng.integers(0, 2, (40, 3))
    each = [written(kind, x[:, k] > 0, t[:, k] == 1) for k in range(3)]
    single = np.eye(3, dtype=int)[:3]  # a batch in which each has one yes is of decisions as well
    batches = (x[:3], single), (x, t)
    assert valueOf(kind(classes=3), (x, t)) == pytest.approx(np.mean(each))
    both = np.concatenate([x[:3], x]), np.concatenate([single, t])
    assert valueOf(kind(average="micro"), *batches) == pytest.approx(written(kind, both[0] > 0, both[1] == 1))
    assert valueOf(kind(of=2), *batches) == pytest.approx(written(kind, both[0][:, 2] > 0, both[1][:, 2] == 1))


@pytest.mark.parametrize("kind", KINDS)
def test_without_anything_to_divide_by_it_is_zero_and_before_any_sample_nan(kind):
    no, yes = np.array([[1.0, 0.0]] * 3), np.array([[0.0, 1.0]] * 3)
    zeros = np.zeros(3, int)
    assert valueOf(kind(), (no, zeros)) == valueOf(kind(), (no, zeros + 1)) == valueOf(kind(), (yes, zeros)) == 0.0
    assert valueOf(kind(), (yes, zeros + 1)) == 1.0
    assert valueOf(kind(classes=2), (no, zeros)) == 1.0  # class 1 neither is nor was taken
    assert math.isnan(kind().value()) and math.isnan(valueOf(kind(ignore=0), (no, zeros)))
    assert valueOf(kind(), (no * np.nan, zeros + 1)) == 0.0


@pytest.mark.parametrize("make", [F1, lambda: F1(classes=3), lambda: Recall(average="micro")])
def test_it_goes_on_from_its_state(make, rng):
    hot = np.eye(3)[rng.integers(0, 3, 20)] if make is not F1 else rng.integers(0, 2, (20, 1))
    x = rng.standard_normal(hot.shape)
    first, second = make(), make()
    first.update(x[:9], hot[:9])
    second.restore(first.state())
    for metric in (first, second):
        metric.update(x[9:], hot[9:])
    assert first.value() == second.value() > 0


@pytest.mark.parametrize("grains", [None, 4])
def test_in_a_run_it_is_in_the_history_and_stops_it(grains, rng):
    puregraph.seed(0)
    x = rng.standard_normal((64, 3)).astype("f4")
    t = (x.sum(1, keepdims=True) > 0.5).astype("f4")
    metrics = [F1(), Precision(), Recall(), Recall(of=0, name="specificity")]
    options = {"batchsize": 16, "grains": grains, "progress": "none"}
    trainer = Trainer(Sequential(Linear(3, 1)), BCE(), Adam(0.05), metrics=metrics, **options)
    trainer.callbacks.append(EarlyStop("val f1", patience=5))
    history = trainer.train(x, t, epochs=12, validation=(x, t))
    taken = trainer.net(x) > 0
    found = {name: history[-1][f"val {name}"] for name in ("precision", "recall", "f1")}
    assert list(found.values()) == pytest.approx([written(kind, taken, t == 1) for kind in KINDS])
    assert history[-1]["val specificity"] == pytest.approx(written(Recall, ~taken, t == 0))
    assert {"f1", "val specificity"} <= set(history.names()) and history[-1]["f1"] > 0.7


def test_what_is_no_figure_of_that_kind_is_refused_with_what_to_write():
    x, t = np.zeros((4, 3)), np.array([0, 1, 2, 0])
    refusals = [
        (lambda: F1().update(x, t), DataError, "got 3 classes; F1(classes=3) is the mean over them, F1(of=0) is of"),
        (lambda: F1(of=3).update(x, t), DataError, "wanted predictions of more than 3 classes, got 3"),
        (lambda: Recall(classes=4).update(x, t), DataError, "wanted predictions of 4 classes, got 3"),
        (lambda: Recall(average="macro"), ArgumentError, "needs their number: Recall(classes=3)"),
        (lambda: Recall(classes=3, of=1), ArgumentError, "of=1 is one class, average='macro' is of all"),
        (lambda: Precision(average="weighted"), ArgumentError, "one of 'binary', 'macro', 'micro'"),
        (lambda: Precision(num_classes=3), ArgumentError, "did you mean classes?"),
        (lambda: F1(pos_label=1), ArgumentError, "did you mean of?"),
        (lambda: F1().update(np.zeros((4, 1)), np.full((4, 1), 2)), DataError, "f1: wanted targets 0 or 1"),
        (lambda: F1().update(x[:, :2], t), DataError, "wanted labels from 0 to 1 for 2 classes, got label 2"),
        (lambda: F1(classes=5).update(np.zeros((2, 4, 5)), np.zeros((2, 4), int)), DataError, "F1(axis=-1)"),
    ]
    for give, kind, words in refusals:
        with pytest.raises(kind, match=re.escape(words)):
            give()


def test_probabilities_with_the_threshold_of_logits_are_said():
    trainer = Trainer(Sequential(Linear(3, 1), Sigmoid()), puregraph.MSE(), Adam(), metrics=[F1()], progress="none")
    with pytest.warns(GraphWarning, match=r"write F1\(threshold=0.5\)"):
        trainer.train(np.zeros((4, 3), "f4"), np.ones((4, 1), "f4"))


def test_confusion_of_one_logit_is_of_no_and_yes():
    confusion = Confusion(2, names=["stays", "leaves"])
    logits, target = np.array([[-2.0], [3.0], [0.5], [-0.1]]), np.array([[0], [1], [0], [1]])
    assert valueOf(confusion, (logits, target)).tolist() == [[1, 1], [1, 1]]
    assert valueOf(Confusion(2, threshold=0.6), (logits[:, 0], target[:, 0].astype("f4"))).tolist() == [[2, 0], [1, 1]]
    assert confusion.f1().tolist() == [0.5, 0.5]
    lines = str(confusion.plot()).splitlines()
    assert lines[0].split()[-2:] == ["stays", "leaves"] and lines[2].split() == ["leaves", "1", "1"]
    assert str(confusion.plot(names="ab")).splitlines()[0].split()[-2:] == ["a", "b"]
    assert "<th>leaves</th>" in confusion._repr_html_().replace('<th scope="col">', "<th>")
    with pytest.raises(ArgumentError, match="wanted names of 2 classes, got 3"):
        Confusion(2, names="abc")
    with pytest.raises(DataError, match="wanted targets 0 or 1"):
        Confusion(2).update(logits, target + 1)
