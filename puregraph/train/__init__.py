"""Training: trainers, validation, metrics, history, progress, and what is called while they run."""

from puregraph.train.calculator import Calculator
from puregraph.train.callback import Call, Callback
from puregraph.train.checkpoint import Checkpoint
from puregraph.train.csvlog import CsvLog
from puregraph.train.earlystop import EarlyStop
from puregraph.train.history import History
from puregraph.train.interrupt import Interrupt
from puregraph.train.metrics import MAE, Accuracy, Confusion, Metric, TopK
from puregraph.train.modes import Holders
from puregraph.train.monitor import Monitor
from puregraph.train.progress import Bar, Lines, Progress
from puregraph.train.tally import Tally, Waiting
from puregraph.train.task import Task
from puregraph.train.trainer import Trainer
from puregraph.train.validator import Validator

__all__ = [
    "MAE",
    "Accuracy",
    "Bar",
    "Calculator",
    "Call",
    "Callback",
    "Checkpoint",
    "Confusion",
    "CsvLog",
    "EarlyStop",
    "History",
    "Holders",
    "Interrupt",
    "Lines",
    "Metric",
    "Monitor",
    "Progress",
    "Tally",
    "Task",
    "TopK",
    "Trainer",
    "Validator",
    "Waiting",
]
