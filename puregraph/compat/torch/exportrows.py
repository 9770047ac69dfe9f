"""Exportrows: all files that say how operations of ATen become modules."""

from puregraph.compat.torch import exportlayers, exportpointwise, exportrecurrent, exportshapes

__all__ = ["exportlayers", "exportpointwise", "exportrecurrent", "exportshapes"]
