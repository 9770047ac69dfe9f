"""HdfFile: HDF5 of every version that h5py writes, against h5py, and checksums that do not fit."""

import io

import h5py
import numpy as np
import pytest

from puregraph.core.errors import CheckpointError
from puregraph.core.storage.hdffile import HdfFile
from puregraph.core.storage.hdfheap import checksum

VERSIONS = ["earliest", "v108", "v110", "v114", "latest"]


def written(fill, **options):
    """A file in memory."""
    memory = io.BytesIO()
    with h5py.File(memory, "w", **options) as file:
        fill(file)
    return memory


def compare(memory):
    """The datasets and attributes of a file are those that h5py reads."""
    read = HdfFile(memory)
    with h5py.File(memory) as file:
        paths = []
        file.visititems(lambda name, item: paths.append(name) if isinstance(item, h5py.Dataset) else None)
        assert sorted(read.datasets()) == sorted(paths)
        for path in paths:
            values = file[path][()]
            assert read.values(path).tobytes() == values.tobytes() and read.declared(path).shape == values.shape
            assert read.dtypeName(path) == values.dtype.name
        for path in ["/", *paths]:
            wanted = dict(file[path].attrs)
            attributes = read.attributes(path)
            assert set(attributes) == set(wanted)
            for name, value in attributes.items():
                plain = np.asarray(wanted[name]).tolist()
                texts = [text.decode() if isinstance(text, bytes) else text for text in np.ravel(plain).tolist()]
                assert np.ravel(value).tolist() == texts


@pytest.mark.parametrize("libver", VERSIONS)
@pytest.mark.parametrize("count", [0, 1, 8, 9, 47, 700])
def test_groups_of_any_size_are_read(libver, count):
    """Up to 8 links are in the header, more in a heap with a tree of one level or two."""

    def fill(file):
        file["last"] = np.arange(3)
        for i in range(count):
            file[f"group/array_number_{i * 7919}"] = np.float32(i)

    compare(written(fill, libver=libver))


@pytest.mark.slow
@pytest.mark.parametrize("libver", VERSIONS)
def test_a_group_of_20000_is_read(libver):
    def fill(file):
        for i in range(20_000):
            file.create_group(f"number_{i}")

    memory = written(fill, libver=libver)
    assert sorted(HdfFile(memory).names()) == sorted(f"number_{i}" for i in range(20_000))


@pytest.mark.parametrize("libver", VERSIONS)
@pytest.mark.parametrize("count", [3, 8, 9, 150])
def test_attributes_of_each_kind_are_read(libver, count):
    def fill(file):
        file["a"] = np.arange(7, dtype=np.int16)
        values = [
            "text",
            b"fixed",
            3,
            2.5,
            [1.0, 2.0],
            np.array([b"ab", b"c"]),
            ["x", "yé"],
            np.arange(6).reshape(2, 3),
        ]
        for i in range(count):
            file["a"].attrs[f"name{i}"] = values[i % len(values)]
        file.attrs["long"] = "x" * 30_000

    compare(written(fill, libver=libver))


@pytest.mark.parametrize("libver", VERSIONS)
def test_numbers_of_each_kind_and_byte_order_are_read(libver):
    rng = np.random.default_rng(1)

    def fill(file):
        for kind in "f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8".split():
            for order in "<>":
                file[f"{kind}{'big' if order == '>' else ''}"] = rng.integers(0, 100, (3, 5)).astype(order + kind)
        file["scalar"] = np.float32(3)
        file["empty"] = np.zeros((0, 4), np.float32)

    compare(written(fill, libver=libver))


@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}, {"compression": "gzip", "shuffle": True}])
def test_chunks_are_read(options):
    rng = np.random.default_rng(2)

    def fill(file):
        for shape, chunks in [((7, 9), (2, 4)), ((30,), (30,)), ((1, 100, 3), (1, 7, 3))]:
            file.create_dataset(f"{len(shape)}", data=rng.random(shape), chunks=chunks, **options)

    compare(written(fill))
    compare(written(fill, libver="v108"))


def test_the_order_of_creation_is_kept_where_the_file_has_it():
    def fill(file):
        for name in ("z", "b", "y", "a"):
            file[name] = 1

    assert list(HdfFile(written(fill, track_order=True, libver="v108")).datasets()) == ["z", "b", "y", "a"]
    assert list(HdfFile(written(fill)).datasets()) == ["a", "b", "y", "z"]


def test_a_text_shared_by_many_elements_of_a_list_is_one_text_in_the_file():
    def fill(file):
        file.attrs["names"] = [f"name {i}" for i in range(500)]

    assert HdfFile(written(fill)).attributes("")["names"] == [f"name {i}" for i in range(500)]


def test_the_checksum_is_the_published_one():
    """Values of lookup3's own self-test, hashlittle(..., 0) of this text among them."""
    assert checksum(b"") == 0xDEADBEEF
    assert checksum(b"Four score and seven years ago") == 0x17770551


def test_a_changed_byte_of_structure_fails_its_checksum():
    def fill(file):
        for i in range(60):
            file[f"array_{i}"] = np.float32(i)
        file.attrs["text"] = "here"

    data = written(fill, libver="latest").getvalue()
    for mark in (b"OHDR", b"FRHP", b"BTHD", b"BTIN", b"BTLF", b"FHDB", b"FHIB"):
        if mark not in data:
            assert mark == b"FHIB"
            continue
        at = data.index(mark) + 20
        bad = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(CheckpointError):
            read = HdfFile(io.BytesIO(bad))
            for path in read.datasets():
                read.values(path)
            read.attributes("")


def test_what_would_read_other_files_is_refused_by_name(tmp_path):
    with h5py.File(tmp_path / "virtual.h5", "w", libver="latest") as file:
        layout = h5py.VirtualLayout((4,), "f4")
        layout[:] = h5py.VirtualSource("other.h5", "x", (4,))
        file.create_virtual_dataset("v", layout)
    with h5py.File(tmp_path / "external.h5", "w") as file:
        file.create_dataset("e", (4,), "f4", external=[("other.bin", 0, 16)])
    for name, path, words in [("virtual", "v", "virtual dataset"), ("external", "e", "in another file")]:
        with open(tmp_path / f"{name}.h5", "rb") as file, pytest.raises(CheckpointError, match=words):
            HdfFile(file).declared(path)


def test_chunks_in_newer_indexes_are_refused_with_the_way_out():
    data = written(lambda file: file.create_dataset("c", data=np.arange(9), chunks=(2,)), libver="latest")
    with pytest.raises(CheckpointError, match=r"'c' has its chunks in an index .* libver='earliest'"):
        HdfFile(data).declared("c")
