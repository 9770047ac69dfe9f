"""Interfaces of other systems: AnalogVNN's graphs, afnio's text on the tape, PuzzleLib's files."""
