"""Rules: what a module's rule does with arrays, traced once and written in operators of ONNX."""
