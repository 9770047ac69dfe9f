"""Damaged and hostile checkpoints: each is refused with one clear error, and nothing of it runs."""

import io
import os
import tracemalloc
import zlib

import h5py
import numpy as np
import pytest
from audited import audited
from nets import small

from puregraph.core.errors import CheckpointError
from puregraph.core.storage.archive import TITLE, Archive, Header
from puregraph.core.storage.hdf import BASE, Array, HdfLayout
from puregraph.core.storage.jsoncodec import dumps, loads
from puregraph.graph.sequential import Sequential
from puregraph.modules import Linear
from puregraph.serialize.checkpoint import load

# Broken and hostile files ---------------------------------------------------------------------------------------------


def forge(change):
    """A file whose manifest was changed, and all else is as it should be."""
    data = small().save(None, extra={"a": np.arange(4)})
    layout = Archive(io.BytesIO(data)).layout
    offset = layout.offsets[-1]
    manifest = loads(data[offset:])
    result = change(manifest)
    text = dumps(result if isinstance(result, list) else manifest)
    layout = HdfLayout([*layout.arrays[:-1], Array("manifest", (len(text),), "uint8")])
    structure = b"".join(piece.data for piece in layout.structure())
    header = Header(1, layout.end, offset, len(text), zlib.crc32(text)).write()
    return header + structure + data[layout.structureEnd : offset] + text


def adam(**settings):
    """An optimizer as a manifest describes it."""
    return {"class": "optimizers.Adam", "args": [], "kwargs": settings, "step": 0, "state": []}


def rowOf(manifest, name="params/fc.W"):
    return next(row for row in manifest["arrays"] if row[0] == name)


def setRow(index, value):
    return lambda m: rowOf(m).__setitem__(index, value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (setRow(1, [32, 4]), "its arrays need|is not as puregraph wrote it"),
        (setRow(1, [3, 32]), "the header of 'params/fc.W' is not as puregraph wrote it"),
        (setRow(1, [10**6, 10**6]), r"'params/fc.W' cannot have the shape \(1000000, 1000000\): 4000000000000 bytes"),
        (setRow(1, [2**40, 2**40]), "impossible.*which no memory holds"),
        (setRow(1, [-1, 3]), "describes no array"),
        (setRow(1, [32.0, 3]), "describes no array"),
        (setRow(1, [True, 3]), "describes no array"),
        (setRow(1, [1] * 200), "describes no array"),
        (setRow(1, "32"), "describes no array"),
        (setRow(2, "int32"), "is not as puregraph wrote it"),
        (setRow(2, "object"), "'params/fc.W' is object; known are"),
        (setRow(2, "|V1000000000"), "known are"),
        (setRow(3, 1), "'params/fc.W' is damaged: wanted crc32 00000001"),
        (setRow(3, None), "describes no array"),
        (setRow(0, "params/fc.V"), "the link to 'params/fc.V' is not as|the group"),
        (setRow(0, "params/../x"), "cannot be a name"),
        (setRow(0, "a/b/c"), "cannot be a name"),
        (setRow(0, "params/fc.b"), "stands twice"),
        (setRow(0, "params"), "names both a group and an array"),
        (setRow(0, "manifest"), "stands twice"),
        (lambda m: m["arrays"].append(rowOf(m)), "stands twice"),
        (lambda m: m["arrays"].remove(rowOf(m)), "its arrays need"),
        (lambda m: m["arrays"].reverse(), "is not as puregraph wrote it|its arrays need"),
        (lambda m: m.update(arrays=3), "lists no arrays"),
        (lambda m: m.update(arrays=[3]), "describes no array: 3"),
        (lambda m: [1], "lists no arrays"),
        (lambda m: m.update(blueprint=None), "cannot load"),
        (lambda m: m.update(blueprint=3), "cannot load"),
        (lambda m: m.pop("blueprint") and None, "cannot load"),
        (
            lambda m: m["blueprint"]["arrays"]["fc.W"].update(shape=[10**9, 10**6]),
            r"the graph has \(1000000000, 1000000\)",
        ),
        (
            lambda m: m["blueprint"]["modules"][0].update({"class": "Mystery"}),
            "unknown class 'Mystery'.*registerModule",
        ),
        (lambda m: m.update(extra={"array": 7}), "it holds no array 'extra/7'"),
        (lambda m: m.update(extra={"array": "../params/fc.W"}), "cannot load"),
        (lambda m: m.update(extra={"file": "/etc/passwd"}), "no value that puregraph writes"),
        (
            lambda m: m.update(optimizer={"class": "Linear", "args": [1, 1], "kwargs": {}}),
            "its optimizer cannot be {'args'",
        ),
        (lambda m: m.update(optimizer={"class": "optimizers.Adam"}), "cannot load"),
        (
            lambda m: m.update(optimizer=adam(beta1=1)),
            "cannot load.*cannot be made: Adam: wanted beta1 from 0 to below 1",
        ),
        (
            lambda m: m.update(optimizer=adam(module=1)),
            "cannot load.*cannot be made: Adam: there is no argument module",
        ),
    ],
)
def test_a_forged_manifest_is_refused(change, words):
    data = forge(change)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=words):
            load(data)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def external(file, folder):
    del file["params/fc.W"]
    file["params/fc.W"] = h5py.ExternalLink(str(folder / "victim.h5"), "/secret")


