"""Running a graph of callables: the kinds of node, the values that a pass keeps, the routes of gradients."""
