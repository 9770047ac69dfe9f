"""Writers of modules as ONNX operators, a file for each family."""
