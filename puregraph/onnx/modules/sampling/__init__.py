"""Sampling: arrays read between their elements."""
