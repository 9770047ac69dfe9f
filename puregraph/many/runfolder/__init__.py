"""Run folder: what processes of one machine leave in the folder of their run: who lives, and why the run has ended."""
