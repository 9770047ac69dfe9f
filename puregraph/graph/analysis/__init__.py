"""Cost of a graph, computed from shapes alone: liveness, footprint, and the table of both."""
