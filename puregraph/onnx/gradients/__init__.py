"""Gradients in ONNX operators, for modules whose rules are not traced."""
