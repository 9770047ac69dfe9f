"""Convolutions and pooling in native code, channels last: direct, depthwise, Winograd, and their gradients."""
