"""What modules and nodes are made of: sizes and shapes, parameters, gradients' sums, tracers, versions, rules."""
