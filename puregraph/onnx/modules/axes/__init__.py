"""Modules that choose, move, count and reduce elements along axes, as operators of ONNX do."""
