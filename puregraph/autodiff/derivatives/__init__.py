"""The derivatives of numpy's functions, of Formulas and of Kernels: gradients and tangents."""
