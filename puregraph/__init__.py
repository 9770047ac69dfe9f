"""puregraph: networks as graphs that are checked, measured and differentiated before the first batch.

net = Sequential(Linear(784, 100), Relu(), Linear(100, 10))
net.dataShapeFrom(("N", 784))               # ('N', 10), before any data
print(summary(net, ("N", 784)))             # every node's shapes, parameters, bytes, operations
"""

from typing import TYPE_CHECKING

from puregraph import autodiff, modules, optimizers
from puregraph.core import device
from puregraph.core.base.environment import checkNames
from puregraph.core.device import useDevice
from puregraph.core.dim import Dim
from puregraph.core.errors import (
    ArgumentError,
    AutoDiffException,
    CheckpointError,
    DataError,
    DeviceError,
    DtypeError,
    FormulaError,
    GraphError,
    GraphWarning,
    PuregraphError,
    ShapeError,
    SizeError,
)
from puregraph.core.initial import seed
from puregraph.core.late import Late, lateNames
from puregraph.core.moved import TARGETS, install
from puregraph.core.param import Param, State
from puregraph.core.rules import registerRule
from puregraph.core.version import __version__ as __version__
from puregraph.graph import Graph
from puregraph.graph.analysis.footprint import Footprint
from puregraph.graph.analysis.stages import stages
from puregraph.graph.analysis.summary import summary
from puregraph.graph.backward import BackwardGraph
from puregraph.graph.derived import Derived
from puregraph.graph.function import Function
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.node import Node
from puregraph.graph.parallel import Parallel
from puregraph.graph.pointwise import Pointwise
from puregraph.graph.sequential import Sequential
from puregraph.modules import *
from puregraph.modules import costs
from puregraph.modules.costs import *
from puregraph.ops.formula import Formula
from puregraph.optimizers import *
from puregraph.serialize.classnames import registerModule

if TYPE_CHECKING:
    from puregraph.draw.charts.plots import plotImages, plotParams
    from puregraph.serialize.checkpoint import loadGraph as load
    from puregraph.testing.check import CheckError, checkGraph, checkModule
    from puregraph.train import (
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
        Calculator,
        CalibrationError,
        Callback,
        Checkpoint,
        Confusion,
        CostSum,
        CsvLog,
        DiceScore,
        EarlyStop,
        ExplainedVariance,
        Generator,
        History,
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
        ReduceOnPlateau,
        RocAuc,
        Spearman,
        SquaredError,
        TensorBoard,
        TopK,
        Trainer,
        Validator,
        WeightAverage,
        findRate,
        generate,
    )
    from puregraph.train.quantising import Quantiser, quantise

PACKAGES = ("compat", "compile", "data", "distributed", "draw", "models", "onnx", "serialize", "testing", "train")
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
    "ArgumentError",
    "AutoDiffException",
    "BackwardGraph",
    "Derived",
    "Calculator",
    "Callback",
    "CheckError",
    "Checkpoint",
    "CheckpointError",
    "Confusion",
    "CostSum",
    "CsvLog",
    "DataError",
    "DeviceError",
    "Dim",
    "DtypeError",
    "EarlyStop",
    "F1",
    "Footprint",
    "Formula",
    "FormulaError",
    "Function",
    "Generator",
    "Graph",
    "GraphError",
    "GraphWarning",
    "History",
    "Input",
    "MAE",
    "Metric",
    "Module",
    "Node",
    "Parallel",
    "Param",
    "Pointwise",
    "Precision",
    "PuregraphError",
    "Quantiser",
    "Recall",
    "ReduceOnPlateau",
    "Sequential",
    "ShapeError",
    "SizeError",
    "State",
    "TensorBoard",
    "TopK",
    "Trainer",
    "Validator",
    "WeightAverage",
    "autodiff",
    "checkGraph",
    "checkModule",
    "device",
    "findRate",
    "generate",
    "load",
    "plotImages",
    "plotParams",
    "quantise",
    "registerModule",
    "registerRule",
    "seed",
    "stages",
    "summary",
    "useDevice",
]
LATE = {
    **{name: Late("puregraph.train", name) for name in __all__},  # those that are not imported above
    **{name: Late("puregraph.train.quantising", name) for name in ("Quantiser", "quantise")},
    **{name: Late("puregraph.testing.check", name) for name in ("CheckError", "checkGraph", "checkModule")},
    **{name: Late("puregraph.draw.charts.plots", name) for name in ("plotImages", "plotParams")},
    "load": Late("puregraph.serialize.checkpoint", "loadGraph"),
    **{name: Late(f"puregraph.{name}") for name in PACKAGES},
}
__all__ += modules.__all__
__all__ += costs.__all__
__all__ += optimizers.__all__
__all__.sort()

__getattr__, __dir__ = lateNames(__name__, LATE, former=TARGETS)
checkNames()
install()
del LATE, PACKAGES, TARGETS, TYPE_CHECKING, Late, checkNames, install, lateNames
