"""Checkpoints: graphs as JSON and back, their arrays, optimizers and reports of loading."""
