"""How a graph of callables runs: each kind of node, what a pass keeps, who is given which gradient."""
