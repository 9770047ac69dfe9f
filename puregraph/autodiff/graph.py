"""The nodes and edges of the tape under the path that they have in afnio."""

from puregraph.autodiff.tape.tapenode import GradientEdge, get_gradient_edge
from puregraph.autodiff.tape.tapenode import TapeNode as Node

__all__ = ["GradientEdge", "Node", "get_gradient_edge"]
