"""Files: HDF5 byte by byte, JSON, atomic writes, the disk cache of compiled kernels."""
