"""Building blocks of graphs and operations: shapes, parameters, versions, errors, devices, files."""
