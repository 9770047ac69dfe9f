"""The operators of ONNX, a file for each family."""
