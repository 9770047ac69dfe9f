"""Convolution: sums of products over windows, the transposed convolution, and the gradient of the filters."""
