"""Weights: the arrays of files that other programs wrote, read by name without running anything that is in them.

with readWeights("model.safetensors") as weights:
    weights["encoder.weight"].shape       known before any element is read
    weights["encoder.weight"].read()      its elements

writeWeights("model.safetensors", {"encoder.weight": W})

graph.load("model.safetensors", names="torchvision")      loads them, by a map of names
"""

from puregraph.serialize.weights.maps import readyMap
from puregraph.serialize.weights.maps.keras import flattened
from puregraph.serialize.weights.namemap import NameMap
from puregraph.serialize.weights.proposal import proposeNames
from puregraph.serialize.weights.readers import readWeights
from puregraph.serialize.weights.transforms import (
    Transform,
    add,
    gates,
    join,
    permute,
    same,
    scale,
    split,
    squeeze,
    transpose,
)
from puregraph.serialize.weights.weightfile import StoredTensor, WeightFile
from puregraph.serialize.weights.writing import writeWeights

__all__ = [
    "NameMap",
    "StoredTensor",
    "Transform",
    "WeightFile",
    "add",
    "flattened",
    "gates",
    "join",
    "permute",
    "proposeNames",
    "readWeights",
    "readyMap",
    "same",
    "scale",
    "split",
    "squeeze",
    "transpose",
    "writeWeights",
]
