"""The emulator: GPU kernels, run and checked on the CPU."""
