"""Callbacks of a Trainer: files, early stopping, progress."""

from puregraph.train.callbacks.callback import Callback, FunctionCallback
from puregraph.train.callbacks.checkpointing import Checkpoint
from puregraph.train.callbacks.csvlog import CsvLog
from puregraph.train.callbacks.earlystop import EarlyStop
from puregraph.train.callbacks.monitor import Monitor
from puregraph.train.callbacks.progress import Bar, Lines, NotebookLine, Progress
from puregraph.train.callbacks.reduceonplateau import ReduceOnPlateau
from puregraph.train.callbacks.tensorboard import TensorBoard
from puregraph.train.callbacks.weightaverage import WeightAverage

__all__ = [
    "Bar",
    "Callback",
    "Checkpoint",
    "CsvLog",
    "EarlyStop",
    "FunctionCallback",
    "Lines",
    "Monitor",
    "NotebookLine",
    "Progress",
    "ReduceOnPlateau",
    "TensorBoard",
    "WeightAverage",
]
