"""NVIDIA's libraries: cuBLASLt and cuDNN, where they are, what they are asked, and how they are called."""
