"""Files of every release are read by this one, and mean what they meant. Newer files are refused in a sentence."""

import json
import zlib

import numpy as np
import pytest
from goldenfiles import FOLDER, facts

import puregraph
from puregraph import CheckpointError
from puregraph.core.storage.archive import BASE, TITLE
from puregraph.serialize.checkpoint import load, save

FILES = sorted(path.stem for path in FOLDER.glob("*.h5"))
KINDS = {"plain", "trained", "nested", "tied", "doubles", "halves", "picture", "pieces"}


def test_a_file_of_each_kind_is_there_and_small():
    assert set(FILES) >= KINDS
    assert all(path.stat().st_size < 20_000 for path in FOLDER.iterdir())


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_release_means_what_it_meant(name):
    wanted = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    known = facts(*load(FOLDER / f"{name}.h5"), name)
    for y, want in zip(known.pop("outputs"), wanted.pop("outputs"), strict=True):
        rough = 1e-2 if name == "halves" else 1e-6
        assert y["shape"] == want["shape"]
        np.testing.assert_allclose(y["numbers"], want["numbers"], rough, rough)
    assert known == wanted


@pytest.mark.parametrize("name", sorted(set(FILES) - {"pieces"}))
def test_equal_content_makes_the_bytes_that_the_release_wrote(name):
    data = (FOLDER / f"{name}.h5").read_bytes()
    assert save(None, *load(data)) == data


def test_ties_are_kept():
    net = puregraph.load(FOLDER / "tied.h5")
    assert net["other"].W is net["layer"].W


def newer(data, version):
    """A file whose header says that it is of another version, and is right otherwise."""
    lines = bytes(data[:BASE]).rstrip(b"\0").split(b"\n")[:-2]
    lines[0] = TITLE + str(version).encode()
    text = b"\n".join(lines) + b"\n"
    return (text + b"header %08x\n" % zlib.crc32(text)).ljust(BASE, b"\0") + data[BASE:]


def test_a_newer_file_is_refused_by_its_version(tmp_path):
    data = (FOLDER / "plain.h5").read_bytes()
    assert newer(data, 1) == data
    (tmp_path / "new.h5").write_bytes(newer(data, 2))
    with pytest.raises(
        CheckpointError, match=r"new.h5': it is of version 2, this puregraph reads version 1; a newer one may read it"
    ):
        puregraph.load(tmp_path / "new.h5")
    (tmp_path / "new.h5").write_bytes(newer(data, 2)[:700])  # whatever else is in it
    with pytest.raises(CheckpointError, match="it is of version 2"):
        puregraph.load(tmp_path / "new.h5")
