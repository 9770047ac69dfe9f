"""MeanAveragePrecision: how well predicted boxes match actual ones, as COCO measures it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from puregraph.core import device
from puregraph.core.arguments import Count, isNumber, takes
from puregraph.core.errors import ArgumentError, DataError, show
from puregraph.train.metrics.curveareas import cumulated
from puregraph.train.metrics.gatheredmetric import GatheredMetric
from puregraph.train.metrics.metric import needNotNan
from puregraph.train.metrics.sequences import arrayOf

COCO = tuple(np.linspace(0.5, 0.95, 10).tolist())


class MeanAveragePrecision(GatheredMetric):
    """The mean over classes and thresholds of intersection over union (IoU) of the area under precision and recall.

    In an image, boxes of a class are matched in the order of their scores: each to the free target of the largest IoU,
    if that is at least the threshold. The precision at a recall is the largest at it or a higher one; the area is the
    mean over `points` recalls from 0 to 1, or exact. Boxes of equal score enter together, so that the order of images
    has no effect; this is pycocotools' mAP of all areas where scores differ. There are no crowds.

    `thresholds`  a number, or several; by default COCO's, 0.5, 0.55, ... 0.95
    `points`      101 recalls as COCO; None: the exact area, as PASCAL VOC from 2010 on
    `most`        the number of boxes of a class in an image that count: those of the highest scores

    Shapes    predictions (n, boxes, 6) of x1, y1, x2, y2, score, class; targets (n, boxes, 5) of x1, y1, x2, y2, class;
              or lists of the boxes of images; a class below 0 pads
    Source    Lin et al. 2014, Microsoft COCO: Common Objects in Context, arXiv:1405.0312
    Raises    ArgumentError for thresholds that are not above 0 and at most 1; DataError for other shapes, or nan

    >>> metric = MeanAveragePrecision(thresholds=0.5)
    >>> metric.update([[[0, 0, 10, 10, 0.9, 0], [20, 20, 30, 30, 0.8, 0]]], [[[0, 0, 10, 8, 0]]])
    >>> metric.value()
    1.0
    """

    comparesArrays = False

    @takes(points=Count | None, most=Count)
    def __init__(
        self,
        thresholds: float | Sequence[float] | None = None,
        points: int | None = 101,
        most: int = 100,
        which: int = 0,
        name: str | None = None,
    ):
        levels: Any = COCO if thresholds is None else [thresholds] if isNumber(thresholds) else thresholds
        isList = isinstance(levels, (list, tuple, np.ndarray)) and len(levels) > 0
        if not isList or not all(isNumber(level) and 0 < level <= 1 for level in levels):
            raise ArgumentError(
                f"{type(self).__name__}: wanted thresholds above 0 and at most 1, got {thresholds!r:.60}"
            )
        self.thresholds = np.array(levels, np.float64)
        self.points, self.most = points, most
        super().__init__(which, name)

    def share(self, prediction: Any, target: Any) -> np.ndarray:
        predicted = self.boxesIn(prediction, 6, "predictions")
        actual = self.boxesIn(target, 5, "targets")
        if len(predicted) != len(actual):
            raise DataError(f"{self.name}: wanted targets of {len(predicted)} images, got {len(actual)}")
        rows = [np.zeros((0, 2 + len(self.thresholds)))]
        for boxes, truths in zip(predicted, actual):
            for kind in np.union1d(boxes[:, 5], truths[:, 4]):
                rows.append(self.rowsOf(kind, boxes[boxes[:, 5] == kind], truths[truths[:, 4] == kind]))
        return np.concatenate(rows)

    def boxesIn(self, images: Any, size: int, what: str) -> list[np.ndarray]:
        """Return the boxes of each image in float64, without padding."""
        hosted = device.toHost(images) if hasattr(images, "shape") else images
        arrays = [arrayOf(x) for x in hosted]
        boxes = [x.reshape(-1, size) if not x.size else x.astype(np.float64) for x in arrays]
        for x in boxes:
            if x.ndim != 2 or x.shape[1] != size:
                raise DataError(f"{self.name}: wanted {what} (n, boxes, {size}), got {show(x.shape)} for an image")
        kept = [x[x[:, -1] >= 0] for x in boxes]
        for x in kept:
            needNotNan(x, self.name, what)
        return kept

    def rowsOf(self, kind: float, boxes: np.ndarray, truths: np.ndarray) -> np.ndarray:
        """Return a row for each box of a class in an image: class, score (nan for a target), matches by threshold."""
        boxes = boxes[np.argsort(-boxes[:, 4], kind="stable")][: self.most]
        rows = np.zeros((len(boxes) + len(truths), 2 + len(self.thresholds)))
        rows[:, 0], rows[:, 1] = kind, np.concatenate([boxes[:, 4], np.full(len(truths), np.nan)])
        if not len(truths):
            return rows
        overlaps, levels = overlapsOf(boxes[:, :4], truths[:, :4]), np.arange(len(self.thresholds))
        isFree = np.ones((len(self.thresholds), len(truths)), bool)
        for row, overlap in zip(rows, overlaps):
            candidates = np.where(isFree, overlap, -1.0)
            best = candidates.argmax(1)
            hits = candidates[levels, best] >= self.thresholds
            isFree[levels[hits], best[hits]] = False
            row[2:] = hits
        return rows

    def value(self) -> float:
        """Return the mean over classes that have a target; nan before the first target."""
        rows = self.rows
        if not rows.size or not (isTarget := np.isnan(rows[:, 1])).any():
            return float("nan")
        areas = []
        for kind in np.unique(rows[isTarget, 0]):
            boxes, count = rows[(rows[:, 0] == kind) & ~isTarget], np.sum(isTarget & (rows[:, 0] == kind))
            areas += [self.area(boxes[:, 1], hits > 0, int(count)) for hits in boxes[:, 2:].T]
        return float(np.mean(areas))

    def area(self, scores: np.ndarray, hits: np.ndarray, count: int) -> float:
        """Return the area under precision and recall of the boxes of a class with `count` targets, at one threshold."""
        if not len(scores):
            return 0.0
        right, wrong = cumulated(scores, hits, np.ones(len(scores)))
        recall = right / count
        precision = np.maximum.accumulate((right / (right + wrong))[::-1])[::-1]
        if self.points is None:
            return float(np.diff(recall, prepend=0) @ precision)
        at = np.searchsorted(recall, np.linspace(0, 1, self.points), side="left")
        return float(np.append(precision, 0.0)[at].mean())

    def doubt(self) -> str:
        return "there are no targets" if self.rows.size and np.isnan(self.value()) else ""


def overlapsOf(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the intersection over union of each box with each of the others; 0 for boxes without an area."""
    low, high = np.maximum(boxes[:, None, :2], others[:, :2]), np.minimum(boxes[:, None, 2:], others[:, 2:])
    shared = np.maximum(high - low, 0).prod(-1)
    areas, otherAreas = ((x[:, 2:] - x[:, :2]).prod(-1) for x in (boxes, others))
    union = areas[:, None] + otherAreas - shared
    return np.divide(shared, union, out=np.zeros(shared.shape), where=union > 0)
