"""Lowering: from the calls of a schedule to native kernels."""
