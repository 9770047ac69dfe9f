"""What a program says of itself: its steps as a table, as formulas, as a drawing; FLOPs."""
