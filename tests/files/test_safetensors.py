"""Safetensors: what is read and written equals the official package's, and every lie of a header is refused by name."""

import json
import threading

import numpy as np
import pytest

from puregraph import ArgumentError, CheckpointError
from puregraph.serialize.weights import readWeights, writeWeights
from puregraph.serialize.weights.narrowfloats import NARROW, narrowed, widened
from puregraph.serialize.weights.safetensors import DTYPES

RNG = np.random.default_rng(0)


def fileOf(header, buffer=b"", length=None):
    """The bytes of a file with a header: an object or bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + buffer


def row(dtype="F32", shape=(2, 3), begin=0, end=24, **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end], **more}


def arrays():
    """One array of each dtype of numpy's, of odd shapes, an empty one and a number."""
    shapes = [(3, 5), (), (0, 7), (11,), (2, 1, 3)]
    names = [name for name in DTYPES.values() if name not in NARROW]
    made = {name: (RNG.random(shapes[i % 5]) * 99).astype(name) for i, name in enumerate(names)}
    return made | {"second float32": RNG.standard_normal((7, 2)).astype(np.float32)}


@pytest.mark.peers
def test_the_official_package_reads_what_is_written(tmp_path):
    from safetensors import safe_open
    from safetensors.numpy import load_file

    made = arrays()
    writeWeights(tmp_path / "a.safetensors", made, {"format": "np", "note": "ü"})
    loaded = load_file(tmp_path / "a.safetensors")
    assert loaded.keys() == made.keys()
    for name, array in made.items():
        assert loaded[name].dtype == array.dtype and np.array_equal(loaded[name], array), name
    with safe_open(tmp_path / "a.safetensors", "np") as file:
        assert file.metadata() == {"format": "np", "note": "ü"}


@pytest.mark.peers
def test_a_file_of_the_official_package_is_read_and_copied(tmp_path):
    import torch
    from safetensors.torch import load_file, save_file

    made = {"a.b": torch.randn(3, 5), "n": torch.tensor(7), "empty": torch.zeros(2, 0, 3), "m": torch.rand(9) > 0.5}
    for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8):
        made[str(dtype)] = (torch.randn(17, 3) * 20).to(dtype)
    save_file(made, tmp_path / "a.safetensors", {"who": "torch"})
    with readWeights(tmp_path / "a.safetensors") as weights:
        assert weights.format == "safetensors" and weights.metadata == {"who": "torch"}
        assert weights.keys() == made.keys()
        for name, tensor in made.items():
            isNarrow = weights[name].dtype in NARROW
            wanted = tensor.float().numpy() if isNarrow else tensor.numpy()
            array = weights[name].read()
            assert array.dtype == wanted.dtype and array.shape == wanted.shape and np.array_equal(array, wanted), name
            assert array.flags.writeable and array.flags.c_contiguous
            if isNarrow:
                bits = tensor.view(torch.int16 if tensor.itemsize == 2 else torch.int8).numpy()
                assert np.array_equal(weights[name].read(widen=False), bits.view(NARROW[weights[name].dtype])), name
        writeWeights(tmp_path / "b.safetensors", weights)
    for name, tensor in load_file(tmp_path / "b.safetensors").items():
        assert tensor.dtype == made[name].dtype and torch.equal(tensor.float(), made[name].float()), name


@pytest.mark.peers
@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_floats_are_widened_exactly_and_rounded_as_torch_rounds(dtype):
    import torch

    bits = np.arange(1 << 8 * NARROW[dtype].itemsize).astype(NARROW[dtype])
    wide = widened(bits, dtype)
    signed = torch.from_numpy(bits.view(f"i{bits.itemsize}"))
    assert np.array_equal(wide, signed.view(getattr(torch, dtype)).float().numpy(), equal_nan=True)
    known = np.unique(wide[np.isfinite(wide) & (np.abs(wide) < 400)])
    middles = (known[1:] + known[:-1]) / 2
    x = (RNG.standard_normal(50_000) * np.exp(RNG.uniform(-15, 4, 50_000))).clip(-440, 440)
    infinite = [] if dtype == "float8_e4m3fn" else [np.inf, -np.inf]
    x = np.concatenate([x, middles, np.nextafter(middles, np.float32(0)), infinite, [0, -0.0, np.nan]])
    x = x.astype(np.float32)
    narrow, wanted = widened(narrowed(x, dtype), dtype), torch.from_numpy(x).to(getattr(torch, dtype)).float().numpy()
    assert np.array_equal(narrow, wanted, equal_nan=True)
    assert np.array_equal(np.signbit(narrow[:-1]), np.signbit(wanted[:-1]))


