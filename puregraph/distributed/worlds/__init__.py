"""The ranks of a run: how many there are, which one this is, and the collectives between them."""
