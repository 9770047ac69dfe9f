"""Graphs: nodes between inputs and outputs, the flat list of steps they unfold into, and the pass back through them."""

from puregraph.graph.backward import BackwardGraph
from puregraph.graph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.parallel import Parallel
from puregraph.graph.sequential import Sequential

__all__ = ["BackwardGraph", "Graph", "Input", "Parallel", "Sequential"]
