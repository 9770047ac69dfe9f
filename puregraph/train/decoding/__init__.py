"""Decoding: generate text with a language model."""

from puregraph.train.decoding.beamsearch import Beam, Hypothesis
from puregraph.train.decoding.cachedgraph import CachedGraph
from puregraph.train.decoding.generate import generate
from puregraph.train.decoding.generator import Generator, TextScores
from puregraph.train.decoding.nexttoken import NextToken
from puregraph.train.decoding.rowcache import RowCache

__all__ = ["Beam", "CachedGraph", "Generator", "Hypothesis", "NextToken", "RowCache", "TextScores", "generate"]
