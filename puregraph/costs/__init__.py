"""Costs: Modules that compare predictions with targets and return a scalar mean."""

from puregraph.costs.abs import Abs
from puregraph.costs.bce import BCE
from puregraph.costs.crossentropy import CrossEntropy
from puregraph.costs.huber import Huber
from puregraph.costs.mse import MSE
from puregraph.costs.pointwisecost import PointwiseCost
from puregraph.costs.smoothl1 import SmoothL1

__all__ = ["BCE", "MSE", "Abs", "CrossEntropy", "Huber", "PointwiseCost", "SmoothL1"]
