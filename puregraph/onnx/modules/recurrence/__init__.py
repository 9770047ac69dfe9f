"""Recurrence: cells as operators of ONNX have them, and their gradients."""
