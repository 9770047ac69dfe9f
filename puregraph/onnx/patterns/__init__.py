"""Patterns: merge small operators that an exporter composed into one module again."""
