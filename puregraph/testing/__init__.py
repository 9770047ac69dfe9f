"""Checks of modules and graphs, and an emulator that runs kernels for a GPU on the CPU."""

from puregraph.testing.check import CheckError, checkGraph, checkModule

__all__ = ["CheckError", "checkGraph", "checkModule"]
