"""Tensor parallelism: layers whose weights are divided among ranks."""

from puregraph.distributed.tensor.partembedder import PartEmbedder
from puregraph.distributed.tensor.partexchange import PartJoin, PartSum, Spread, TensorGroup
from puregraph.distributed.tensor.partrules import Division, Passage
from puregraph.distributed.tensor.splitgraph import ParamPart, SplitGraph, splitTensors
from puregraph.distributed.tensor.tensorlayout import ParamCut, PartOrder, TensorLayout
from puregraph.distributed.tensor.tensorstep import SplitNetwork, TensorStep

__all__ = [
    "Division",
    "ParamCut",
    "ParamPart",
    "PartEmbedder",
    "PartJoin",
    "PartSum",
    "PartOrder",
    "Passage",
    "SplitGraph",
    "SplitNetwork",
    "Spread",
    "TensorGroup",
    "TensorLayout",
    "TensorStep",
    "splitTensors",
]
