"""Metrics: figures that are gathered batch by batch, on the host."""

from puregraph.train.metrics.accuracy import Accuracy
from puregraph.train.metrics.classcounts import ClassCounts
from puregraph.train.metrics.confusion import Confusion
from puregraph.train.metrics.f1 import F1
from puregraph.train.metrics.mae import MAE
from puregraph.train.metrics.metric import Metric
from puregraph.train.metrics.precision import Precision
from puregraph.train.metrics.recall import Recall
from puregraph.train.metrics.topk import TopK

__all__ = ["F1", "MAE", "Accuracy", "ClassCounts", "Confusion", "Metric", "Precision", "Recall", "TopK"]
