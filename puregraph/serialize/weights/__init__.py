"""Weights: the arrays of files that other programs wrote, read by name without running anything that is in them.

with readWeights("model.safetensors") as weights:
    weights["encoder.weight"].shape       known before any element is read
    weights["encoder.weight"].read()      its elements

writeWeights("model.safetensors", {"encoder.weight": W})
"""

from puregraph.serialize.weights.readers import readWeights
from puregraph.serialize.weights.weightfile import StoredTensor, WeightFile
from puregraph.serialize.weights.writing import writeWeights

__all__ = ["StoredTensor", "WeightFile", "readWeights", "writeWeights"]
