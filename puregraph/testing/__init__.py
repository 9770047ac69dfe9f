"""Checks of modules and graphs, and an emulator that runs kernels for a GPU on the CPU."""
