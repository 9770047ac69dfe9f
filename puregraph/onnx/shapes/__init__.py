"""Shapes: sizes and ranks that a file leaves open, from tries with numbers and from what operators ask of operands."""
