"""What writes modules as operators of ONNX, a file for each family."""
