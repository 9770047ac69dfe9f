"""Digits: 1797 handwritten digits that come with scikit-learn, for a first run with no download."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from puregraph.core.errors import DataError
from puregraph.data.split import Pair, split


def digits(part: float = 0.25, seed: int = 0) -> tuple[Pair, Pair]:
    """Return ((data, target), (data, target)) to train and to test: images (n, 1, 8, 8) from 0 to 1, labels (n,).

    `part` of every class is held out to test, the same samples for the same `seed`.

    Source    Alpaydin, Kaynak 1998, Optical Recognition of Handwritten Digits, UCI repository (its test set)
    Raises    DataError naming the package to install, if there is no scikit-learn
    """
    rows = digitRows()
    images = (rows[:, :64] / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    return split(images, rows[:, 64].astype(np.int64), part, seed)


def digitRows() -> np.ndarray:
    """Read the rows of scikit-learn's file: 64 pixels and a label each. Importing scikit-learn would take seconds."""
    spec = find_spec("sklearn")
    path = Path(spec.origin or "").parent / "datasets" / "data" / "digits.csv.gz" if spec else Path()
    if path.is_file():
        with gzip.open(path) as file:
            return np.loadtxt(file, delimiter=",")
    try:
        from sklearn.datasets import load_digits  # where it keeps that file elsewhere
    except ImportError as error:
        raise DataError(
            f"the digits come with scikit-learn, which cannot be imported ({error}): pip install scikit-learn, "
            "or the extra puregraph[examples]"
        ) from None
    bunch = load_digits()
    return np.column_stack([bunch.data, bunch.target])
