"""Building blocks of modules and nodes: sizes, shapes, parameters, gradient sums, tracers, versions, rules."""
