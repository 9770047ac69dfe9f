"""Loop nests in native code: elementwise, reductions, copies, epilogues, and checks of inputs."""
