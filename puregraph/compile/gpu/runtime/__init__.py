"""Execution of a program on a GPU: captured graphs, memory, transfers, and the status of updates."""
