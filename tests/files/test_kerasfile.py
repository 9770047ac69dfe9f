"""Weights of Keras: the layouts of .h5, .weights.h5 and .keras, against files of Keras 3.15 and of h5py."""

import io
import json
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest

from puregraph.core.errors import CheckpointError
from puregraph.serialize.weights import readWeights

DATA = Path(__file__).parent / "data"
GOLDEN = [  # a convolution, then a Sequential of two Dense: shapes; elements count on in eighths
    ("first/kernel", "layers/conv2d/vars/0", (3, 3, 1, 2)),
    ("first/bias", "layers/conv2d/vars/1", (2,)),
    ("inner/deep/kernel", "layers/sequential/layers/dense/vars/0", (32, 3)),
    ("inner/last/kernel", "layers/sequential/layers/dense_1/vars/0", (3, 2)),
    ("inner/last/bias", "layers/sequential/layers/dense_1/vars/1", (2,)),
]


def goldenArrays(column):
    """The golden arrays by name of one layout."""
    arrays, at = {}, 0
    for row in GOLDEN:
        size = int(np.prod(row[2]))
        arrays[row[column]] = np.arange(at, at + size, dtype=np.float32).reshape(row[2]) / 8
        at += size
    return arrays


def check(weights, arrays):
    """The file has exactly these arrays, in this order."""
    assert list(weights) == list(arrays)
    for name, array in arrays.items():
        assert weights[name].shape == array.shape and weights[name].dtype == array.dtype.name
        values = weights[name].read()
        assert values.dtype == array.dtype and np.array_equal(values, array)


def bytesOf(fill, **options):
    """A file that h5py writes."""
    memory = io.BytesIO()
    with h5py.File(memory, "w", **options) as file:
        fill(file)
    return memory.getvalue()


def legacy(layers, root=None, suffix=":0", asText=False):
    """A function that writes {layer: {weight: array}} as Keras writes .h5."""

    def fill(file):
        group = file.create_group(root) if root else file
        names = [name.encode() for name in layers]
        group.attrs["layer_names"] = list(layers) if asText else names
        group.attrs["backend"], group.attrs["keras_version"] = b"tensorflow", b"2.11.0"
        for layer, weights in layers.items():
            inner = group.create_group(layer)
            paths = [name + suffix for name in weights]
            inner.attrs["weight_names"] = paths if asText else [path.encode() for path in paths]
            for path, array in zip(paths, weights.values(), strict=True):
                inner.create_dataset(path, data=array)
        if root:
            file.attrs["model_config"] = json.dumps({"class_name": "Sequential"})
            file.create_dataset("optimizer_weights/Adam/iteration:0", data=np.int64(7))

    return fill


def layersOf(rng):
    """Layers as Keras names them, one of them without weights, one of them a model."""
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    return {
        "input_1": {},
        "conv2d": {"conv2d/kernel": draw(3, 5, 1, 7), "conv2d/bias": draw(7)},
        "model_1": {"dense/kernel": draw(7, 2), "dense/bias": draw(2)},
        "lstm": {"lstm/lstm_cell/kernel": draw(2, 12), "lstm/lstm_cell/recurrent_kernel": draw(3, 12)},
    }


@pytest.mark.parametrize("root", [None, "model_weights"])
@pytest.mark.parametrize("asText", [False, True])
@pytest.mark.parametrize("options", [{}, {"libver": "earliest"}, {"libver": "v108"}, {"libver": "latest"}])
def test_h5_is_read_layer_by_layer_in_the_order_of_its_lists(root, asText, options):
    layers = layersOf(np.random.default_rng(0))
    weights = readWeights(bytesOf(legacy(layers, root, asText=asText), **options))
    arrays = {("" if name.startswith(f"{layer}/") else f"{layer}/") + name: array
              for layer, inner in layers.items() for name, array in inner.items()}  # fmt: skip
    assert "model_1/dense/kernel" in arrays and "conv2d/kernel" in arrays
    if root:
        arrays["optimizer_weights/Adam/iteration:0"] = np.array(7, np.int64)
    check(weights, arrays)
    assert weights.format == "keras .h5" and weights.metadata["layers"] == list(layers)
    assert weights.metadata["keras_version"] == "2.11.0"
    assert root is None or json.loads(weights.metadata["model_config"]) == {"class_name": "Sequential"}


