"""Reductions: softmax, means and variances, norms, entropy and sums of windows."""
