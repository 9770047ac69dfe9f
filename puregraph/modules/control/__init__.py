"""Modules that hold graphs: If, Loop and Scan."""

from puregraph.modules.control.ifelse import If
from puregraph.modules.control.loop import Loop
from puregraph.modules.control.scan import Scan

__all__ = ["If", "Loop", "Scan"]
