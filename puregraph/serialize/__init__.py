"""Graphs as JSON and back, and the graphs of other libraries' files."""
