"""Alignments of sequences: the sum over all ways to align labels with time steps."""
