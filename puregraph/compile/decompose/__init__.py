"""Simpler: functions said by others, of which there is native code; in a recording these stand in their place.

Each is a rule of the same arguments, written with numpy's functions on whatever is recorded. Numbers come out as they
would, but for the order of sums and the layout, so numpy's own steps are not made in this way.

arrays       parts repeated, put around, put together
elements     what is done element by element
reductions   along axes
products     einsum, and all that one can say by it
windows      convolution and pooling over more than three axes
attention    the gradient of a mask
lookup       weights of classes; tables that do not lie row by row
"""

from puregraph.compile.decompose import arrayfunctions, attention, contractions, elements, gather, ndwindows, reductions
from puregraph.compile.decompose.decomposition import SIMPLER

__all__ = ["SIMPLER", "arrayfunctions", "attention", "elements", "gather", "contractions", "reductions", "ndwindows"]