def test_lists_longer_than_an_attribute_are_in_parts():
    layers = {f"layer_{i}": {f"layer_{i}/kernel": np.full(2, i, np.float32)} for i in range(30)}

    def fill(file):
        legacy(layers)(file)
        names = list(file.attrs["layer_names"])
        del file.attrs["layer_names"]
        for part in range(11):
            file.attrs[f"layer_names{part}"] = names[3 * part : 3 * part + 3]

    weights = readWeights(bytesOf(fill))
    assert list(weights) == [f"layer_{i}/kernel" for i in range(30)]


def test_two_weights_of_one_layer_that_would_have_one_name_keep_theirs():
    layers = {"a": {"b/a/kernel": np.zeros(2, np.float32), "a/kernel": np.ones(3, np.float32)}}
    assert list(readWeights(bytesOf(legacy(layers)))) == ["a/kernel", "a/a/kernel:0"]


def test_the_golden_h5_of_keras_3():
    with readWeights(DATA / "keras3.h5") as weights:
        check(weights, goldenArrays(0))
        assert weights.metadata["layers"] == ["picture", "first", "flat", "inner"]


def test_the_golden_keras_file_of_keras_3():
    with readWeights(DATA / "keras3.keras") as weights:
        check(weights, goldenArrays(1))
        assert weights.format == "keras"
        assert weights.metadata["layers"] == {
            "layers/conv2d": "first",
            "layers/sequential": "inner",
            "layers/sequential/layers/dense": "deep",
            "layers/sequential/layers/dense_1": "last",
        }
        assert weights.metadata["config"]["config"]["name"] == "golden"
        assert weights.metadata["keras_version"] == "3.15.1"


