"""ImageFolder: the images in a folder of folders, read from their files when a batch wants them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.arguments import Dtype, FilePath, Flag, takes
from puregraph.core.errors import DataError
from puregraph.data.batches import checkedSize

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from puregraph.core.protocols import StrPath

ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # safe formats: for others, Pillow may start Ghostscript
PIXELS = 89_478_485  # Pillow's own MAX_IMAGE_PIXELS
PIXEL_BYTES = 4  # per decoded RGB pixel
DECODED = 64 << 20  # bytes that any file's pixels may take, decoded and in the resulting array
EXPANSION = 4  # most pixels per byte of a larger file; photographs have up to 3.75
FINER = 3  # Pillow's reducing_gap: a JPEG is decoded at a reduced size of at least 3 times `size`, the best quality


class ImageFolder:
    """The images in a folder with a subfolder for each class, as an array whose rows are read when they are indexed.

        images = ImageFolder("photos", size=64)          # photos/cat/1.jpg, photos/dog/7.png, ...
        trainer.train(images, images.target, validation=0.2)

    `size`  height and width, or one number for both: an image is scaled to cover them, and cropped at the center. Left
            out, all images must have the same size
    `gray`  one channel in place of red, green and blue
    `dtype`  float32 from 0 to 1; or uint8, the original bytes: a quarter of the memory and of the transfer to a GPU,
            where the step converts them. Begin the network with `MulAddConst(1 / 255)` to scale them to 0 to 1

    `names` are the classes in alphabetical order, the order of their numbers. `target` has the class of each image,
    `paths` its file. Files with other endings, and names that begin with a dot, are skipped.

    Shapes    (n, 3 or 1, height, width) of float32 from 0 to 1, or of uint8; target (n,) of int64
    Source    Pillow reads the files: pip install puregraph[images]
    Raises    DataError naming the folder without images, or, on reading, the file that is damaged or of another size
    """

    @takes(path=FilePath, gray=Flag, dtype=Dtype)
    def __init__(self, path: StrPath, size: Any = None, gray: bool = False, dtype: DTypeLike = "float32"):
        self.dtype = np.dtype(dtype)
        if self.dtype.name not in ("float32", "uint8"):
            raise DataError(f"ImageFolder: wanted dtype float32 or uint8, got {self.dtype}")
        if importlib.util.find_spec("PIL") is None:
            raise DataError("ImageFolder: Pillow reads images: pip install puregraph[images]")
        folders = foldersIn(Path(path))
        files = [(file, i) for i, folder in enumerate(folders) for file in imagesIn(folder)]
        self.names = [folder.name for folder in folders]
        self.paths = [file for file, _ in files]
        self.target = np.array([i for _, i in files], np.int64)
        self.mode = "L" if gray else "RGB"
        self.isScaled = size is not None
        self.size = sizeFrom(size) if self.isScaled else self.pixels(self.paths[0]).shape[1:]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array that all images would be."""
        return (len(self.paths), len(self.mode), *self.size)

    @property
    def nbytes(self) -> int:
        """The bytes of the array of all images."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Read the indexed images."""
        chosen = np.arange(len(self))[rows]
        if chosen.ndim == 0:
            return self.image(self.paths[chosen])
        images = np.empty((len(chosen), *self.shape[1:]), self.dtype)
        for row, i in zip(images, chosen, strict=True):
            pixels = self.pixels(self.paths[i])
            if pixels.shape != row.shape:
                raise DataError(
                    f"{self.paths[i]}: wanted {self.size[0]} x {self.size[1]} as the first image, "
                    f"got {pixels.shape[1]} x {pixels.shape[2]}; ImageFolder(path, size=64) scales all to one size"
                )
            self.convert(pixels, row)
        return images

    def image(self, path: Path) -> np.ndarray:
        """One image, upright, of the wanted size and dtype, channels first."""
        pixels = self.pixels(path)
        return self.convert(pixels, np.empty(pixels.shape, self.dtype))

    def convert(self, pixels: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Bytes as `dtype`: floats from 0 to 1, or the bytes as they are."""
        if self.dtype.kind == "f":
            return np.divide(pixels, 255, out=out, dtype=self.dtype)
        out[:] = pixels
        return out

    def pixels(self, path: Path) -> np.ndarray:
        """The bytes of one image, upright, of the wanted size, channels first."""
        from PIL import Image, ImageOps, UnidentifiedImageError

        try:
            with Image.open(path, formats=FORMATS) as file:
                if file.mode[0] in "IF":  # convert would cut their values off
                    raise DataError(f"{path}: wanted 8 bits for each channel, got Pillow's mode {file.mode}")
                checkPixels(path, file.size)
                if self.isScaled:
                    file.draft(None, (FINER * max(self.size),) * 2)
                checkBytes(path, file.size, 0 if self.isScaled else len(self.mode) * self.dtype.itemsize)
                ImageOps.exif_transpose(file, in_place=True)
                image = file if file.mode == self.mode else file.convert(self.mode)
                if self.isScaled:
                    image = ImageOps.fit(image, self.size[::-1], Image.Resampling.BILINEAR)
                pixels = np.asarray(image).reshape(image.height, image.width, len(self.mode))
        except UnidentifiedImageError:
            kinds = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
            raise DataError(f"{path}: cannot be read as an image: wanted {kinds}, got something else") from None
        except Image.DecompressionBombWarning as error:
            raise DataError(f"{path}: cannot be read as an image: {error}") from error
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise DataError(f"{path}: cannot be read as an image: {error}") from error
        return pixels.transpose(2, 0, 1)


def checkPixels(path: Path, size: tuple[int, int]) -> None:
    """Refuse an image of more pixels than Pillow takes for harmless, before it is decoded.

    Raises    DataError
    """
    from PIL import Image

    most = Image.MAX_IMAGE_PIXELS
    if most is not None and size[0] * size[1] > most:
        raise DataError(
            f"{path}: wanted at most {most:,} pixels, got {size[1]:,} x {size[0]:,}: scale the image down, or set "
            "PIL.Image.MAX_IMAGE_PIXELS"
        )


def checkBytes(path: Path, size: tuple[int, int], kept: int) -> None:
    """Refuse a small file whose pixels take much memory, unless MAX_IMAGE_PIXELS was set to another limit.

    `kept` is the bytes of a pixel in the resulting array, 0 if the image is scaled.

    Raises    DataError
    """
    from PIL import Image

    stored = path.stat().st_size
    pixels, most = size[0] * size[1], max(DECODED // (PIXEL_BYTES + kept), EXPANSION * stored)
    if pixels > most and Image.MAX_IMAGE_PIXELS == PIXELS:
        smaller = 'give size= to scale all images, or dtype="uint8"' if kept else "scale it down"
        raise DataError(
            f"{path}: wanted at most {most:,} pixels from a file of {stored:,} bytes, got {pixels:,} "
            f"({size[1]:,} x {size[0]:,}): {smaller}, or set PIL.Image.MAX_IMAGE_PIXELS to a limit of your own"
        )


def sizeFrom(size: Any) -> tuple[int, int]:
    """Height and width of at least 1."""
    pair = size if isinstance(size, (tuple, list)) else (size, size)
    if len(pair) != 2:
        raise DataError(f"size: wanted height and width, got {size!r}")
    return checkedSize(pair[0], "size"), checkedSize(pair[1], "size")


def foldersIn(path: Path) -> list[Path]:
    """The folders of the classes, in the order of their names."""
    if not path.is_dir():
        raise DataError(
            f"{path}: wanted a folder with a folder for each class, got {'a file' if path.exists() else 'none'}"
        )
    folders = sorted(folder for folder in path.iterdir() if folder.is_dir() and folder.name[0] != ".")
    if not folders:
        raise DataError(f"{path}: wanted a folder for each class in it, got none")
    return folders


def imagesIn(folder: Path) -> list[Path]:
    """The images of a class, in the order of their names."""
    images = sorted(file for file in folder.rglob("*") if file.suffix.lower() in ENDINGS and file.name[0] != ".")
    if not images:
        raise DataError(f"{folder}: wanted images of this class, got no file that ends in {' '.join(sorted(ENDINGS))}")
    return images
