"""The mean average precision of boxes beside COCO's definition, written out, over random cuts into batches."""

import numpy as np
import pytest
from batchcuts import valueOver
from fakecupy import useCupy

from puregraph import SGD, Linear, MeanAveragePrecision, Module, Sequential, Trainer
from puregraph.core.errors import ArgumentError, DataError

LEVELS = [0.5 + 0.05 * i for i in range(10)]


def overlap(a, b):
    wide = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    high = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    both = wide * high
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def hitsOf(boxes, truths, level):
    """(score, whether it matches) of the boxes of one class in one image."""
    free, found = list(truths), []
    for box in sorted(boxes, key=lambda b: -b[4]):
        best = max(free, key=lambda t: overlap(box, t), default=None)
        isHit = best is not None and overlap(box, best) >= level
        if isHit:
            free = [t for t in free if t is not best]
        found.append((box[4], isHit))
    return found


def byDefinition(images, targets, levels=LEVELS, points=101):
    areas = []
    for kind in sorted({t[4] for image in targets for t in image}):
        count = sum(t[4] == kind for image in targets for t in image)
        for level in levels:
            found = []
            for boxes, truths in zip(images, targets):
                found += hitsOf([b for b in boxes if b[5] == kind], [t for t in truths if t[4] == kind], level)
            found.sort(key=lambda pair: -pair[0])
            right, curve = 0, []
            for number, (_, isHit) in enumerate(found, 1):
                right += isHit
                curve.append((right / count, right / number))
            if points is None:
                recalls = sorted({0.0, *(r for r, _ in curve)})
                steps = [(b, b - a) for a, b in zip(recalls, recalls[1:])]
                areas.append(sum(w * max((p for r, p in curve if r >= at), default=0) for at, w in steps))
            else:
                grid = np.linspace(0, 1, points)
                areas.append(np.mean([max((p for r, p in curve if r >= at), default=0.0) for at in grid]))
    return np.mean(areas)


def someImages(rng):
    """Images with targets, near predictions of most of them and others, all of different scores."""
    images, targets = [], []
    for _ in range(int(rng.integers(1, 7))):
        low = rng.uniform(0, 30, (int(rng.integers(0, 5)), 2))
        truths = np.concatenate([low, low + rng.uniform(5, 20, low.shape), rng.integers(0, 3, (len(low), 1))], axis=1)
        near = truths[rng.random(len(truths)) < 0.8]
        near = np.concatenate([near[:, :4] + rng.normal(0, 1, (len(near), 4)), near[:, 4:]], axis=1)
        low = rng.uniform(0, 30, (int(rng.integers(0, 4)), 2))
        wrong = np.concatenate([low, low + rng.uniform(5, 20, low.shape), rng.integers(0, 3, (len(low), 1))], axis=1)
        boxes = np.concatenate([near, wrong])
        images.append(np.concatenate([boxes[:, :4], rng.random((len(boxes), 1)), boxes[:, 4:]], axis=1))
        targets.append(truths)
    targets[0] = np.concatenate([targets[0], [[0, 0, 8, 8, 1]]])
    return images, targets


def padded(images, size):
    most = max(map(len, images)) + 1
    array = np.full((len(images), most, size), -1.0)
    for row, boxes in zip(array, images):
        row[: len(boxes)] = boxes
    return array


@pytest.mark.parametrize("points", [101, None])
def test_it_is_the_definition_in_lists_and_in_padded_arrays(points):
    for number in range(200):
        rng = np.random.default_rng(number)
        images, targets = someImages(rng)
        wanted = byDefinition(images, targets, points=points)
        metric = MeanAveragePrecision(points=points)
        found = valueOver(rng, metric, padded(images, 6), padded(targets, 5))
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
        listed = MeanAveragePrecision(points=points)
        listed.update(images, targets)
        assert listed.value() == found


def test_the_order_of_images_has_no_effect_with_equal_scores_either():
    rng = np.random.default_rng(5)
    images, targets = someImages(rng)
    for boxes in images:
        boxes[:, 4] = boxes[:, 4].round(1)
    found = []
    for order in (range(len(images)), reversed(range(len(images)))):
        metric = MeanAveragePrecision(0.5)
        for i in order:
            metric.update([images[i]], [targets[i]])
        found.append(metric.value())
    assert found[0] == found[1] > 0


def test_extremes():
    box, truth = [0, 0, 4, 4, 0.5, 1], [0, 0, 4, 4, 1]
    metric = MeanAveragePrecision()
    assert np.isnan(metric.value()) and not metric.doubt()
    metric.update(np.zeros((0, 3, 6)), np.zeros((0, 2, 5)))
    metric.update([[box]], [[]])
    assert np.isnan(metric.value()) and metric.doubt() == "there are no targets"
    metric.update([[]], [[truth]])
    assert metric.value() == 0.0
    metric.reset()
    metric.update([[box, [*box[:4], 0.4, 1]]], [[truth]])
    assert metric.value() == 1.0
    few = MeanAveragePrecision(0.5, most=1)
    few.update([[[9, 9, 9, 9, 0.9, 1], box]], [[truth]])
    assert few.value() == 0.0


def test_what_does_not_fit_is_refused(monkeypatch):
    for thresholds in (0, [0.5, 1.5], []):
        with pytest.raises(ArgumentError, match="wanted thresholds above 0 and at most 1"):
            MeanAveragePrecision(thresholds)
    with pytest.raises(DataError, match=r"wanted predictions \(n, boxes, 6\), got \(2, 5\) for an image"):
        MeanAveragePrecision().update(np.zeros((1, 2, 5)), np.zeros((1, 2, 5)))
    with pytest.raises(DataError, match="wanted targets of 1 images, got 2"):
        MeanAveragePrecision().update(np.zeros((1, 2, 6)), np.zeros((2, 2, 5)))
    with pytest.raises(DataError, match="predictions that are numbers, got nan"):
        MeanAveragePrecision().update(np.array([[[0, 0, np.nan, 1, 0.5, 0]]]), np.zeros((1, 2, 5)))
    gpu = useCupy(monkeypatch)
    metric = MeanAveragePrecision()
    metric.update(gpu.asarray([[[0, 0, 4, 4, 0.5, 1]]]), gpu.asarray([[[0, 0, 4, 4, 1]]]))
    assert metric.value() == 1.0


class Size(Module):
    """A cost that looks at predictions alone."""

    def dataShapeFrom(self, x, target):
        return ()

    def updateData(self, x, target):
        return x.sum()

    def updateGrad(self, grad, x, target, *outputs, needs):
        return np.broadcast_to(grad, x.shape), None


def test_a_training_counts_boxes_of_any_number_of_grains_alike():
    rng = np.random.default_rng(1)
    pairs = [someImages(rng) for _ in range(4)]
    images, targets = (
        padded([x for some, _ in pairs for x in some], 6),
        padded([t for _, some in pairs for t in some], 5),
    )
    images = images.astype(np.float32)
    net = Linear(6, 6)
    net.W.data = np.eye(6, dtype=np.float32)
    rows = []
    for grains in (1, 2):
        metrics = [MeanAveragePrecision()]
        options = {"metrics": metrics, "batchsize": 3, "grains": grains, "progress": "none"}
        trainer = Trainer(Sequential(net), Size(), SGD(0.0), **options)
        rows.append(trainer.train(images, targets, validation=(images, targets))[-1])
    wanted = MeanAveragePrecision()
    wanted.update(images, targets)
    for row in rows:
        assert row["meanaverageprecision"] == row["val meanaverageprecision"] == wanted.value() > 0
