"""Derivatives in both modes; the rules of functions of numpy are imported here so that all are declared."""

from puregraph.autodiff.derivatives import declarations, ufuncs
from puregraph.ops.gather import derivatives as gather
from puregraph.ops.movement import derivatives as movement
from puregraph.ops.product import derivatives as product
from puregraph.ops.reduction import cumulategrads
from puregraph.ops.reduction import derivatives as reduction

__all__ = ["cumulategrads", "declarations", "gather", "movement", "product", "reduction", "ufuncs"]
