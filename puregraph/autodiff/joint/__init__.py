"""Joint graphs: one graph that computes a forward pass and its gradients, built ahead of time."""
