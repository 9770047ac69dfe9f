"""The emulator: kernels for a GPU, run and watched on the CPU."""
