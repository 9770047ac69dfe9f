"""Training: trainers, validation, metrics, history, progress and callbacks."""

import warnings
from typing import Any

from puregraph.distributed.dataparallel import Columns, GrainPass, LockStep, SharedStep
from puregraph.distributed.sharding import ParamShard as ParamPiece
from puregraph.distributed.sharding import ShardedUpdate
from puregraph.train.announcing import Announcement, NativeHint
from puregraph.train.calculator import Calculator
from puregraph.train.callbacks import (
    Bar,
    Callback,
    Checkpoint,
    CsvLog,
    EarlyStop,
    FunctionCallback,
    Lines,
    Monitor,
    Progress,
    ReduceOnPlateau,
    TensorBoard,
    WeightAverage,
)
from puregraph.train.costsum import CostSum, PartLoss, WeightedTotal
from puregraph.train.decoding import Generator, NextToken, generate
from puregraph.train.epochloop import EpochLoop
from puregraph.train.figures import Figures
from puregraph.train.history import History
from puregraph.train.interrupt import Interrupt
from puregraph.train.meters import Meters, Waiting
from puregraph.train.metrics import (
    BLEU,
    CER,
    F1,
    MAE,
    MAPE,
    R2,
    RMSE,
    WER,
    Accuracy,
    AveragePrecision,
    CalibrationError,
    ClassCounts,
    Confusion,
    DiceScore,
    ExplainedVariance,
    Kappa,
    LogLoss,
    Matthews,
    MeanAveragePrecision,
    MeanIoU,
    Metric,
    Pearson,
    Perplexity,
    Precision,
    Recall,
    RocAuc,
    Spearman,
    SquaredError,
    TopK,
)
from puregraph.train.modes import Holders
from puregraph.train.objective import Objective
from puregraph.train.ratefinder import RateCurve, findRate
from puregraph.train.runstate import RunState
from puregraph.train.trainer import Trainer
from puregraph.train.validator import Validator

__all__ = [
    "BLEU",
    "CER",
    "CalibrationError",
    "MeanAveragePrecision",
    "WER",
    "AveragePrecision",
    "LogLoss",
    "Perplexity",
    "RocAuc",
    "Spearman",
    "F1",
    "MAE",
    "Accuracy",
    "DiceScore",
    "ExplainedVariance",
    "Kappa",
    "MAPE",
    "Matthews",
    "MeanIoU",
    "Pearson",
    "R2",
    "RMSE",
    "SquaredError",
    "Announcement",
    "Bar",
    "Calculator",
    "Callback",
    "Checkpoint",
    "ClassCounts",
    "Columns",
    "Confusion",
    "CostSum",
    "WeightedTotal",
    "CsvLog",
    "EarlyStop",
    "EpochLoop",
    "Figures",
    "GrainPass",
    "FunctionCallback",
    "Generator",
    "History",
    "Holders",
    "Interrupt",
    "Lines",
    "LockStep",
    "Meters",
    "Metric",
    "Monitor",
    "NativeHint",
    "NextToken",
    "Objective",
    "ParamPiece",
    "PartLoss",
    "Precision",
    "Progress",
    "RateCurve",
    "Recall",
    "ReduceOnPlateau",
    "RunState",
    "ShardedUpdate",
    "SharedStep",
    "TensorBoard",
    "TopK",
    "Trainer",
    "Validator",
    "Waiting",
    "WeightAverage",
    "findRate",
    "generate",
]

RENAMED = {"Call": FunctionCallback, "Tally": Meters, "Task": Objective}


def __getattr__(name: str) -> Any:
    """Return a class by its former name, with a DeprecationWarning."""
    if name not in RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"puregraph.train.{name} is now called {RENAMED[name].__name__}", DeprecationWarning, stacklevel=2)
    return RENAMED[name]
