"""Recurrent cells in native code: their operands, and a kernel for each direction."""
