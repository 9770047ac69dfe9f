"""NVIDIA's libraries: paths and calls of cuBLASLt and cuDNN."""
