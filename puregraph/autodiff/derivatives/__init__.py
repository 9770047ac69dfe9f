"""The derivatives of numpy's functions and of Formulas: gradients and tangents, declared together."""

from puregraph.autodiff.derivatives import (  # noqa: F401 - their rules are registered when they are imported
    indexing,
    linalg,
    reshapes,
)
