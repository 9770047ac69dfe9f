"""Convolutions in native code: direct, by Winograd's transforms, depthwise; filters packed by their tiles."""
