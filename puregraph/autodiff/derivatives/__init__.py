"""Derivatives in both modes; the rules of functions of numpy are imported here so that all are declared."""

from puregraph.autodiff.derivatives import declarations, ufuncs
from puregraph.ops.fourier import derivatives as fourier
from puregraph.ops.gather import derivatives as gather
from puregraph.ops.movement import assembly
from puregraph.ops.movement import derivatives as movement
from puregraph.ops.product import derivatives as product
from puregraph.ops.product import factorizations, matrixfunctions
from puregraph.ops.reduction import cumulategrads, statistics
from puregraph.ops.reduction import derivatives as reduction

__all__ = [
    "assembly",
    "cumulategrads",
    "declarations",
    "factorizations",
    "fourier",
    "gather",
    "matrixfunctions",
    "movement",
    "product",
    "reduction",
    "statistics",
    "ufuncs",
]
