"""Costs: Modules that compare predictions with targets and return a scalar mean."""

from puregraph.modules.costs.abs import Abs
from puregraph.modules.costs.bce import BCE
from puregraph.modules.costs.crossentropy import CrossEntropy
from puregraph.modules.costs.huber import Huber
from puregraph.modules.costs.mse import MSE
from puregraph.modules.costs.pointwisecost import PointwiseCost
from puregraph.modules.costs.smoothl1 import SmoothL1

__all__ = ["BCE", "MSE", "Abs", "CrossEntropy", "Huber", "PointwiseCost", "SmoothL1"]
