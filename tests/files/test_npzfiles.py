"""Archives and arrays of numpy: read as numpy reads them, without pickles, and each lie of a zip archive is refused."""

import functools
import io
import struct
import zipfile

import numpy as np
import pytest

from puregraph import CheckpointError
from puregraph.serialize.weights import readWeights, writeWeights

RNG = np.random.default_rng(0)


def arrays():
    """Arrays of many dtypes, orders and shapes."""
    return {
        "w": RNG.standard_normal((3, 5)).astype(np.float32),
        "a/b.c": np.asfortranarray(RNG.standard_normal((4, 3, 2))),
        "number": np.array(3),
        "empty": np.zeros((0, 4), np.float16),
        "swapped": np.arange(5).astype(">i4"),
        "m": RNG.random(7) > 0.5,
        "bytes": RNG.integers(0, 255, 100_001, np.uint8),
        "zeros": np.zeros((300, 1001), np.int64),
    }


def npy(array, **options):
    """The bytes of numpy.save."""
    memory = io.BytesIO()
    np.save(memory, array, **options)
    return memory.getvalue()


def npz(**members):
    """An archive with these bytes."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return memory.getvalue()


def same(array, wanted):
    """True if an array is another one, in the machine's byte order."""
    return array.dtype.name == wanted.dtype.name and array.dtype.isnative and np.array_equal(array, wanted)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_of_numpy_are_read(save, tmp_path):
    made = arrays()
    save(tmp_path / "a.npz", **made)
    with readWeights(tmp_path / "a.npz") as weights:
        assert weights.format == "npz" and list(weights) == list(made)
        for name, array in made.items():
            assert weights[name].shape == array.shape and same(weights[name].read(), array), name
            assert weights[name].read().flags.writeable


@pytest.mark.parametrize("name", arrays())
def test_arrays_of_numpy_are_read(name):
    array = arrays()[name]
    weights = readWeights(npy(array))
    assert weights.format == "npy" and list(weights) == ["arr_0"] and same(weights["arr_0"].read(), array)


def test_numpy_reads_what_is_written_and_equal_arrays_make_equal_bytes(tmp_path):
    made = arrays()
    for name in "ab":
        writeWeights(tmp_path / f"{name}.npz", made)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with np.load(tmp_path / "a.npz") as loaded:
        assert list(loaded) == list(made) and all(np.array_equal(loaded[name], made[name]) for name in made)
    with readWeights(tmp_path / "a.npz") as weights:
        assert all(same(weights[name].read(), made[name]) for name in made)
    with pytest.raises(CheckpointError, match="an .npz holds no metadata; write a .safetensors"):
        writeWeights(tmp_path / "a.npz", made, {"k": "v"})
    with pytest.raises(CheckpointError, match="'w': an .npz holds no bfloat16; give dtype='float32'"):
        writeWeights(tmp_path / "a.npz", made, dtype="bfloat16")


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.array([None]), "it holds pickled objects, which puregraph never reads"),
        (np.zeros(2, [("a", "f4"), ("b", "O")]), "it holds pickled objects"),
        (np.zeros(2, [("a", "f4")]), "dtype .* is not supported; wanted floats, integers or bools"),
        (np.array(["a"]), "its dtype '<U1' is not supported"),
        (np.array([1j]), "its dtype '<c16' is not supported"),
        (np.zeros(2, "M8[s]"), "its dtype '<M8.s.' is not supported"),
        (np.zeros(2, "V2"), r"its dtype '\|V2' is not supported"),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(array, words):
    for data in (npy(array), npz(w=npy(array))):
        with pytest.raises(CheckpointError, match=words):
            readWeights(data)


def headed(text, data=b"", version=1):
    """An array with another header."""
    text = text.encode() if isinstance(text, str) else text
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + data


GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n"


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "{'shape':(2,3),'descr':'<f4','fortran_order':False}",
        "{ 'descr' : '<f4', 'shape': (2, 3,), 'fortran_order': False}",
    ],
)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_headers_of_other_programs_are_read(text, version):
    weights = readWeights(headed(text, np.arange(6, dtype=np.float32).tobytes(), version))
    assert weights["arr_0"].read().tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.replace("(2, 3)", "(2, 4)"), "its array takes"),
        (GOOD.replace("(2, 3)", "(-2, -3)"), "its header is damaged"),
        (GOOD.replace("(2, 3)", "(6)"), "its header is damaged"),
        (GOOD.replace("(2, 3)", "(4611686018427387904, 4)"), "its header is damaged|its shape is too large"),
        (GOOD.replace("(2, 3)", "(0, 461168601842738790)"), "its shape is too large"),
        (GOOD.replace("(2, 3)", f"({'1, ' * 40}6)"), "at most 32 axes"),
        (GOOD.replace("(2, 3)", "__import__('os').system('true')"), "its header is damaged"),
        (GOOD.replace("'<f4'", "'<f4' * 999999999"), "its header is damaged"),
        (GOOD.replace("False", "0"), "its header is damaged"),
        (GOOD.replace("'shape'", "'descr'"), "its header is damaged"),
        (GOOD.replace("}", "'x': 1}"), "its header is damaged"),
        ("{" + " " * 9000 + "x", "its header is damaged"),
        ("(" * 9000, "its header is damaged"),
        (" " * 20_000, "is too long, or cut off"),
    ],
)
def test_a_header_that_lies_is_refused(text, words):
    data = headed(text, bytes(24))
    for made in (data, npz(w=data)):
        with pytest.raises(CheckpointError, match=words):
            readWeights(made)


