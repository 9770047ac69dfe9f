"""Decompositions: a function composed of other functions, for which there is native code; the tracer records these.

Each is a rule of the same arguments, written with numpy's functions on traced values. Results are the same but for
the order of summation and the layout, so calls that numpy itself runs are not decomposed.

arrayfunctions   parts repeated, padded, concatenated
elements         element by element
reductions       along axes
contractions     einsum, and what can be written as one
ndwindows        convolution and pooling over more than three axes
attention        the gradient of a mask
gather           weights of classes; tables that are not stored row by row
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
