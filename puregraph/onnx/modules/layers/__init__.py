"""Layers as operators of ONNX have them: with weights that are inputs, windows that are dilated, norms, bits."""

from puregraph.onnx.modules.layers.bits import BitShift, Bitwise
from puregraph.onnx.modules.layers.convolving import Convolve, ConvolveTransposed
from puregraph.onnx.modules.layers.determinant import Determinant
from puregraph.onnx.modules.layers.logsoftmax import Hardmax, LogSoftMax
from puregraph.onnx.modules.layers.normalizing import LocalResponse, NormalizeLp, ScaleMaps
from puregraph.onnx.modules.layers.pools import PoolMax, PoolMean, PoolNorm, Unpool
from puregraph.onnx.modules.layers.vectorproduct import VectorProduct
from puregraph.onnx.modules.layers.weight import Weight

__all__ = [
    "BitShift",
    "Bitwise",
    "Convolve",
    "ConvolveTransposed",
    "Determinant",
    "Hardmax",
    "LocalResponse",
    "LogSoftMax",
    "NormalizeLp",
    "PoolMax",
    "PoolMean",
    "PoolNorm",
    "ScaleMaps",
    "Unpool",
    "VectorProduct",
    "Weight",
]
