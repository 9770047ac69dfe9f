"""Optimizers, each a rule in formulas, and the schedules of their learning rates."""

from puregraph.optimizers.adam import Adam
from puregraph.optimizers.adamw import AdamW
from puregraph.optimizers.initrecorder import InitRecorder as InitRecorder
from puregraph.optimizers.momentumsgd import MomentumSGD
from puregraph.optimizers.multioptimizer import MultiOptimizer
from puregraph.optimizers.nesterovsgd import NesterovSGD
from puregraph.optimizers.optimizer import Optimizer
from puregraph.optimizers.parameterrule import ParameterRule as ParameterRule
from puregraph.optimizers.rmsprop import RMSProp
from puregraph.optimizers.schedules import Cosine, Epochs, OneCycle, Schedule, Step, WarmUp
from puregraph.optimizers.sgd import SGD
from puregraph.optimizers.slot import CountedSteps as CountedSteps
from puregraph.optimizers.slot import Slot
from puregraph.optimizers.slot import StepCount as StepCount

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Cosine",
    "Epochs",
    "MomentumSGD",
    "MultiOptimizer",
    "NesterovSGD",
    "OneCycle",
    "Optimizer",
    "RMSProp",
    "Schedule",
    "Slot",
    "Step",
    "WarmUp",
]
