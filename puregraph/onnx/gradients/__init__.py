"""Gradients: those of modules whose rules are not traced, written in operators of ONNX."""
