"""Rules: trace a module's rule once, and write its array operations as ONNX operators."""
