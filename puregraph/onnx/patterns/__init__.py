"""Patterns: what exporters composed of small operators, known again as one module."""
