"""Optimizers, each a rule of formulas or of arrays, averages of parameters, and schedules of settings."""

from puregraph.optimizers.adafactor import Adafactor
from puregraph.optimizers.adagrad import AdaDelta, AdaGrad
from puregraph.optimizers.adam import Adam, Adamax, AdamW, NAdam, RAdam
from puregraph.optimizers.asgd import ASGD
from puregraph.optimizers.averages import EMA, SWA, Lookahead
from puregraph.optimizers.averages import Average as Average
from puregraph.optimizers.cycles import CosineRestarts, Cyclic
from puregraph.optimizers.decays import Exponential, Hold, MultiStep, Polynomial
from puregraph.optimizers.initrecorder import InitRecorder as InitRecorder
from puregraph.optimizers.layerwise import LAMB, LARS
from puregraph.optimizers.lbfgs import LBFGS
from puregraph.optimizers.lbfgs import LinePoint as LinePoint
from puregraph.optimizers.lbfgs import QuasiNewton as QuasiNewton
from puregraph.optimizers.lion import Lion
from puregraph.optimizers.momentumsgd import MomentumSGD
from puregraph.optimizers.multioptimizer import MultiOptimizer
from puregraph.optimizers.muon import Muon
from puregraph.optimizers.nesterovsgd import NesterovSGD
from puregraph.optimizers.optimizer import Optimizer
from puregraph.optimizers.parameterrule import ParameterRule as ParameterRule
from puregraph.optimizers.phases import WSD, Chain
from puregraph.optimizers.rmsprop import SMORMS3, RMSProp, RMSPropGraves
from puregraph.optimizers.rprop import Rprop
from puregraph.optimizers.ruleoption import RuleOption as RuleOption
from puregraph.optimizers.sam import SAM
from puregraph.optimizers.schedulefree import ScheduleFree
from puregraph.optimizers.schedules import Cosine, Epochs, OneCycle, Schedule, Step, WarmUp
from puregraph.optimizers.schedules import EndingSchedule as EndingSchedule
from puregraph.optimizers.sgd import SGD
from puregraph.optimizers.slot import CountedSteps as CountedSteps
from puregraph.optimizers.slot import Slot
from puregraph.optimizers.slot import StepCount as StepCount

__all__ = [
    "ASGD",
    "EMA",
    "LAMB",
    "LARS",
    "LBFGS",
    "SAM",
    "SGD",
    "SMORMS3",
    "SWA",
    "WSD",
    "AdaDelta",
    "AdaGrad",
    "Adafactor",
    "Adam",
    "AdamW",
    "Adamax",
    "Chain",
    "Cosine",
    "CosineRestarts",
    "Cyclic",
    "Epochs",
    "Exponential",
    "Hold",
    "Lion",
    "Lookahead",
    "MomentumSGD",
    "MultiOptimizer",
    "MultiStep",
    "Muon",
    "NAdam",
    "NesterovSGD",
    "OneCycle",
    "Optimizer",
    "Polynomial",
    "RAdam",
    "RMSProp",
    "RMSPropGraves",
    "Rprop",
    "Schedule",
    "ScheduleFree",
    "Slot",
    "Step",
    "WarmUp",
]
