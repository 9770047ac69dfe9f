"""The file of a checkpoint: its layout, its permissions, and saving that is atomic."""

import io
import json
import os
import stat

import h5py
import numpy as np
import pytest
from nets import same, small

from puregraph import optimizers
from puregraph.core.errors import CheckpointError
from puregraph.core.storage import atomicwrite
from puregraph.core.storage.hdf import BASE, Array, HdfLayout
from puregraph.serialize import checkpointwriter
from puregraph.serialize.checkpoint import contents, loadGraph

# The file -------------------------------------------------------------------------------------------------------------


def test_other_programs_can_read_it(tmp_path):
    net, path = small(), tmp_path / "net.h5"
    net.save(path, extra={"x": np.arange(3)})
    with h5py.File(path) as file:
        assert sorted(file) == ["extra", "manifest", "params", "states"]
        for name, array in net.params.items():
            dataset = file["params"][name]
            assert np.array_equal(dataset[()], array.data) and dataset.dtype == array.dtype and dataset.chunks is None
        manifest = json.loads(bytes(file["manifest"][()]))
    assert {name: (tuple(s), d) for name, s, d, _ in manifest["arrays"]}["params/fc.W"] == ((32, 3), "float32")
    assert path.read_bytes().startswith(b"puregraph checkpoint 1\nlength ")


@pytest.mark.parametrize("count", [0, 1, 7, 9, 2047, 2048, 5000])
def test_hdf5_agrees_with_the_layout_for_any_number_of_arrays(count):
    arrays = [Array(f"params/p{i}", (i % 3,), "int16") for i in range(count)] + [Array("manifest", (3,), "uint8")]
    layout = HdfLayout(arrays)
    data = b"".join([bytes(BASE), *(piece.data for piece in layout.structure())])
    assert len(data) == layout.structureEnd
    with h5py.File(io.BytesIO(data.ljust(layout.end, b"\0"))) as file:
        assert len(file["params"]) == count if count else "params" not in file
        for array, offset in list(zip(arrays, layout.offsets, strict=True))[:: max(count // 50, 1)]:
            dataset = file[array.name]
            assert dataset.shape == array.shape and dataset.dtype == array.dtype
            assert array.nbytes == 0 or dataset.id.get_offset() == offset


def test_contents_are_told_without_reading_the_arrays():
    net = small()
    found = contents(net.save(None, optimizer=optimizers.Adam().setupOn(net), extra={"epoch": 2}))
    assert found.arrays["params/fc.W"] == Array("params/fc.W", (32, 3), "float32")
    assert found.optimizer["class"] == "optimizers.Adam" and found.blueprint["modules"][0]["class"] == "Conv2D"


def test_permissions_and_links_stay(tmp_path):
    net, path = small(), tmp_path / "net.h5"
    old = os.umask(0o027)
    try:
        net.save(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    finally:
        os.umask(old)
    path.chmod(0o604)
    link = tmp_path / "latest.h5"
    link.symlink_to("net.h5")
    net["fc"].b.data += 1
    net.save(link)
    assert link.is_symlink() and stat.S_IMODE(path.stat().st_mode) == 0o604 and same(loadGraph(path), net)


def test_what_cannot_be_saved_to_is_said(tmp_path):
    net = small()
    with pytest.raises(CheckpointError, match=r"cannot save '.*': there is no folder '.*nowhere'; make it first"):
        net.save(tmp_path / "nowhere" / "net.h5")
    with pytest.raises(CheckpointError, match="exists and is not a file"):
        net.save(tmp_path)
    with pytest.raises(CheckpointError, match="exists and is not a file"):
        net.save("/dev/null")
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="cannot save"):
        net.save(tmp_path / "file" / "net.h5")
    with pytest.raises(CheckpointError, match="cannot save"):
        net.save(tmp_path / ("x" * 300))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_said(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(CheckpointError, match="no permission to write"):
            small().save(tmp_path / "net.h5")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, OSError])
def test_the_old_file_survives_a_save_that_fails_in_the_middle(error, tmp_path, monkeypatch):
    net, path = small(), tmp_path / "net.h5"
    net.save(path)
    before = path.read_bytes()
    fetch = checkpointwriter.device.toHost
    calls = iter(range(100))
    monkeypatch.setattr(
        checkpointwriter.device, "toHost", lambda a: fetch(a) if next(calls) < 4 else (_ for _ in ()).throw(error())
    )
    with pytest.raises(CheckpointError if error is OSError else error):
        net.save(path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["net.h5"]


def test_a_file_that_is_open_for_reading_can_be_replaced(tmp_path):
    net, path = small(), tmp_path / "net.h5"
    net.save(path)
    with open(path, "rb") as reader:
        net["fc"].b.data += 1
        net.save(path)
        assert not same(loadGraph(reader.read()), net) and same(loadGraph(path), net)


# Rights and errors of the file system -----------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such rights")
def test_a_private_file_is_replaced_through_a_private_one(tmp_path, monkeypatch):
    path, seen = tmp_path / "net.h5", []
    small().save(path)
    path.chmod(0o600)
    inner = checkpointwriter.write

    def watched(file, *rest):
        seen.append(stat.S_IMODE(os.fstat(file.fileno()).st_mode))
        inner(file, *rest)

    monkeypatch.setattr(checkpointwriter, "write", watched)
    small().save(path)
    assert seen == [0o600] and stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    small().save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_an_error_at_close_after_the_rename_does_not_say_that_the_old_file_is_there(tmp_path, monkeypatch):
    path = tmp_path / "net.h5"
    small().save(path)
    net = small()
    for array in net.params.values():
        array.data = np.ones(array.shape, np.float32)
    opened = atomicwrite.openPartial

    class Failing:
        """A file whose close reports an error, as one on a network may."""

        def __init__(self, file):
            self.file = file

        def __getattr__(self, name):
            return getattr(self.file, name)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.close()

        def close(self):
            self.file.close()
            raise OSError(5, "Input/output error")

    def failing(*given):
        file, partial = opened(*given)
        return Failing(file), partial

    monkeypatch.setattr(atomicwrite, "openPartial", failing)
    net.save(path)  # all was brought to the disk and renamed: the new file is there
    assert all((array.data == 1).all() for array in loadGraph(path).params.values())
    assert [p.name for p in tmp_path.iterdir()] == ["net.h5"]
