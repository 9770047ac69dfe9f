"""Gather: rows and elements picked by index, and their adjoints, scatter-add and its kin; class labels."""
