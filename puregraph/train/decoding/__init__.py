"""Decoding: generate text with a language model."""

from puregraph.train.decoding.generate import NextToken, generate

__all__ = ["NextToken", "generate"]
