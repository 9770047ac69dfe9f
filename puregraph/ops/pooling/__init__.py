"""Pooling: maxima and means of windows, and their gradients."""