def members():
    """The files in the golden archive."""
    with zipfile.ZipFile(DATA / "keras3.keras") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archived(files, compression=zipfile.ZIP_STORED):
    """An archive of files."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return memory.getvalue()


def test_weights_h5_of_keras_3_has_the_names_of_layers_in_its_metadata():
    weights = readWeights(members()["model.weights.h5"])
    check(weights, goldenArrays(1))
    assert weights.format == "keras .weights.h5" and weights.metadata["layers"]["layers/conv2d"] == "first"


def test_a_compressed_keras_archive_is_read():
    check(readWeights(archived(members(), zipfile.ZIP_DEFLATED)), goldenArrays(1))


@pytest.mark.parametrize("name", ["net.pt", "net.bin", "net.npz", "net"])
def test_a_renamed_keras_archive_is_known_by_its_content(tmp_path, name):
    (tmp_path / name).write_bytes((DATA / "keras3.keras").read_bytes())
    with readWeights(tmp_path / name) as weights:
        assert weights.format == "keras"
        check(weights, goldenArrays(1))


def test_names_of_layers_come_from_the_configuration_where_variables_have_none():
    files = members()

    def stripped(file):
        with h5py.File(io.BytesIO(files["model.weights.h5"])) as old:
            for name in old:
                old.copy(name, file)
        file.visititems(lambda name, item: item.attrs.clear())

    weights = readWeights(archived(files | {"model.weights.h5": bytesOf(stripped)}))
    assert weights.metadata["layers"] == {
        "layers/conv2d": "first",
        "layers/sequential": "inner",
        "layers/sequential/layers/dense": "deep",
        "layers/sequential/layers/dense_1": "last",
    }


def test_a_wrong_checksum_of_the_archive_is_refused():
    data = bytearray((DATA / "keras3.keras").read_bytes())
    kernel = goldenArrays(1)["layers/conv2d/vars/0"].tobytes()
    data[data.index(kernel) + 9] ^= 1
    with pytest.raises(CheckpointError, match="is damaged: wanted crc32"):
        readWeights(bytes(data))


@pytest.mark.parametrize("name", ["model.weights.h5", "config.json"])
def test_an_archive_without_weights_or_configuration(name):
    files = {key: data for key, data in members().items() if key != name}
    if name == "config.json":
        check(readWeights(archived(files)), goldenArrays(1))
        return
    with pytest.raises(CheckpointError, match=r"its archive has no model\.weights\.h5; it holds 'metadata\.json'"):
        readWeights(archived(files))


def test_bfloat16_of_keras_is_widened():
    values = np.array([[1.5, -2.0, 3.140625]], np.float32)
    bits = (values.view(np.uint32) >> 16).astype("<u2")

    def fill(file):
        kind = h5py.h5t.create(h5py.h5t.OPAQUE, 2)
        space = h5py.h5s.create_simple(values.shape)
        group = file.create_group("layers/dense/vars")
        dataset = h5py.h5d.create(group.id, b"0", kind, space)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, bits.view("V2"), mtype=kind)
        group["0"].attrs["dtype"] = "bfloat16"

    weights = readWeights(bytesOf(fill))
    assert weights["layers/dense/vars/0"].dtype == "bfloat16"
    values32 = weights["layers/dense/vars/0"].read()
    assert values32.dtype == np.float32 and np.array_equal(values32, values)


def test_variables_are_in_the_order_of_their_numbers():
    def fill(file):
        for i in range(12):
            file[f"layers/dense_{i}/vars/0"] = np.float32(i)
            file[f"vars/{i}"] = np.float32(i)

    names = list(readWeights(bytesOf(fill)))
    assert names == [f"layers/dense_{i}/vars/0" for i in range(12)] + [f"vars/{i}" for i in range(12)]


def test_other_hdf5_gives_its_datasets_by_path_and_names_what_holds_no_numbers():
    def fill(file):
        file["a/b"] = np.arange(5, dtype=">i4")
        file["a/text"] = "words"
        file["z"] = np.float64(2.5)
        file.attrs["author"] = "someone"

    weights = readWeights(bytesOf(fill))
    check(weights, {"a/b": np.arange(5, dtype=np.int32), "z": np.array(2.5)})
    assert weights.format == "hdf5" and weights.metadata == {"author": "someone", "skipped": ["a/text"]}


def test_lists_that_lie_are_refused():
    def missing(file):
        legacy({"a": {"a/kernel": np.zeros(2, np.float32)}})(file)
        file["a"].attrs["weight_names"] = [b"a/kernel:0", b"a/bias:0"]

    def noLayer(file):
        legacy({"a": {}})(file)
        file.attrs["layer_names"] = [b"a", b"b"]

    def twice(file):
        legacy({"a": {"a/kernel": np.zeros(2, np.float32)}})(file)
        file["a"].attrs["weight_names"] = [b"a/kernel:0"] * 3

    def numbers(file):
        legacy({"a": {}})(file)
        file.attrs["layer_names"] = [1, 2]

    for fill, words in [
        (missing, "weight_names have 'a/a/bias:0', but there is no such dataset"),
        (noLayer, "layer_names has 'b', but there is no such group"),
        (twice, "lists the weight 'a/kernel:0' twice"),
        (numbers, "layer_names of '/' is not a list of texts"),
    ]:
        with pytest.raises(CheckpointError, match=words):
            readWeights(bytesOf(fill))


def test_links_to_other_names_and_files_are_refused():
    def soft(file):
        file["a"] = np.zeros(3)
        file["b"] = h5py.SoftLink("/a")

    def external(file):
        file["b"] = h5py.ExternalLink("/etc/passwd", "/a")

    def hard(file):
        file["a"] = np.zeros(3)
        file["b"] = file["a"]

    def cycle(file):
        file.create_group("a")["b"] = file["/"]

    for fill in (soft, external, hard, cycle):
        for libver in ("earliest", "v108"):
            with pytest.raises(CheckpointError):
                readWeights(bytesOf(fill, libver=libver))


def test_puzzlelibs_files_are_recognised_by_their_groups(tmp_path):
    from puzzles import writePuzzle

    links, attrs = writePuzzle(tmp_path / "net.hdf")
    with readWeights(tmp_path / "net.hdf") as weights:
        assert weights.format == "puzzlelib" and set(weights) == {*links, *attrs}
        for name, array in (links | attrs).items():
            assert np.array_equal(weights[name].read(), array) and weights[name].shape == array.shape


def test_tied_arrays_of_puzzlelib_stand_under_each_name(tmp_path):
    from puzzles import writePuzzle

    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    writePuzzle(tmp_path / "net.hdf", {"a.W": array, "b.W": array}, {}, None)
    with readWeights(tmp_path / "net.hdf") as weights:
        assert set(weights) == {"a.W", "b.W"} and np.array_equal(weights["b.W"].read(), array)
        assert weights.metadata == {"ties": {"b.W": "a.W"}}


def test_an_array_may_be_read_more_often_than_the_file_is_large():
    with readWeights(DATA / "keras3.keras") as weights:
        for _ in range(200):
            weights["layers/sequential/layers/dense/vars/0"].read()


def test_several_threads_read_one_file():
    arrays = goldenArrays(1)
    with readWeights(DATA / "keras3.keras") as weights, ThreadPoolExecutor(4) as pool:
        for name, values in pool.map(lambda name: (name, weights[name].read()), 50 * list(arrays)):
            assert np.array_equal(values, arrays[name])


def test_a_closed_file_says_so():
    with readWeights(DATA / "keras3.keras") as weights:
        pass
    with pytest.raises(CheckpointError, match="the file is closed"):
        weights["layers/conv2d/vars/0"].read()
