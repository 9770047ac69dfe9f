"""puregraph: networks as graphs that are checked, measured and differentiated before the first batch.

net = Sequential(Linear(784, 100), Relu(), Linear(100, 10))
net.dataShapeFrom(("N", 784))               # ('N', 10), before any data
print(summary(net, ("N", 784)))             # every node's shapes, parameters, bytes, operations
"""

from puregraph import autodiff, costs, device, modules, optimizers
from puregraph.analysis.footprint import Footprint
from puregraph.analysis.stages import stages
from puregraph.analysis.summary import summary
from puregraph.base.environment import checkNames
from puregraph.check import CheckError, checkGraph, checkModule
from puregraph.checkpoint import loadGraph as load
from puregraph.core.dim import Dim
from puregraph.core.initial import seed
from puregraph.core.param import Param, State
from puregraph.core.rules import registerRule
from puregraph.costs import *
from puregraph.device import useDevice
from puregraph.draw.charts.plots import plotImages, plotParams
from puregraph.errors import (
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
)
from puregraph.formula import Formula
from puregraph.function import Function
from puregraph.graph import Graph
from puregraph.graph.backward import BackwardGraph
from puregraph.graph.input import Input
from puregraph.graph.parallel import Parallel
from puregraph.graph.sequential import Sequential
from puregraph.module import Module
from puregraph.modules import *
from puregraph.moved import attribute as __getattr__  # noqa: F401 - old names, as attributes
from puregraph.moved import install
from puregraph.node import Node
from puregraph.optimizers import *
from puregraph.pointwise import Pointwise
from puregraph.serialize.classnames import registerModule
from puregraph.train import (
    F1,
    MAE,
    Accuracy,
    Calculator,
    Callback,
    Checkpoint,
    Confusion,
    CostSum,
    CsvLog,
    EarlyStop,
    History,
    Metric,
    Precision,
    Recall,
    ReduceOnPlateau,
    TensorBoard,
    TopK,
    Trainer,
    Validator,
    WeightAverage,
    findRate,
    generate,
)
from puregraph.version import __version__ as __version__

checkNames()
install()
del checkNames, install

__all__ = [
    "Accuracy",
    "ArgumentError",
    "AutoDiffException",
    "BackwardGraph",
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
    "Recall",
    "ReduceOnPlateau",
    "Sequential",
    "ShapeError",
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
    "registerModule",
    "registerRule",
    "seed",
    "stages",
    "summary",
    "useDevice",
]
__all__ += modules.__all__
__all__ += costs.__all__
__all__ += optimizers.__all__
__all__.sort()
