"""Elementwise functions of numpy beside the formula language."""