def test_floats_are_stored_as_asked_and_integers_as_they_are(tmp_path):
    made = {"w": RNG.standard_normal((5, 3)), "n": np.arange(3)}
    for dtype, error in [
        ("float16", 1e-3),
        ("bfloat16", 1e-2),
        ("float8_e4m3fn", 0.1),
        ("float64", 0),
        ("float32", 1e-6),
    ]:
        writeWeights(tmp_path / "a.safetensors", made, dtype=dtype)
        with readWeights(tmp_path / "a.safetensors") as weights:
            assert [each.dtype for each in weights.values()] == [dtype, "int64"]
            assert np.allclose(weights["w"].read(), made["w"], error, error / 10)
            assert np.array_equal(weights["n"].read(), made["n"])


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float16", 1e5),
        ("bfloat16", 3.4e38),
        ("bfloat16", 1e200),
        ("float8_e4m3fn", 500.0),
        ("float8_e4m3fn", np.inf),
        ("float8_e5m2", 7e4),
    ],
)
def test_a_value_that_is_too_large_is_refused_and_the_old_file_stays(tmp_path, dtype, value):
    path = tmp_path / "a.safetensors"
    writeWeights(path, {"w": np.ones(2)})
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=rf"'big'.*too large for (float32|{dtype})"):
        writeWeights(path, {"w": np.ones(2), "big": np.array([1.0, value])}, dtype=dtype)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == [path.name]
    writeWeights(path, {"w": np.array([np.inf, np.nan])}, dtype="bfloat16")  # which were never finite


