"""Images: folders of them, read when they are wanted, and batches in which they are mirrored and moved."""

import sys
import tracemalloc
import warnings

import limited
import numpy as np
import pytest

from puregraph import Adam, CrossEntropy, Flatten, Linear, Sequential, Trainer, seed
from puregraph.core.errors import ArgumentError, DataError
from puregraph.data import Augmented, ImageFolder, split
from puregraph.data.batches import Stream

Image, ImageOps = pytest.importorskip("PIL.Image"), pytest.importorskip("PIL.ImageOps")


def save(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, np.uint8)).save(path, **options)


@pytest.fixture
def folder(tmp_path, rng):
    """Two classes of ten images, bright and dark."""
    root = tmp_path / "photos"
    for name, low in (("night", 0), ("day", 200)):
        for i in range(10):
            save(root / name / f"{i}.png", rng.integers(low, low + 50, (6, 8, 3)))
    return root


def message(function, *arguments, **options):
    with pytest.raises(DataError) as found:
        function(*arguments, **options)
    return str(found.value)


# Folders ------------------------------------------------------------------------------------------------------


def test_a_folder_is_a_class_and_its_images_are_an_array(folder):
    images = ImageFolder(folder)
    assert images.names == ["day", "night"] and images.target.tolist() == [0] * 10 + [1] * 10
    assert images.shape == (20, 3, 6, 8) and len(images) == 20 and images.nbytes == images[:].nbytes
    for i in (0, 13):
        pixels = np.asarray(Image.open(images.paths[i]), np.float32) / 255
        np.testing.assert_array_equal(images[i], pixels.transpose(2, 0, 1))
    np.testing.assert_array_equal(images[[13, 0]], images[:][[13, 0]])
    pixels = ImageFolder(folder, dtype="uint8")
    assert pixels[:].dtype == np.uint8 and pixels.nbytes * 4 == images.nbytes
    np.testing.assert_array_equal(pixels[:] / np.float32(255), images[:])
    assert "wanted dtype float32 or uint8, got float64" in message(ImageFolder, folder, dtype="float64")


def test_images_are_scaled_until_they_cover_and_cut_evenly(tmp_path):
    pixels = np.zeros((4, 12, 3))
    pixels[:, 4:8] = 255
    save(tmp_path / "a" / "wide.png", pixels)
    images = ImageFolder(tmp_path, size=4)
    assert images.shape == (1, 3, 4, 4) and images[:].min() == 1
    assert ImageFolder(tmp_path, size=(2, 6)).shape == (1, 3, 2, 6)


def test_gray_palettes_and_turned_images_are_read(tmp_path):
    pixels = np.arange(24).reshape(4, 6) * 10
    save(tmp_path / "a" / "1.png", pixels)
    turned = Image.fromarray(np.asarray(pixels.T[:, ::-1], np.uint8))
    exif = turned.getexif()
    exif[0x0112] = 8  # the camera was held upright
    turned.save(tmp_path / "a" / "2.png", exif=exif)
    Image.fromarray(np.asarray(pixels, np.uint8)).convert("P").save(tmp_path / "a" / "3.png")
    found = ImageFolder(tmp_path, gray=True)
    assert found.shape == (3, 1, 4, 6)
    for image in found[:]:
        np.testing.assert_allclose(image[0], pixels / 255, atol=1e-6)


def test_what_is_no_image_of_the_folder_is_left_out(folder):
    (folder / "day" / "notes.txt").write_text("sunny")
    (folder / "day" / ".hidden.png").write_bytes(b"")
    (folder / ".checkpoints").mkdir()
    (folder / "list.csv").write_text("a")
    assert len(ImageFolder(folder)) == 20


@pytest.mark.parametrize("content", [b"", b"text", "half"])
def test_a_damaged_file_is_named(folder, content):
    path = folder / "day" / "3.png"
    path.write_bytes(path.read_bytes()[:90] if content == "half" else content)
    images = ImageFolder(folder)
    assert len(images[:3]) == 3
    assert message(images.__getitem__, slice(0, 5)).startswith(f"{path}: cannot be read as an image")


def test_what_cannot_be_classes_is_refused(folder, tmp_path):
    assert "wanted a folder with a folder for each class, got none" in message(ImageFolder, tmp_path / "missing")
    assert "got a file" in message(ImageFolder, folder / "day" / "1.png")
    assert "wanted a folder for each class in it" in message(ImageFolder, folder / "day")
    assert "size: wanted" in message(ImageFolder, folder, size=0)
    assert "height and width" in message(ImageFolder, folder, size=(1, 2, 3))
    (folder / "empty").mkdir()
    assert f"{folder / 'empty'}: wanted images of this class" in message(ImageFolder, folder)


