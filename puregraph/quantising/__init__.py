"""Quantising: a float network as one whose layers multiply integers of 8 bits, after training."""

from puregraph.quantising.quantiser import Quantiser as Quantiser
from puregraph.quantising.quantiser import quantise as quantise

__all__ = ["Quantiser", "quantise"]
