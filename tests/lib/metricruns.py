"""Short trainings with every metric of the library, whose figures are compared between counts of processes."""

import numpy as np

import puregraph
from puregraph import (
    MSE,
    SGD,
    CrossEntropy,
    Linear,
    MeanAveragePrecision,
    Module,
    Sequential,
    Trainer,
)
from puregraph.train import metrics as kinds

NUMBERS = ("R2", "ExplainedVariance", "SquaredError", "RMSE", "MAE", "MAPE", "Pearson", "Spearman")
LABELS = ("Accuracy", "LogLoss", "CalibrationError")
CLASSES = (
    "RocAuc",
    "AveragePrecision",
    "Precision",
    "Recall",
    "F1",
    "Kappa",
    "Matthews",
    "MeanIoU",
    "DiceScore",
    "Confusion",
)


class SumOfPredictions(Module):
    """A cost that reads predictions alone."""

    def dataShapeFrom(self, x, target):
        return ()

    def updateData(self, x, target):
        return x.sum()

    def updateGrad(self, grad, x, target, *outputs, needs):
        return np.broadcast_to(grad, x.shape), None


def boxes(rng, count):
    """Targets of two classes and predictions near them, of any scores."""
    low = rng.uniform(0, 30, (count, 3, 2))
    high = low + rng.uniform(5, 20, low.shape)
    kind = rng.integers(0, 2, (count, 3, 1))
    near = np.concatenate([low, high], axis=2) + rng.normal(0, 1.5, (count, 3, 4))
    predictions = np.concatenate([near, rng.random((count, 3, 1)), kind], axis=2).astype(np.float32)
    return predictions, np.concatenate([low, high, kind], axis=2)


def cases(rng):
    """(network, cost, metrics, data, targets) of figures of numbers, labels, texts and boxes."""
    x, long = rng.standard_normal((44, 6)).astype(np.float32), rng.standard_normal((44, 5, 6)).astype(np.float32)
    yield Linear(6, 1), MSE(), [getattr(kinds, name)() for name in NUMBERS], x, x[:, :1] ** 2 + x[:, 1:2]
    some = [getattr(kinds, name)() for name in LABELS]
    some += [getattr(kinds, name)(classes=4) for name in CLASSES]
    some += [kinds.TopK(2), kinds.RocAuc(classes=4, thresholds=50, name="areabythresholds")]
    yield Linear(6, 4), CrossEntropy(), some, x, rng.integers(0, 4, 44)
    some = [kinds.CER(), kinds.WER(space=0), kinds.BLEU(2), kinds.Perplexity(axis=-1)]
    yield Linear(6, 4), CrossEntropy(axis=-1), some, long, rng.integers(0, 4, (44, 5))
    net = Linear(6, 6)
    net.W.data = np.eye(6, dtype=np.float32)
    yield net, SumOfPredictions(), [MeanAveragePrecision()], *boxes(rng, 44)


def figures():
    """The rows of history of two epochs of each case without their seconds, and the last value of each metric."""
    rows = []
    puregraph.seed(0)
    for net, cost, some, data, target in cases(np.random.default_rng(0)):
        options = {"metrics": some, "batchsize": 16, "grains": 8, "progress": "none"}
        trainer = Trainer(Sequential(net), cost, SGD(0.0 if data.ndim == 3 else 1e-2), **options)
        trainer.train(data, target, epochs=2, validation=(data[:20], target[:20]))
        for row in trainer.history:
            rows.append({k: np.asarray(v).tolist() for k, v in row.items() if k != "seconds"})
        rows.append({metric.name: np.asarray(metric.value()).tolist() for metric in some})
    return rows
