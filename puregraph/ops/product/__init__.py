"""Products: matrix products, contractions, and pairwise dot products."""
