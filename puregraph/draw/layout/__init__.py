"""Layout: the coordinates of the boxes, lines and texts of a picture."""
