"""Error rates, BLEU and calibration beside their definitions, written out, over random cuts into batches."""

import copy
from functools import cache

import numpy as np
import pytest
from batchcuts import cut, valueOver
from fakecupy import useCupy

import puregraph
from puregraph import (
    BLEU,
    CER,
    SGD,
    WER,
    CalibrationError,
    CrossEntropy,
    Linear,
    Perplexity,
    Sequential,
    Trainer,
)
from puregraph.core.errors import DataError


def edits(a, b):
    """The edit distance by its recursive definition."""

    @cache
    def of(i, j):
        if not i or not j:
            return i + j
        return min(of(i - 1, j) + 1, of(i, j - 1) + 1, of(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    return of(len(a), len(b))


def someTexts(rng, n):
    """Pairs of texts, the second one changed here and there; some are empty."""
    pairs = []
    for _ in range(n):
        words = ["".join(rng.choice(list("abc"), int(rng.integers(1, 4)))) for _ in range(int(rng.integers(0, 9)))]
        other = [w for w in words if rng.random() < 0.9]
        if rng.random() < 0.3:
            other.insert(0, "cab")
        pairs.append((" ".join(words), " ".join(other)))
    return [a for a, _ in pairs], [b for _, b in pairs]


def overTexts(rng, metric, predicted, actual):
    """The value over random cuts, of which two metrics count some each."""
    other = copy.deepcopy(metric)
    for number, part in enumerate(cut(rng, len(predicted))):
        (metric, other)[number % 2].update(predicted[part], actual[part])
    metric.merge(other.state())
    return metric.value()


@pytest.mark.parametrize(("kind", "units"), [(CER, str), (WER, str.split)])
def test_error_rates_are_edit_distances_over_lengths(kind, units):
    for number in range(200):
        rng = np.random.default_rng(number)
        predicted, actual = someTexts(rng, int(rng.integers(1, 8)))
        actual[0] = "ab c"
        wanted = sum(edits(tuple(units(a)), tuple(units(b))) for a, b in zip(predicted, actual))
        found = overTexts(rng, kind(), predicted, actual)
        np.testing.assert_allclose(found, wanted / sum(len(units(b)) for b in actual), rtol=1e-12)


def test_integers_are_characters_and_a_space_divides_them_into_words():
    def numbered(texts):
        rows = [[" abc".index(c) for c in text] for text in texts]
        wide = max(map(len, rows)) + 1
        return np.array([row + [-1] * (wide - len(row)) for row in rows])

    for number in range(50):
        rng = np.random.default_rng(number)
        predicted, actual = someTexts(rng, 5)
        actual[0] = "ab c"
        for metric, same in ((CER(), CER()), (WER(space=0), WER())):
            same.update(predicted, actual)
            assert valueOver(rng, metric, numbered(predicted), numbered(actual)) == same.value()


def test_scores_are_read_by_their_best_class_and_as_ctc():
    path = np.array([[0, 1, 1, 0, 1, 2, 2], [3, 3, 0, 0, 3, 0, 0]])
    scores = np.eye(4)[path]
    metric = CER(blank=0)
    metric.update(scores, np.array([[1, 1, 2], [3, 3, -1]]))
    assert metric.value() == 0.0
    plain = CER()
    plain.update(scores, path)
    plain.update(scores[:, :0], path[:, :0])
    assert plain.value() == 0.0
    words = WER(axis=1)
    words.update(scores.transpose(0, 2, 1), path[::-1])
    assert words.value() == 1.0 * sum(edits(tuple(a), tuple(b)) for a, b in zip(path, path[::-1])) / 14


def bleuByDefinition(predicted, references, order):
    total = 1.0
    for n in range(1, order + 1):
        right = count = 0
        for words, several in zip(predicted, references):
            own = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
            for gram in set(own):
                most = max(sum(tuple(r[i : i + n]) == gram for i in range(len(r) - n + 1)) for r in several)
                right += min(own.count(gram), most)
            count += len(own)
        if not right:
            return 0.0
        total *= (right / count) ** (1 / order)
    length = sum(map(len, predicted))
    closest = sum(min((abs(len(r) - len(p)), len(r)) for r in several)[1] for p, several in zip(predicted, references))
    return total * min(1, np.exp(1 - closest / length))


def test_bleu_is_its_definition_with_several_references():
    above = 0
    for number in range(200):
        rng = np.random.default_rng(number)
        order = int(rng.integers(1, 5))
        predicted, first = someTexts(rng, int(rng.integers(1, 9)))
        several = [[t, *someTexts(rng, int(rng.integers(0, 3)))[0]] for t in first]
        wanted = bleuByDefinition(
            [p.split() for p in predicted], [[r.split() for r in refs] for refs in several], order
        )
        if not any(predicted) and not any(map(any, several)):
            wanted = np.nan
        found = overTexts(rng, BLEU(order), predicted, several)
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
        above += wanted > 0
    assert above > 100


def test_bleu_of_integers_is_that_of_words():
    tokens, target = np.array([[5, 6, 7, 8, -1], [1, 2, 3, 4, 5]]), np.array([[5, 6, 7, 8, 9], [1, 2, 3, 4, -1]])
    metric, same, scored = BLEU(), BLEU(), BLEU()
    metric.update(tokens, target)
    same.update(["5 6 7 8", "1 2 3 4 5"], ["5 6 7 8 9", "1 2 3 4"])
    assert 0 < metric.value() == same.value() < 1
    scored.update(np.eye(10)[tokens[1:]], target[1:])
    same.reset()
    same.update(["1 2 3 4 5"], ["1 2 3 4"])
    assert scored.value() == same.value()


def calibration(p, right, w, intervals, norm):
    differences, shares = [], []
    for b in range(intervals):
        inside = (p > b / intervals) & (p <= (b + 1) / intervals) | (p == 0) & (b == 0)
        if w[inside].sum():
            differences.append(
                abs(np.average(right[inside], weights=w[inside]) - np.average(p[inside], weights=w[inside]))
            )
            shares.append(w[inside].sum() / w.sum())
    d, s = np.array(differences), np.array(shares)
    return {"l1": (s * d).sum(), "l2": np.sqrt((s * d**2).sum()), "max": d.max()}[norm]


@pytest.mark.parametrize("isWeighed", [False, True])
@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_the_calibration_error_is_its_definition(norm, isWeighed):
    for number in range(200):
        rng = np.random.default_rng(number)
        n, intervals = int(rng.integers(1, 50)), int(rng.integers(1, 16))
        w = rng.random(n) if isWeighed else np.ones(n)
        weights = [w] if isWeighed else []
        x, t = rng.normal(size=(n, 4)), rng.integers(0, 4, n)
        p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
        wanted = calibration(p.max(1), (x.argmax(1) == t).astype(float), w, intervals, norm)
        found = valueOver(rng, CalibrationError(intervals, norm), x, t, *weights)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
        yes, p = rng.integers(0, 2, n), rng.integers(0, 9, n) / 8  # on the limits of intervals
        found = valueOver(rng, CalibrationError(8, norm, probabilities=True), p, yes, *weights)
        np.testing.assert_allclose(found, calibration(p, yes.astype(float), w, 8, norm), rtol=1e-9, atol=1e-12)


def test_extremes_and_what_does_not_fit(monkeypatch):
    for metric in (CER(), WER(), BLEU(), CalibrationError()):
        assert np.isnan(metric.value())
    for kind in (CER, WER, BLEU):
        with pytest.raises(DataError, match="wanted predictions as a list of texts, got one text"):
            kind().update("a", ["a"])
        with pytest.raises(DataError, match="wanted as many predictions as targets, got 1 and 2"):
            kind().update(["a"], ["a", "b"])
        with pytest.raises(DataError, match=r"wanted targets as integers \(n, t\), got shape \(3,\)"):
            kind().update(np.zeros((3, 2), int), np.zeros(3, int))
        kind().update([], [])
    empty = CER()
    empty.update(["ab"], [""])
    assert np.isnan(empty.value()) and empty.doubt() == "all targets are empty"
    with pytest.raises(DataError, match="wanted probabilities from 0 to 1, got 3"):
        CalibrationError(probabilities=True).update(np.array([[3.0, 0.0]]), np.array([0]))
    gpu = useCupy(monkeypatch)
    metric = CER()
    metric.update(gpu.asarray(np.eye(3)[[[1, 2]]]), gpu.asarray(np.array([[1, 1]])))
    assert metric.value() == 0.5


def test_training_with_them_is_equal_for_any_number_of_grains():
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((12, 5, 4)).astype(np.float32), rng.integers(0, 4, (12, 5))
    rows = []
    for grains in (1, 3):
        puregraph.seed(0)
        metrics = [CER(), WER(space=0), BLEU(2), Perplexity(axis=-1), CalibrationError(axis=-1)]
        net, cost = Sequential(Linear(4, 4)), CrossEntropy(axis=-1)
        trainer = Trainer(net, cost, SGD(0.0), metrics=metrics, batchsize=6, grains=grains, progress="none")
        rows.append(trainer.train(x, labels, validation=(x, labels))[-1])
    for name in ("cer", "wer", "bleu", "perplexity", "calibrationerror"):
        np.testing.assert_allclose(rows[0][name], rows[1][name], rtol=1e-12)
        np.testing.assert_allclose(rows[0][f"val {name}"], rows[0][name], rtol=1e-6)
    assert rows[0]["perplexity"] == pytest.approx(np.exp(rows[0]["loss"]), rel=1e-5)