def soft(file, folder):
    del file["params/fc.W"]
    file["params/fc.W"] = h5py.SoftLink("/params/fc.b")


def virtual(file, folder):
    del file["params/fc.W"]
    layout = h5py.VirtualLayout((32, 3), "f4")
    layout[...] = h5py.VirtualSource(str(folder / "victim.h5"), "secret", (32, 3))
    file.create_virtual_dataset("params/fc.W", layout)


def storage(file, folder):
    del file["params/fc.W"]
    file.create_dataset("params/fc.W", (32, 3), "f4", external=[(str(folder / "victim.bin"), 0, 384)])


def compressed(file, folder):
    del file["params/fc.W"]
    file.create_dataset("params/fc.W", data=np.zeros((32, 3), "f4"), compression="gzip")


def bomb(file, folder):
    del file["params/fc.W"]
    file.create_dataset("params/fc.W", (2**21, 2**21), "f4", chunks=(1024, 1024), compression="gzip")


def ragged(file, folder):
    del file["params/fc.W"]
    file.create_dataset("params/fc.W", (32, 3), h5py.vlen_dtype("f4"))


def text(file, folder):
    del file["params/fc.W"]
    file.create_dataset("params/fc.W", (32, 3), h5py.string_dtype())


def group(file, folder):
    file.create_group("surprise")


def further(file, folder):
    file["params/more.W"] = np.zeros(3)


def attribute(file, folder):
    file["params/fc.W"].attrs["note"] = 1


def edited(file, folder):
    file["params/fc.W"][0, 0] += 1


HOSTILE = [external, soft, virtual, storage, compressed, bomb, ragged, text, group, further, attribute, edited]


def withVictims(folder):
    """A folder with files that nobody may read."""
    with h5py.File(folder / "victim.h5", "w") as file:
        file["secret"] = np.full((32, 3), 42, "f4")
    (folder / "victim.bin").write_bytes(np.full((32, 3), 42, "f4").tobytes())
    return folder


@pytest.fixture
def folder(tmp_path):
    return withVictims(tmp_path)


@pytest.mark.parametrize("change", HOSTILE, ids=lambda f: f.__name__)
def test_a_file_that_was_edited_is_refused(change, folder):
    net, path = small(), folder / "net.h5"
    net.save(path)
    with h5py.File(path, "r+") as file:
        change(file, folder)
    with pytest.raises(CheckpointError, match="net.h5"):
        load(path)
    resealed = path.read_bytes()
    header = Archive(io.BytesIO(net.save(None))).header()
    for length in (len(resealed), header.length):
        data = bytearray(resealed[:length])
        data[:BASE] = header._replace(length=length).write()
        with pytest.raises(CheckpointError, match="is not as puregraph wrote it|its arrays need|is damaged|not zero"):
            load(bytes(data))


