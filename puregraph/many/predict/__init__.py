"""Predict: what collectives and steps would take on machines that are not here, from what was measured on some."""
