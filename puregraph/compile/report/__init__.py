"""Reports of a program: its steps as a table, as formulas, as a drawing; FLOPs."""
