"""Augmented: batches of images that are mirrored and shifted at random, differently in each epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core import device
from puregraph.core.arguments import Flag, Size, takes
from puregraph.core.errors import ArgumentError, DataError, show
from puregraph.data.arrays import pairFrom, rowsOf
from puregraph.data.batches import batchCount, checkedSize

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


class Augmented:
    """The batches of a training: images in random order, each mirrored with probability 1/2 and cropped at random.

        images = ImageFolder("photos/train", size=64)
        trainer.train(Augmented(images, images.target, flip=True, crop=4), validation=held)

    `flip`      mirror half of the images, left to right
    `crop`      pad images with this number of zeros on each side, then crop the original size at a random position
    `seed`      an epoch has the same images in the same order for the same `seed`, for any batchsize, and in a resumed
                run
    `dropLast`  True to leave out a last batch that would be smaller

    Shapes    images (n, c, h, w), target (n, ...)
    Source    He, Zhang, Ren, Sun 2016, arXiv:1512.03385, section 4.2
    Raises    DataError unless images have four axes and a target each, and with `dropLast` fill at least one batch;
              ArgumentError for a `crop` that is not smaller than the sides of an image
    """

    @takes(flip=Flag, crop=Size, seed=Size, dropLast=Flag)
    def __init__(
        self,
        images: AnyArray,
        target: AnyArray,
        batchsize: int = 128,
        flip: bool = True,
        crop: int = 0,
        seed: int = 0,
        dropLast: bool = False,
    ):
        if len(getattr(images, "shape", ())) != 4:
            got = f"shape {show(tuple(images.shape))}" if hasattr(images, "shape") else type(images).__name__
            raise DataError(f"Augmented: wanted images (n, channels, h, w), got {got}")
        if target is None:
            raise DataError("Augmented: wanted a target for each image, got none")
        least = min(images.shape[2:])
        if crop and crop >= least:
            raise ArgumentError(
                f"Augmented: wanted crop as fewer pixels than the {least} of an image's side, got {crop}"
            )
        (self.images,), self.target = pairFrom([images], target)
        self.batchsize, self.flip, self.crop, self.seed = checkedSize(batchsize), flip, crop, seed
        self.count = batchCount(len(self.images), self.batchsize, dropLast)

    def __repr__(self) -> str:
        arrays = ", ".join(f"array of {show(tuple(x.shape))}" for x in (self.images, *self.target))
        return f"Augmented({arrays}, batchsize={self.batchsize}, flip={self.flip}, crop={self.crop}, seed={self.seed})"

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return self.count

    def __call__(self, epoch: int) -> Iterator[tuple[np.ndarray, list[Any]]]:
        """Yield the batches of an epoch; the first epoch is 0."""
        rng = np.random.default_rng((self.seed, epoch))
        samples = len(self.images)
        order, flips = rng.permutation(samples), rng.random(samples) < 0.5
        offsets = rng.integers(0, 2 * self.crop + 1, (samples, 2))
        for number in range(self.count):
            rows = order[number * self.batchsize : (number + 1) * self.batchsize]
            images = np.array(device.toHost(rowsOf(self.images, rows, device.toDevice(rows))))
            if self.crop:
                images = cropped(images, self.crop, offsets[rows])
            if self.flip:
                images[flips[rows]] = images[flips[rows]][..., ::-1]
            yield images, [rowsOf(target, rows, device.toDevice(rows)) for target in self.target]


def cropped(images: np.ndarray, pad: int, offsets: np.ndarray) -> np.ndarray:
    """Return images padded with zeros, and cropped to the original size, each at its offset."""
    *_, height, width = images.shape
    wide = np.pad(images, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    return np.stack([x[:, i : i + height, j : j + width] for x, (i, j) in zip(wide, offsets, strict=True)])
