"""NVIDIA's libraries: cuBLASLt and cuDNN, where they are found, and how they are called."""
