"""GPU lowering: from the calls of a schedule to kernel launches and calls of NVIDIA's libraries."""
