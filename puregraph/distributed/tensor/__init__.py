"""Tensor parallelism: layers whose weights are divided among ranks."""

from puregraph.distributed.tensor.partembedder import PartEmbedder
from puregraph.distributed.tensor.partjoin import PartJoin
from puregraph.distributed.tensor.partrules import Division, Passage
from puregraph.distributed.tensor.partsum import PartSum
from puregraph.distributed.tensor.splitgraph import ParamPart, SplitGraph, splitTensors
from puregraph.distributed.tensor.splittrainer import SplitTrainer
from puregraph.distributed.tensor.spread import Spread
from puregraph.distributed.tensor.tensorgrid import TensorGrid
from puregraph.distributed.tensor.tensorgroup import TensorGroup
from puregraph.distributed.tensor.tensorlayout import ParamCut, TensorLayout
from puregraph.distributed.tensor.tensorshards import SplitState, TensorShards
from puregraph.distributed.tensor.tensorstep import SplitStep, TensorStep

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
    "TensorShards",
    "Spread",
    "TensorGrid",
    "TensorGroup",
    "TensorLayout",
    "TensorStep",
    "splitTensors",
]
