"""ONNX: models from elsewhere become graphs."""

from puregraph.onnx.opregistry import onnxOp
from puregraph.onnx.reader import fromOnnx

__all__ = ["fromOnnx", "onnxOp"]
