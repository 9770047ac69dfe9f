"""Files: HDF5 byte by byte, JSON, writing whole or not at all, the disk cache of compiled kernels."""
