"""Checks of gradients: against finite differences, and for NaN and infinity."""
