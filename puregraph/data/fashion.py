"""Fashion-MNIST: 70 000 small pictures of clothes, from files on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from puregraph.core.errors import DataError
from puregraph.data.idx import readIdx
from puregraph.data.split import Pair

if TYPE_CHECKING:
    from puregraph.core.protocols import StrPath

VARIABLE = "PUREGRAPH_DATA"
SYSTEM = "/usr/share/datasets/fashion-mnist"
PACKAGE = "dataset-fashion-mnist"
FILES = [(f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte") for part in ("train", "t10k")]


def fashion(root: StrPath | None = None) -> tuple[Pair, Pair]:
    """Return ((data, target), (data, target)) to train and to test: images (n, 1, 28, 28) from 0 to 1, labels (n,).

    The four IDX files, gzipped or not, are looked for in `root`; without it in $PUREGRAPH_DATA, in its folder
    `fashion-mnist`, and where the Debian package dataset-fashion-mnist puts them.

    Source    Xiao, Rasul, Vollgraf 2017, arXiv:1708.07747
    Raises    DataError naming the folders, the package and the variable if a file is missing; or an invalid file

    >>> try:
    ...     (data, target), (testData, testTarget) = fashion("nowhere")
    ... except ValueError as error:
    ...     print(error)
    Fashion-MNIST is not in nowhere: sudo apt-get install dataset-fashion-mnist, ...
    """
    folder = find(searchFolders(root))
    pairs = [(readImages(folder, images), readLabels(folder, labels)) for images, labels in FILES]
    for (images, labels), (data, target) in zip(FILES, pairs, strict=True):
        if len(data) != len(target):
            raise DataError(f"{folder}: {images} holds {len(data)} images, {labels} {len(target)} labels")
    return pairs[0], pairs[1]


def searchFolders(root: StrPath | None) -> list[Path]:
    """The folders to search, in order."""
    if root is not None:
        return [Path(root)]
    folder = os.environ.get(VARIABLE)
    return [*([Path(folder), Path(folder, "fashion-mnist")] if folder else []), Path(SYSTEM)]


def find(folders: list[Path]) -> Path:
    """The first folder that holds the files."""
    names = [name for pair in FILES for name in pair]
    for folder in folders:
        if any(fileIn(folder, name) for name in names):
            missing = [name for name in names if not fileIn(folder, name)]
            if missing:
                raise DataError(f"{folder} holds Fashion-MNIST without {', '.join(missing)}")
            return folder
    raise DataError(
        f"Fashion-MNIST is not in {', '.join(map(str, folders))}: sudo apt-get install {PACKAGE}, "
        f"or set {VARIABLE} to the folder of its four files"
    )


def fileIn(folder: Path, name: str) -> Path | None:
    """The path of a file, gzipped or not; None where there is neither."""
    return next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)


def readImages(folder: Path, name: str) -> np.ndarray:
    """Images as values from 0 to 1, with an axis for their one channel."""
    path = fileIn(folder, name)
    images = readIdx(path)
    if images.dtype != np.uint8 or images.ndim != 3 or images.shape[1:] != (28, 28):
        raise DataError(f"{path}: wanted images (n, 28, 28) of uint8, got {images.shape} of {images.dtype}")
    return np.divide(images, 255.0, dtype=np.float32)[:, None]


def readLabels(folder: Path, name: str) -> np.ndarray:
    """Labels, checked to be classes."""
    path = fileIn(folder, name)
    labels = readIdx(path)
    if labels.dtype != np.uint8 or labels.ndim != 1 or labels.max(initial=0) > 9:
        raise DataError(f"{path}: wanted labels (n,) from 0 to 9 of uint8, got {labels.shape} of {labels.dtype}")
    return labels.astype(np.int64)
