"""Predict memory, bytes and time of ways to divide a training step among ranks."""
