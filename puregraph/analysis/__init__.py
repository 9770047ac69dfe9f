"""What a graph will take, told from shapes alone: liveness, footprint, and the table of both."""
