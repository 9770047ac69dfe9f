"""Sampling: arrays read between their elements, and regions of pictures."""
