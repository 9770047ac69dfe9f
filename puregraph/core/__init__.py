"""What modules and nodes consist of: sizes and shapes, parameters, gradients' sums, tracers, versions, rules."""
