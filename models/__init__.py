"""Known networks: each file holds functions that return a Graph, with its paper and parameter count."""