def test_images_of_other_sizes_and_depths_are_named(folder):
    save(folder / "day" / "3.png", np.zeros((5, 5, 3)))
    assert "3.png: wanted 6 x 8 as the first image, got 5 x 5; ImageFolder(path, size=64)" in message(
        ImageFolder(folder).__getitem__, slice(None)
    )
    Image.fromarray(np.full((6, 8), 40000, np.uint16)).save(folder / "day" / "0.png")
    assert "0.png: wanted 8 bits for each channel" in message(ImageFolder, folder)


def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(tmp_path):
    (tmp_path / "a").mkdir()
    Image.new("1", (12_000, 12_000)).save(tmp_path / "a" / "1.png")
    images = ImageFolder(tmp_path, size=8)
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert "1.png: wanted at most 89,478,485 pixels, got 12,000 x 12,000: scale the image down, or" in message(
                images.__getitem__, [0]
            )
        assert "1.png: cannot be read as an image: Image size" in message(images.__getitem__, [0])
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


FLAT = {
    "a PNG just below Pillow's limit": ("PNG", (9400, 9400), "refused"),
    "a PNG of a screen": ("PNG", (4096, 4000), "read"),
    "a JPEG just below Pillow's limit": ("JPEG", (9400, 9400), "read"),
    "a GIF just below Pillow's limit": ("GIF", (9400, 9400), "refused"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is that of Linux")
def test_a_small_image_of_many_pixels_is_read_or_refused_within_two_seconds_and_200_megabytes(tmp_path):
    paths = []
    for i, (kind, size, _) in enumerate(FLAT.values()):
        paths.append(tmp_path / str(i) / "a" / "1.png")
        paths[-1].parent.mkdir(parents=True)
        Image.new("L" if kind == "GIF" else "RGB", size).save(paths[-1], kind)
    save(tmp_path / "b" / "a" / "1.png", np.zeros((8, 8, 3)))
    ImageFolder(tmp_path / "b", size=8)[[0]]  # imports what it takes
    results = limited.outcomes(lambda path: ImageFolder(path.parent.parent, size=8)[[0]], paths, paths)
    limited.check(FLAT, results)
    assert [result.text for result in results] == [wanted for *_, wanted in FLAT.values()]
    assert "wanted at most 16,777,216 pixels from a file of" in message(
        lambda: ImageFolder(tmp_path / "0", size=8)[[0]]
    )


UNSCALED = {
    "a PNG of a large screen": ((4096, 4000), "float32", "refused"),
    "a PNG of a screen": ((2560, 1600), "float32", "read"),
    "a PNG of a large screen, as bytes": ((3840, 2400), "uint8", "read"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is that of Linux")
def test_an_image_that_is_not_scaled_is_read_or_refused_within_200_megabytes(tmp_path):
    rows = list(enumerate(UNSCALED.values()))
    for i, (size, *_) in rows:
        path = tmp_path / str(i) / "a" / "1.png"
        path.parent.mkdir(parents=True)
        Image.new("RGB", size, (1, 2, 3)).save(path, "PNG")
    save(tmp_path / "b" / "a" / "1.png", np.zeros((8, 8, 3)))
    ImageFolder(tmp_path / "b")[[0]]  # imports what it takes
    paths = [tmp_path / str(i) / "a" / "1.png" for i, _ in rows]
    results = limited.outcomes(lambda row: ImageFolder(tmp_path / str(row[0]), dtype=row[1][1])[[0]], rows, paths)
    limited.check(UNSCALED, results)
    assert [result.text for result in results] == [wanted for *_, wanted in UNSCALED.values()]
    assert "give size= to scale all images" in message(ImageFolder, tmp_path / "0")


def test_a_limit_of_pixels_that_was_set_is_the_only_one(tmp_path, monkeypatch):
    save(tmp_path / "a" / "1.png", np.zeros((5200, 5000, 3)))
    assert "set PIL.Image.MAX_IMAGE_PIXELS to a limit" in message(ImageFolder(tmp_path, size=4).__getitem__, [0])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100_000_000)
    assert ImageFolder(tmp_path, size=4)[:].shape == (1, 3, 4, 4)


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_large_jpeg_is_decoded_at_a_fraction_and_looks_the_same(tmp_path, rng, monkeypatch, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    small = Image.fromarray(rng.integers(64, 192, (3, 4, 3)).astype(np.uint8))
    (tmp_path / "a").mkdir()
    small.resize((1200, 900), Image.Resampling.BICUBIC).save(tmp_path / "a" / "1.jpg", quality=95, exif=exif)
    images = ImageFolder(tmp_path, size=(32, 24))
    decoded, fit = [], ImageOps.fit
    monkeypatch.setattr(ImageOps, "fit", lambda image, *rest: decoded.append(image.size) or fit(image, *rest))
    found = images[0]
    assert decoded == [(150, 113) if orientation == 1 else (113, 150)]
    monkeypatch.setattr("puregraph.data.imagefolder.FINER", 1000)
    exact = images[0]
    np.testing.assert_allclose(found, exact, atol=8 / 255)
    assert np.abs(found - exact).mean() < 2 / 255
    assert len(decoded) == 2 and max(decoded[1]) == 1200


def test_a_network_learns_from_a_folder(folder):
    images = ImageFolder(folder)
    trainer = Trainer(Sequential(Flatten(), Linear(144, 2)), CrossEntropy(), Adam(1e-2), batchsize=6, progress="none")
    history = trainer.train(images, images.target, epochs=20, validation=0.2)
    assert history[-1]["val loss"] < 0.3
    (data, target), (held, _) = split(images, images.target, part=0.2)
    assert data.shape == (16, 3, 6, 8) and held.shape == (4, 3, 6, 8) and len(target) == 16


# Augmentation -------------------------------------------------------------------------------------------------


def test_every_image_is_there_once_mirrored_or_not(rng):
    images = rng.random((50, 2, 3, 5)).astype("f4")
    ((found, (labels,)),) = Augmented(images, np.arange(50), batchsize=50)(0)
    assert sorted(labels) == list(range(50))
    same, mirrored = ((found == wanted).all(axis=(1, 2, 3)) for wanted in (images[labels], images[labels][..., ::-1]))
    assert (same ^ mirrored).all() and 10 < mirrored.sum() < 40


def test_a_crop_that_may_leave_nothing_of_an_image_is_refused():
    images = np.zeros((2, 1, 5, 4), "f4")
    Augmented(images, np.arange(2), crop=3)
    with pytest.raises(ArgumentError, match="wanted crop as fewer pixels than the 4 of an image's side, got 4"):
        Augmented(images, np.arange(2), crop=4)


def test_crops_are_windows_of_the_padded_image(rng):
    images = rng.random((80, 1, 4, 4)).astype("f4")
    ((found, (labels,)),) = Augmented(images, np.arange(80), flip=False, crop=1)(3)
    wide = np.pad(images[labels], ((0, 0), (0, 0), (1, 1), (1, 1)))
    hits = np.array(
        [[(found[n] == wide[n, :, i : i + 4, j : j + 4]).all() for i in range(3) for j in range(3)] for n in range(80)]
    )
    assert hits.any(axis=1).all() and hits.any(axis=0).all()


def test_epochs_differ_and_repeat_whatever_the_batchsize(rng):
    images = rng.random((20, 1, 4, 4)).astype("f4")

    def epoch(number, batchsize=6, seed=0):
        batches = list(Augmented(images, np.arange(20), batchsize, crop=2, seed=seed)(number))
        return np.concatenate([x for x, _ in batches]), [len(x) for x, _ in batches]

    first, sizes = epoch(0)
    assert sizes == [6, 6, 6, 2] and len(Augmented(images, np.arange(20), 6)) == 4
    whole = Augmented(images, np.arange(20), 6, crop=2, dropLast=True)
    assert len(whole) == 3 and np.array_equal(np.concatenate([x for x, _ in whole(0)]), first[:18])
    np.testing.assert_array_equal(first, epoch(0)[0])
    np.testing.assert_array_equal(first, epoch(0, batchsize=7)[0])
    assert not np.array_equal(first, epoch(1)[0]) and not np.array_equal(first, epoch(0, seed=1)[0])


def test_images_given_are_not_written_to(rng):
    images = rng.random((8, 1, 4, 4)).astype("f4")
    before = images.copy()
    list(Augmented(images, np.arange(8), 8)(0))
    np.testing.assert_array_equal(images, before)


def test_a_training_with_augmented_images_repeats_and_resumes(folder, tmp_path):
    images = ImageFolder(folder)

    def run(*epochs):
        seed(0)
        net = Sequential(Flatten(), Linear(144, 2))
        trainer = Trainer(net, CrossEntropy(), Adam(1e-2), progress="none")
        for count in epochs:
            history = trainer.train(Augmented(images, images.target, 6, crop=1), epochs=count)
        return history.column("loss")

    assert run(4) == run(4) and run(2, 2) == run(4)


def test_what_cannot_be_augmented_is_refused(rng):
    assert "wanted images (n, channels, h, w), got shape (3, 4)" in message(Augmented, np.ones((3, 4)), np.ones(3))
    assert "3 samples, target 2" in message(Augmented, np.ones((3, 1, 2, 2)), np.ones(2))
    assert Stream(Augmented(np.ones((3, 1, 2, 2)), np.ones(3), 2)).count == 2


def test_augmented_images_are_shown_with_their_shapes_and_arguments():
    made = Augmented(np.zeros((5, 1, 8, 8), np.float32), np.zeros(5, int), batchsize=2, crop=1)
    assert repr(made) == "Augmented(array of (5, 1, 8, 8), array of (5,), batchsize=2, flip=True, crop=1, seed=0)"
