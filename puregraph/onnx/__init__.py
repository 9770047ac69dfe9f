"""ONNX: read models as Graphs, and write Graphs as models."""

from puregraph.onnx.backwardonnx import backwardOnnx
from puregraph.onnx.modelexport import toOnnx
from puregraph.onnx.onnxwriter import writesOnnx
from puregraph.onnx.opregistry import onnxOp
from puregraph.onnx.patterns.patternregistry import onnxPattern
from puregraph.onnx.reader import fromOnnx

__all__ = ["backwardOnnx", "fromOnnx", "onnxOp", "onnxPattern", "toOnnx", "writesOnnx"]
