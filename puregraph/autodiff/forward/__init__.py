"""Forward mode and per-sample gradients: rules run on values that stand in for arrays."""
