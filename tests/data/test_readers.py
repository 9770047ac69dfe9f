"""Readers: whatever a file of somebody else holds, and however it is named, a reader opens that file alone."""

import gzip
import io
import json
import os
from contextlib import suppress

import numpy as np
import pytest
from audited import events
from test_data import idx

from puregraph.core.errors import DataError
from puregraph.data import ImageFolder, TableReader, digits, fashion, readCsv, readIdx
from puregraph.data.imagefolder import ENDINGS

Image = pytest.importorskip("PIL.Image")

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"
TABLE = b"age,city\n31,Rome\n20,Oslo\n"
KNOWN = {"numbers": ["age"], "categories": ["city"], "classes": None, "fill": None, "scale": False, "quantities": []}
FITTED = {"vocabulary": {"city": ["Oslo", "Rome"]}, "fills": [0.0], "means": [25.5], "deviations": [5.5], "gapped": []}
SETTINGS = json.dumps(KNOWN | FITTED).encode()


def picture(kind):
    """The bytes of an image in one of Pillow's formats."""
    file = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(file, kind)
    return file.getvalue()


def image(path):
    return ImageFolder(path.parent.parent, size=8)[[0]]


READERS = {
    "csv": (readCsv, TABLE, "a.csv"),
    "idx": (readIdx, idx(np.arange(6)), "a-idx1-ubyte"),
    "zipped idx": (readIdx, gzip.compress(idx(np.arange(6))), "a.gz"),
    "table": (TableReader(numbers="age", categories="city").fit, TABLE, "a.csv"),
    "table's settings": (TableReader.load, SETTINGS, "a.json"),
    "image": (image, picture("PNG"), "a.png"),
}
HOSTILE = {
    "eps": EPS,
    "shell": b"#!/bin/sh\ntouch started\n",
    "pickle": b"cos\nsystem\n(S'touch started'\ntR.",
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
    "playlist": b"/etc/passwd\nfile:///etc/passwd\n|touch started\n",
    "zip": b"PK\x03\x04" + bytes(60),
    "xml": b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
}
NAMES = ["a.csv", "a.json", "a.csv.gz", "a.npy", "a.pkl", "a-idx3-ubyte.gz", "|touch started", "a.zip", "a.eps.png"]


def opened(read, path):
    """The events of one read, which either works or ends in a sentence."""
    with events() as seen:
        with suppress(DataError):
            read(path)
    return {each for each in seen if each[0] not in ("os.listdir", "os.scandir")}


@pytest.mark.parametrize("name", READERS)
def test_a_reader_opens_its_file_and_nothing_else_whatever_is_in_it_and_however_it_is_called(tmp_path, name):
    read, sound, sample = READERS[name]
    folder = tmp_path / "set" / "a"
    folder.mkdir(parents=True)
    for content in (EPS, sound):  # imports what it takes
        (folder / sample).write_bytes(content)
        opened(read, folder / sample)
    read(folder / sample)
    (folder / sample).unlink()
    for each in NAMES if name != "image" else [f"a{ending}" for ending in sorted(ENDINGS)]:
        for content in (sound, *HOSTILE.values()):
            path = folder / each
            path.write_bytes(content)
            found = opened(read, path)
            assert found == {("open", str(path))}, (each, content[:30])
            path.unlink()


def test_the_data_sets_open_their_files_alone(tmp_path):
    digits()
    with events() as seen:
        digits()
    assert {os.path.basename(name) for event, name in seen if event == "open"} == {"digits.csv.gz"}
    assert {event for event, _ in seen} <= {"open", "os.listdir", "os.scandir"}
    for part in ("train", "t10k"):
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(EPS)
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(EPS)
    assert opened(fashion, tmp_path) == {("open", str(tmp_path / "train-images-idx3-ubyte"))}


@pytest.mark.parametrize("ending", sorted(ENDINGS))
def test_an_image_of_any_known_format_is_read_under_each_ending(tmp_path, ending):
    path = tmp_path / "a" / f"1{ending}"
    path.parent.mkdir()
    for kind in ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP"):
        path.write_bytes(picture(kind))
        assert ImageFolder(tmp_path)[:].shape == (1, 3, 8, 8)


@pytest.mark.parametrize("kind", ["EPS", "PDF", "ICO", "TGA", "PCX", "SGI", "JPEG2000"])
def test_a_format_that_no_ending_names_is_refused_by_name(tmp_path, kind):
    path = tmp_path / "a" / "1.png"
    path.parent.mkdir()
    path.write_bytes(picture(kind))
    with pytest.raises(DataError, match=r"1.png: cannot be read as an image: wanted BMP, GIF, JPEG, PNG, PPM, TIFF or"):
        ImageFolder(tmp_path)
