"""Pictures of graphs, backward graphs and programs: SVG, one HTML page, DOT, PNG."""
