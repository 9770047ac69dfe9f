"""Nodes and labelled edges: how a graph of callables is built, edited, put in order and shown."""
