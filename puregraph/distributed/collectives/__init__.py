"""Sums over ranks that do not depend on their number, and the memory through which they are exchanged."""
