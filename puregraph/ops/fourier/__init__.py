"""Fourier transforms: the kernel, complex numbers as pairs of real arrays, and numpy's fft on them."""

from puregraph.ops.fourier.complexpair import ComplexPair as ComplexPair
