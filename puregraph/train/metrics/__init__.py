"""Metrics: figures that are gathered batch by batch, on the host."""

from puregraph.train.metrics.accuracy import Accuracy
from puregraph.train.metrics.confusion import Confusion
from puregraph.train.metrics.mae import MAE
from puregraph.train.metrics.metric import Metric
from puregraph.train.metrics.topk import TopK

__all__ = ["MAE", "Accuracy", "Confusion", "Metric", "TopK"]
