"""Tensor: tensor parallel layers, whose parts are divided among ranks."""

from puregraph.train.tensor.partembedder import PartEmbedder
from puregraph.train.tensor.partjoin import PartJoin
from puregraph.train.tensor.partrules import Division, Passage
from puregraph.train.tensor.partsum import PartSum
from puregraph.train.tensor.splitgraph import ParamPart, SplitGraph, splitTensors
from puregraph.train.tensor.splittrainer import SplitTrainer
from puregraph.train.tensor.splitweights import SplitState, SplitWeights
from puregraph.train.tensor.spread import Spread
from puregraph.train.tensor.tensorgrid import TensorGrid
from puregraph.train.tensor.tensorgroup import TensorGroup
from puregraph.train.tensor.tensorlayout import ParamCut, TensorLayout
from puregraph.train.tensor.tensorstep import SplitStep, TensorStep

__all__ = [
    "Division",
    "ParamCut",
    "ParamPart",
    "PartEmbedder",
    "PartJoin",
    "PartSum",
    "Passage",
    "SplitGraph",
    "SplitState",
    "SplitStep",
    "SplitTrainer",
    "SplitWeights",
    "Spread",
    "TensorGrid",
    "TensorGroup",
    "TensorLayout",
    "TensorStep",
    "splitTensors",
]
