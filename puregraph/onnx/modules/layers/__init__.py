"""Layers as operators of ONNX have them: with weights that are inputs, windows that are dilated, norms, bits."""