def test_equal_arrays_make_equal_bytes_and_each_is_aligned(tmp_path):
    made = arrays()
    for name in ("a", "b"):
        writeWeights(tmp_path / f"{name}.safetensors", made, {"k": "v"})
    data = (tmp_path / "a.safetensors").read_bytes()
    assert data == (tmp_path / "b.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert list(header) == ["__metadata__", *made]
    start = 8 + int.from_bytes(data[:8], "little")
    for name, array in made.items():
        assert (start + header[name]["data_offsets"][0]) % array.itemsize == 0, name


def test_what_cannot_be_stored_is_refused_by_name(tmp_path):
    path = tmp_path / "a.safetensors"
    with pytest.raises(CheckpointError, match="'c' is of dtype complex128; supported: float64, float32"):
        writeWeights(path, {"c": np.ones(2) * 1j})
    with pytest.raises(CheckpointError, match="'__metadata__' cannot be the name"):
        writeWeights(path, {"__metadata__": np.ones(2)})
    with pytest.raises(ArgumentError, match="wanted metadata as a dict of texts"):
        writeWeights(path, {"a": np.ones(2)}, {"epoch": 3})
    with pytest.raises(ArgumentError, match=r"ends with .safetensors or .npz, got"):
        writeWeights(tmp_path / "a.pt", {"a": np.ones(2)})
    assert not list(tmp_path.iterdir())


BUFFER = bytes(24)
LIES = {
    "an empty file named so": (b"", "it is empty"),
    "a length without a header": (bytes(8), "not JSON"),
    "a header beyond the file": (fileOf({"a": row()}, BUFFER, 1 << 62), "it is cut off: its header takes 4,611"),
    "a header cut off": (fileOf({"a": row()}, BUFFER)[:60], "it is cut off: its header takes"),
    "text that is not JSON": (fileOf(b'{"a": [}'), "its header is not JSON"),
    "a list": (fileOf(b"[1, 2]"), "its header is not JSON"),
    "a key twice": (fileOf(b'{"a": %s, "a": %s}' % ((json.dumps(row()).encode(),) * 2), BUFFER), "stands twice"),
    "a key of a row twice": (
        fileOf(b'{"a": {"dtype": "F32", "dtype": "F32", "shape": [6], "data_offsets": [0, 24]}}', BUFFER),
        "stands twice",
    ),
    "UTF-16": (fileOf('{"a": 1}'.encode("utf-16-le")), "not JSON"),
    "no Unicode": (fileOf(b'{"\xff": 1}'), "not JSON"),
    "half a surrogate pair": (fileOf(b'{"\\ud800": %s}' % json.dumps(row()).encode(), BUFFER), "not valid Unicode"),
    "nested too deep": (fileOf(b'{"a": ' + b"[" * 40_000, b""), "not JSON: it is nested too deep"),
    "not finite": (fileOf(b'{"a": NaN}'), "NaN is not allowed"),
    "a row of another kind": (fileOf({"a": [1]}), "array 'a': wanted an object with data_offsets, dtype, shape"),
    "a key more": (fileOf({"a": row(more=1)}, BUFFER), "array 'a': wanted an object"),
    "a key less": (fileOf({"a": {"dtype": "F32", "shape": []}}), "array 'a': wanted an object"),
    "an unknown dtype": (fileOf({"a": row("F4")}, BUFFER), "its dtype 'F4' is not supported; supported: F64"),
    "a dtype that is no text": (fileOf({"a": row(["F32"])}, BUFFER), "its dtype .* is not supported"),
    "a negative size": (fileOf({"a": row(shape=[-2, -3])}, BUFFER), "a shape of whole numbers, got .-2, -3."),
    "a size that is a float": (fileOf({"a": row(shape=[2.0, 3])}, BUFFER), "a shape of whole numbers"),
    "a size that is a bool": (fileOf({"a": row(shape=[True, 6])}, BUFFER), "a shape of whole numbers"),
    "sizes that overflow": (fileOf({"a": row(shape=[1 << 32, 1 << 32, 6])}, BUFFER), "its shape is too large"),
    "sizes that overflow to what is there": (
        fileOf({"a": row(shape=[(1 << 62) + 6])}, BUFFER),
        "its shape is too large",
    ),
    "an empty array of impossible sizes": (fileOf({"a": row(shape=[0, 1 << 62], end=0)}), "its shape is too large"),
    "too many axes": (fileOf({"a": row(shape=[1] * 40 + [6])}, BUFFER), "at most 32 axes, got 41"),
    "too few bytes": (fileOf({"a": row(end=20)}, BUFFER[:20]), r"\(2, 3\) float32 takes 24 bytes, its data_offsets 20"),
    "offsets that run backwards": (fileOf({"a": row(begin=24, end=0)}, BUFFER), "wanted data_offsets .begin, end."),
    "offsets below zero": (fileOf({"a": row(begin=-24, end=0)}, BUFFER), "wanted data_offsets .begin, end."),
    "three offsets": (fileOf({"a": {**row(), "data_offsets": [0, 24, 24]}}, BUFFER), "wanted data_offsets"),
    "a gap": (
        fileOf({"a": row("U8", [3], 0, 3), "b": row("U8", [3], 5, 8)}, bytes(8)),
        "array 'b': it leaves a gap before it: wanted data_offsets from 3 on, got 5",
    ),
    "a gap at the beginning": (fileOf({"a": row("U8", [3], 1, 4)}, bytes(4)), "array 'a': it leaves a gap"),
    "an overlap": (
        fileOf({"a": row("U8", [3], 0, 3), "b": row("U8", [3], 2, 5)}, bytes(5)),
        "array 'b': it overlaps the array before it: wanted data_offsets from 3 on, got 2",
    ),
    "the same bytes twice": (fileOf({"a": row("U8", [3], 0, 3), "b": row("U8", [3], 0, 3)}, bytes(3)), "overlaps"),
    "an empty array beyond the end": (
        fileOf({"a": row("U8", [3], 0, 3), "b": row("U8", [0], 99, 99)}, bytes(3)),
        "array 'b': it leaves a gap",
    ),
    "an empty array inside of another": (
        fileOf({"a": row("U8", [3], 0, 3), "b": row("U8", [0], 2, 2)}, bytes(3)),
        "array 'b': it overlaps",
    ),
    "bytes cut off": (fileOf({"a": row()}, BUFFER[:-1]), "it is cut off: its arrays take 24 bytes, and it has 23"),
    "bytes behind": (fileOf({"a": row()}, BUFFER + b"x"), "it is longer than its arrays: .* 24 bytes, and it has 25"),
    "metadata that is no object": (fileOf({"__metadata__": 3}), "__metadata__: wanted an object of texts, got 3"),
    "metadata of numbers": (fileOf({"__metadata__": {"epoch": 3}}), "__metadata__: wanted an object of texts"),
    "a long header in a small file": (fileOf(b'{"' + b"a" * (3 << 20) + b'": 1}'), "bytes, too many for a file of"),
    "a pointer of Git LFS": (b"version https://git-lfs.github.com/spec/v1\n", "run git lfs pull"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_header_that_lies_is_refused_with_what_is_wrong(name, tmp_path):
    data, words = LIES[name]
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=words) as caught:
        readWeights(path)
    assert str(caught.value).startswith(f"cannot load '{path}': ")


def test_bools_that_are_neither_0_nor_1_are_refused_when_they_are_read():
    weights = readWeights(fileOf({"m": row("BOOL", [3], 0, 3)}, b"\0\1\2"))
    with pytest.raises(CheckpointError, match="cannot read 'm' of the given bytes: wanted bools, got bytes other than"):
        weights["m"].read()


def test_a_file_that_shrinks_or_is_closed_gives_an_error_and_no_crash(tmp_path):
    path = tmp_path / "a.safetensors"
    writeWeights(path, {"w": np.ones(100_000)})
    weights = readWeights(path)
    with open(path, "r+b") as file:
        file.truncate(5000)
    with pytest.raises(CheckpointError, match="cannot read 'w' of .*: the file has become shorter"):
        weights["w"].read()
    weights.close()
    with pytest.raises(CheckpointError, match="the file is closed; read arrays inside of the with block"):
        weights["w"].read()


def test_several_threads_read_one_file(tmp_path):
    made = {f"w{i}": np.full(5001, i, np.float32) for i in range(40)}
    writeWeights(tmp_path / "a.safetensors", made)
    wrong = []
    with readWeights(tmp_path / "a.safetensors") as weights:

        def work():
            for _ in range(5):
                wrong.extend(name for name in made if not np.array_equal(weights[name].read(), made[name]))

        threads = [threading.Thread(target=work) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    assert not wrong


def test_an_array_that_is_not_there_is_answered_with_the_nearest_names(tmp_path):
    writeWeights(tmp_path / "a.safetensors", {"fc.weight": np.ones(2), "fc.bias": np.ones(1)})
    with readWeights(tmp_path / "a.safetensors") as weights, pytest.raises(CheckpointError, match="it has 'fc.weight'"):
        weights["fc.wieght"]


# Shards ---------------------------------------------------------------------------------------------------------------


def shards(folder):
    """Two shards and their index; the arrays in all of them."""
    made = {f"layer.{i}.w": RNG.standard_normal((3, i + 1)).astype(np.float32) for i in range(4)}
    places = {}
    for number, names in enumerate((["layer.0.w", "layer.3.w"], ["layer.1.w", "layer.2.w"]), 1):
        file = f"model-{number:05d}-of-00002.safetensors"
        writeWeights(folder / file, {name: made[name] for name in names})
        places |= dict.fromkeys(names, file)
    write(folder, places)
    return made, places


def write(folder, places, **more):
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 96}, "weight_map": places, **more}))
    return path