def patched(data, at, value):
    """Bytes with others from a place on."""
    return data[:at] + value + data[at + len(value) :]


@functools.cache
def lies():
    """Archives that lie, and what is said of each."""
    array = npy(np.arange(64, dtype=np.float32))
    good = npz(a=array, b=array)
    second = good.index(b"PK\3\4", 10)
    directory = good.index(b"PK\1\2")
    entry = good.index(b"PK\1\2", directory + 4)
    end = good.index(b"PK\5\6")
    word = "its header is damaged"
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", npy(np.zeros(100 << 20, np.uint8)))
    bomb = memory.getvalue()
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("w.npy", array)
    return {
        "cut off": (good[:-1], "end of its zip archive is damaged|without its end"),
        "cut in half": (good[:200], "a zip archive without its end: it is cut off or damaged"),
        "bytes behind": (good + b"x", "the end of its zip archive is damaged"),
        "bytes before": (good[:4] + b"xx" + good[4:], "directory is elsewhere"),
        "another member there": (patched(good, entry + 42, bytes(4)), word),
        "one member twice": (patched(patched(good, entry + 42, bytes(4)), entry + 46, b"a"), "'a.npy' stands twice"),
        "an overlap": (overlapping(good, second, directory, entry), "overlaps the one before it"),
        "a member in the directory": (patched(good, entry + 42, struct.pack("<I", directory)), word),
        "a member behind the end": (patched(good, entry + 42, b"\xfe\xff\xff\x7f"), "begins behind the end"),
        "a size that is too large": (patched(good, entry + 20, b"\xff\xff\xff\x7f" * 2), word),
        "a size of 64 bits that is missing": (patched(good, entry + 20, b"\xff\xff\xff\xff"), "its sizes are missing"),
        "an encrypted member": (patched(good, entry + 8, b"\1"), "is encrypted"),
        "another compression": (memory.getvalue(), "compressed by method 14; supported: stored and deflated"),
        "more members than there are": (patched(good, end + 8, b"\3\0\3\0"), "fewer than 3 entries"),
        "fewer members than there are": (patched(good, end + 8, b"\1\0\1\0"), "it is longer than its entries"),
        "several disks": (patched(good, end + 4, b"\1"), "directory is elsewhere"),
        "a name that is no UTF-8": (patched(good, entry + 46, b"\xff"), "the name of a member is not UTF-8"),
        "a name that differs": (patched(good, second + 30, b"c"), word),
        "another member": (npz(w=array).replace(b"w.npy", b"w.txt"), "its name does not end with .npy"),
        "a bomb": (bomb, "asks for 104,857,728 bytes of arrays or more"),
    }


def overlapping(good, second, directory, entry):
    """An archive whose second member lies inside of the first."""
    header = good[second : second + 35]
    at = 100
    made = patched(good, at, header)
    return patched(made, entry + 42, struct.pack("<I", at))


@pytest.mark.parametrize("name", lies())
def test_an_archive_that_lies_is_refused_with_what_is_wrong(name, tmp_path):
    data, words = lies()[name]
    path = tmp_path / "a.npz"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=words):
        readWeights(path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_no_wrong_number_is_read_from_a_damaged_archive(save, tmp_path):
    made = {"w": RNG.standard_normal((30, 7)), "b": RNG.standard_normal(11).astype(np.float32)}
    path = tmp_path / "a.npz"
    save(path, **made)
    good, noticed = path.read_bytes(), 0
    for at in range(0, len(good), 23):
        data = bytearray(good)
        data[at] ^= 1 << at % 8
        try:
            with readWeights(bytes(data)) as weights:
                read = {name: each.read() for name, each in weights.items()}
            assert read.keys() == made.keys() and all(np.array_equal(read[name], made[name]) for name in made), at
        except CheckpointError:
            noticed += 1
    assert noticed > 0.8 * len(good) / 23


def test_an_archive_with_an_end_of_64_bits_is_read():
    good = npz(w=npy(np.arange(3)))
    end, start = good.index(b"PK\5\6"), good.index(b"PK\1\2")
    wide = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, end - start, start)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, end, 1)
    made = good[:end] + wide + locator + good[end : end + 8] + b"\xff" * 12 + bytes(2)
    assert zipfile.ZipFile(io.BytesIO(made)).namelist() == ["w.npy"]
    assert readWeights(made)["w"].read().tolist() == [0, 1, 2]
    with pytest.raises(CheckpointError, match="the end of its zip archive is damaged"):
        readWeights(made.replace(b"PK\6\6", b"PK\6\5"))
