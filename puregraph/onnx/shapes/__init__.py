"""Shapes: infer sizes and ranks that a file leaves open, by trial sizes and by the requirements of operators."""
