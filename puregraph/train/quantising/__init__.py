"""Quantising: a float network as one whose layers multiply integers of 8 bits, after training."""

from puregraph.train.quantising.integergraph import IntegerGraph
from puregraph.train.quantising.integerweights import IntegerWeights
from puregraph.train.quantising.layers import Layer
from puregraph.train.quantising.quantiser import Quantiser, quantise
from puregraph.train.quantising.valuerange import ValueRange

__all__ = ["IntegerGraph", "IntegerWeights", "Layer", "Quantiser", "ValueRange", "quantise"]
