"""What a graph will take, computed from shapes alone: liveness, footprint, and the table of both."""