def test_an_index_is_read_as_one_file(tmp_path):
    made, places = shards(tmp_path)
    with readWeights(tmp_path / "model.safetensors.index.json") as weights:
        assert list(weights) == list(places) and weights.metadata == {"total_size": 96}
        for name, array in made.items():
            assert np.array_equal(weights[name].read(), array)
    with pytest.raises(CheckpointError, match="closed"):
        weights["layer.0.w"].read()


@pytest.mark.peers
def test_an_index_of_transformers_is_read(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32, vocab_size=99
    )
    model = transformers.BertModel(config)
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    with readWeights(tmp_path / "model.safetensors.index.json") as weights:
        state = model.state_dict()
        assert weights.keys() == state.keys()
        assert all(np.array_equal(weights[name].read(), value.numpy()) for name, value in state.items())


@pytest.mark.parametrize(
    "place",
    ["../secret.safetensors", "/etc/secret.safetensors", "a/b.safetensors", "..\\x.safetensors", "c:x.safetensors"]
    + ["secret", "secret.safetensors\0", ".safetensors\n.safetensors", "", None, 3, ["a.safetensors"]],
)
def test_a_shard_outside_of_the_folder_or_of_another_kind_is_refused(tmp_path, place):
    path = write(tmp_path, {"w": place})
    with pytest.raises(CheckpointError, match="array 'w': wanted a file of weights beside the index"):
        readWeights(path)


def test_shards_that_do_not_fit_their_index_are_refused(tmp_path):
    _, places = shards(tmp_path)
    shard = places["layer.1.w"]
    with pytest.raises(CheckpointError, match="its shard 'model-00001-of-00002.safetensors' has no array 'layer.9.w'"):
        readWeights(write(tmp_path, places | {"layer.9.w": places["layer.0.w"]}))
    with pytest.raises(CheckpointError, match="it is an index, whose shards are in other files: give its path"):
        readWeights(json.dumps({"weight_map": places}).encode())
    write(tmp_path, places)
    (tmp_path / shard).write_bytes(b"\x00" * 40)
    with pytest.raises(CheckpointError, match=f"its shard '{shard}'.*: its header is not JSON"):
        readWeights(tmp_path / "model.safetensors.index.json")
    (tmp_path / shard).unlink()
    with pytest.raises(CheckpointError, match=f"its shard '{shard}', which must be beside it: .*No such file"):
        readWeights(tmp_path / "model.safetensors.index.json")
    with pytest.raises(CheckpointError, match="wanted an index with a weight_map"):
        readWeights(write(tmp_path, None))
