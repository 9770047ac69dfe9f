"""Memory of one process that others read without its help."""

from puregraph.many.windows.memorywindow import MemoryWindow

__all__ = ["MemoryWindow"]
