"""Decoding: what a language model writes."""

from puregraph.train.decoding.generate import NextToken, generate

__all__ = ["NextToken", "generate"]
