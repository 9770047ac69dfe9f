"""ImageChart: images side by side in rows, as shades of characters and as a picture."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core import device
from puregraph.core.arguments import isNumber
from puregraph.core.errors import ArgumentError, DataError, show
from puregraph.draw.charts.chart import Chart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.core.protocols import AnyArray

SHADES = " .:-=+*#%@"
ROW_CHARACTERS = 78  # characters of a row of images


class ImageChart(Chart):
    """Images (n, h, w), (n, 1, h, w) or (n, 3, h, w), in rows of `columns`, each with its title above it.

    `span` holds the values of black and white; values outside of it are clipped.

    Raises    DataError for arrays of other shapes, or values that are not finite; ArgumentError for another number of
              titles, or a span that is empty
    """

    def __init__(
        self, images: AnyArray, titles: Sequence[str] | None = None, columns: int | None = None, span: Any = None
    ):
        array = np.asarray(device.toHost(images))
        if array.ndim == 3:
            array = array[:, None]
        if array.ndim != 4 or array.shape[1] not in (1, 3) or not array.size or array.dtype.kind not in "iufb":
            got = f"{show(array.shape)} of {array.dtype}"
            hint = "; image[None] makes one image a grid of one" if array.ndim == 2 else ""
            if array.ndim == 4 and array.shape[-1] in (1, 3):
                hint = "; images.transpose(0, 3, 1, 2) puts channels first"
            raise DataError(f"images: wanted numbers (n, h, w), (n, 1, h, w) or (n, 3, h, w), got {got}{hint}")
        if titles is not None and np.shape(titles) != (len(array),):
            got = f"shape {show(np.shape(titles))}" if np.ndim(titles) else repr(titles)
            hint = f"; a file is given as path={titles!r}" if isinstance(titles, (str, os.PathLike)) else ""
            raise ArgumentError(f"titles: wanted one for each of {len(array)} images, got {got:.80}{hint:.120}")
        self.titles = None if titles is None else [str(title) for title in titles]
        low, high = spanFrom(span, 255 if array.dtype == np.uint8 else 1)
        wrong = ~np.isfinite(array).all(axis=(1, 2, 3))
        if wrong.any():
            raise DataError(f"images: wanted finite numbers, got others in image {int(wrong.argmax())}")
        self.columns = min(columns or math.ceil(math.sqrt(len(array))), len(array))
        self.images = np.clip((array.astype(np.float64) - low) / (high - low), 0, 1).transpose(0, 2, 3, 1)

    def text(self) -> str:
        wide = max(4, min(self.images.shape[2] * 2, ROW_CHARACTERS // self.columns - 2))
        high = max(2, round(wide * self.images.shape[1] / self.images.shape[2] / 2))  # characters are twice as high
        rows = []
        for start in range(0, len(self.images), self.columns):
            chosen = range(start, min(start + self.columns, len(self.images)))
            if self.titles is not None:
                rows.append("  ".join(self.titles[i][:wide].ljust(wide) for i in chosen).rstrip())
            lines = zip(*(shades(self.images[i], wide, high) for i in chosen))
            rows += [*("  ".join(line).rstrip() for line in lines), ""]
        return "\n".join(rows[:-1])

    def drawOn(self, figure: Any) -> None:
        rows = math.ceil(len(self.images) / self.columns)
        side = min(1.5, 16 / self.columns)
        height = side * self.images.shape[1] / self.images.shape[2] + (0.3 if self.titles else 0)
        figure.set_size_inches(self.columns * side, rows * height)
        for i, axes in enumerate(figure.subplots(rows, self.columns, squeeze=False).flat):
            axes.axis("off")
            if i < len(self.images):
                axes.imshow(self.images[i], cmap="gray", vmin=0, vmax=1, interpolation="nearest")
                axes.set_title("" if self.titles is None else self.titles[i], fontsize="small")


def spanFrom(span: Any, white: float) -> tuple[float, float]:
    """The values of black and white; from 0 to `white` if left out."""
    if span is None:
        return 0, white
    if not (isinstance(span, (tuple, list)) and len(span) == 2 and all(map(isNumber, span)) and span[0] < span[1]):
        raise ArgumentError(f"span: wanted the values of black and white, the smaller first, got {span!r:.200}")
    return span[0], span[1]


def shades(image: np.ndarray, wide: int, high: int) -> list[str]:
    """Convert an image (h, w, channels) of values from 0 to 1 to characters, each sampled at its middle pixel."""
    gray = image.mean(axis=2)
    rows = ((np.arange(high) + 0.5) * gray.shape[0] / high).astype(int)
    columns = ((np.arange(wide) + 0.5) * gray.shape[1] / wide).astype(int)
    levels = np.round(gray[rows[:, None], columns] * (len(SHADES) - 1)).astype(int)
    return ["".join(SHADES[k] for k in row) for row in levels]
