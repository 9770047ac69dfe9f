"""What comes from other systems: AnalogVNN's graphs, afnio's text on the tape, PuzzleLib's files."""