def test_an_edited_entry_is_named(folder):
    net, path = small(), folder / "net.h5"
    net.save(path)
    layout = Archive(io.BytesIO(path.read_bytes())).layout
    at = BASE
    seen = set()
    for piece in layout.structure():
        data = bytearray(path.read_bytes())
        data[at + len(piece.data) // 2] ^= 4
        with pytest.raises(CheckpointError) as caught:
            load(bytes(data))
        assert piece.name in str(caught.value)
        seen.add(piece.name)
        at += len(piece.data)
    assert {"the link to 'params/fc.W'", "the header of 'params/fc.W'", "the group '/params'", "the superblock"} <= seen


def test_every_byte_of_a_small_file_matters():
    data = Sequential(Linear(2, 1, name="fc")).save(None)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << (at % 8)
        with pytest.raises(CheckpointError):
            load(bytes(changed))


def test_every_truncation_of_a_small_file_is_refused():
    data = Sequential(Linear(2, 1, name="fc")).save(None)
    for length in range(len(data)):
        with pytest.raises(CheckpointError):
            load(data[:length])
    with pytest.raises(CheckpointError, match="longer than it was written"):
        load(data + b"\0")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (
            b"PK\x03\x04abc",
            r"a zip archive, .*; load its weights .* net.load\(path, names=...\), or .*readWeights\(path\)",
        ),
        (
            b"\x80\x04cos\nsystem\n",
            r"a pickle, which puregraph never reads; .*torch.save\(model.state_dict\(\), path\)",
        ),
        (b"\x93NUMPY\x01", "not an array of numpy"),
        (b"hello", "it begins with b'hello'"),
        (TITLE, "its header, the first 512 bytes, is damaged"),
        (b"\x89HDF\r\n\x1a\n", "its superblock has version 0"),
    ],
)
def test_other_files_are_told_apart(data, words):
    for attempt in (load, small().load):
        with pytest.raises(CheckpointError, match=words):
            attempt(data)


def test_a_newer_version_says_so():
    data = bytearray(small().save(None))
    data[:BASE] = Archive(io.BytesIO(bytes(data))).header()._replace(version=2).write()
    with pytest.raises(CheckpointError, match="of version 2, this puregraph reads version 1"):
        load(bytes(data))


def test_paths_that_are_no_files_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="it is a folder"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match="a path is wanted as text"):
        small().save(b"net.h5")
    with pytest.raises(CheckpointError, match=r"cannot load '.*none.h5': there is no such file"):
        load(tmp_path / "none.h5")
    with pytest.raises(CheckpointError, match="cannot load"):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        load(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        load("/dev/zero")


ACTS = ("exec", "import", "pickle", "marshal", "socket", "subprocess", "os", "ctypes")


def hostileFile(change, folder, resealed):
    """A checkpoint that was changed, in a folder of its own; its header may have been made to fit again."""
    folder.mkdir()
    path = folder / "net.h5"
    small().save(path)
    header = Archive(io.BytesIO(path.read_bytes())).header()
    with h5py.File(path, "r+") as file:
        change(file, withVictims(folder))
    if resealed:
        data = bytearray(path.read_bytes())
        data[:BASE] = header._replace(length=len(data)).write()
        path.write_bytes(data)
    return path


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each file is loaded in a fork")
@pytest.mark.parametrize("resealed", [False, True])
def test_loading_opens_one_file_and_runs_nothing(resealed, tmp_path):
    good = tmp_path / "net.h5"
    small().save(good)
    paths = [good, *[hostileFile(change, tmp_path / change.__name__, resealed) for change in HOSTILE]]
    for path, found in zip(paths, audited("load", paths)):
        result = found["result"].partition(":")[0]
        assert result == ("loaded" if path == good else "CheckpointError"), f"{path}: {found['result']}"
        opened = {name for event, name in found["events"] if event == "open"}
        acts = [each for each in found["events"] if each[0].split(".")[0] in ACTS]
        assert opened == {str(path)} and not acts, f"{path}: {opened}, {acts}"
