"""Graphs of callables whose backward pass is a graph to edit, as in AnalogVNN."""
