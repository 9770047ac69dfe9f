"""Random numbers: uniform and normal, from a key and a counter."""
