"""Layout: where the boxes, lines and texts of a picture stand."""
