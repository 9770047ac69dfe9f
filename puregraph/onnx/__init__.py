"""ONNX: models from elsewhere become graphs, and graphs models."""

from puregraph.onnx.onnxwriter import toOnnx, writesOnnx
from puregraph.onnx.opregistry import onnxOp
from puregraph.onnx.reader import fromOnnx

__all__ = ["fromOnnx", "onnxOp", "toOnnx", "writesOnnx"]
