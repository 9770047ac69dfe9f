"""Decompositions: write a function as simpler functions that have native code; the tracer records these.

Each decomposition takes the function's arguments and is written with numpy functions on traced values. Results are the
same except for the order of summation and the layout, so calls that run in numpy are not decomposed.

arrayfunctions   repeating, padding, concatenating
elements         elementwise functions
reductions       reductions along axes
contractions     einsum, and functions that can be written as one
ndwindows        convolution and pooling over more than three axes
attention        the gradient of a mask
gather           class weights; tables that are not row-major
"""

from puregraph.compile.decompose import arrayfunctions, attention, contractions, elements, gather, ndwindows, reductions
from puregraph.compile.decompose.decomposition import decompositionOf

__all__ = [
    "decompositionOf",
    "arrayfunctions",
    "attention",
    "elements",
    "gather",
    "contractions",
    "reductions",
    "ndwindows",
]
