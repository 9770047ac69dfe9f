"""Passes that only a program on a GPU runs: from a schedule to a schedule."""
