"""Metrics: figures of a data set, computed batch by batch on the host."""

from puregraph.train.metrics.accuracy import Accuracy
from puregraph.train.metrics.bleu import BLEU
from puregraph.train.metrics.calibration import CalibrationError
from puregraph.train.metrics.classagreement import DiceScore, Kappa, Matthews, MeanIoU
from puregraph.train.metrics.classcounts import ClassCounts
from puregraph.train.metrics.confusion import Confusion
from puregraph.train.metrics.curveareas import AveragePrecision, RocAuc
from puregraph.train.metrics.editdistance import CER, WER
from puregraph.train.metrics.f1 import F1
from puregraph.train.metrics.gatheredmetric import GatheredMetric
from puregraph.train.metrics.logloss import LogLoss, Perplexity
from puregraph.train.metrics.meanaverageprecision import MeanAveragePrecision
from puregraph.train.metrics.metric import Metric
from puregraph.train.metrics.precision import Precision
from puregraph.train.metrics.rankingmetric import RankingMetric
from puregraph.train.metrics.recall import Recall
from puregraph.train.metrics.regression import MAE, MAPE, R2, RMSE, ExplainedVariance, Pearson, SquaredError
from puregraph.train.metrics.spearman import Spearman
from puregraph.train.metrics.topk import TopK

__all__ = [
    "BLEU",
    "CER",
    "CalibrationError",
    "MeanAveragePrecision",
    "WER",
    "AveragePrecision",
    "GatheredMetric",
    "LogLoss",
    "Perplexity",
    "RankingMetric",
    "RocAuc",
    "Spearman",
    "Accuracy",
    "ClassCounts",
    "Confusion",
    "DiceScore",
    "ExplainedVariance",
    "F1",
    "Kappa",
    "MAE",
    "MAPE",
    "Matthews",
    "MeanIoU",
    "Metric",
    "Pearson",
    "Precision",
    "R2",
    "RMSE",
    "Recall",
    "SquaredError",
    "TopK",
]
