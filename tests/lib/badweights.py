"""Weight files that are damaged at random or forged by hand: HDF5 of Keras and others, .keras, GGUF, TFLite, ONNX."""

import functools
import io
import random
import struct
import zipfile
import zlib
from pathlib import Path

import damage
import forgery
import h5py
import numpy as np
from puzzles import writePuzzle

from puregraph.core.storage.hdfheap import checksum
from puregraph.serialize.weights import readWeights

DATA = Path(__file__).parents[1] / "files" / "data"
LIES = (*forgery.LIES, 3, 31, 64, 1 << 20, 1 << 40, (1 << 63) - 1, (1 << 31) - 1)


def readAll(path):
    """Read a file as its users do: all that it says, and all of its arrays. Those of .keras have a checksum."""
    with readWeights(path) as weights:
        repr(weights), list(map(repr, weights.values())), repr(weights.metadata)
        for tensor in weights.values():
            values = tensor.read()
            if values.shape != tensor.shape:
                raise SystemExit(f"{tensor!r} reads as {values.shape}")
            if path.name == "keras3.keras" and values.tobytes() not in goldenKeras():
                raise SystemExit(f"{tensor!r} reads as other numbers than were written")


@functools.cache
def goldenKeras():
    """The bytes of the golden archive, which does not compress them."""
    return (DATA / "keras3.keras").read_bytes()


# Sound files ----------------------------------------------------------------------------------------------------------


def hdf(fill, **options):
    """A file that h5py writes."""
    memory = io.BytesIO()
    with h5py.File(memory, "w", **options) as file:
        fill(file)
    return memory.getvalue()


def layered(file):
    """The old layout of Keras, with more layers than fit into one header, and texts of any length."""
    file.attrs["layer_names"] = [f"layer_{i}" for i in range(12)]
    file.attrs["keras_version"] = "2.3.1"
    for i in range(12):
        group = file.create_group(f"layer_{i}")
        group.attrs["weight_names"] = [f"layer_{i}/kernel:0", f"layer_{i}/bias:0"]
        group.create_dataset(f"layer_{i}/kernel:0", data=np.full((3, 2), i, np.float32))
        group.create_dataset(f"layer_{i}/bias:0", data=np.arange(2, dtype=np.float16))


def mixed(file):
    """Datasets that are compact, contiguous and chunked, and many attributes."""
    rng = np.random.default_rng(5)
    file["plain"] = rng.standard_normal((7, 7)).astype(">f4")
    file.create_dataset("zipped", data=rng.standard_normal((9, 5)), chunks=(2, 5), compression="gzip", shuffle=True)
    file.create_dataset("chunked", data=np.arange(24, dtype=np.int16), chunks=(5,))
    for i in range(12):
        file["plain"].attrs[f"name{i}"] = ["x", "yy"] if i % 2 else np.arange(i + 1)


def puzzle():
    """A file of PuzzleLib."""
    memory = io.BytesIO()
    writePuzzle(memory)
    return memory.getvalue()


@functools.cache
def goodFiles():
    """A sound file of each format, by its name."""
    files = {f"{name}.{suffix}": (DATA / f"{name}.{suffix}").read_bytes() for name, suffix in GOLDEN}
    with zipfile.ZipFile(DATA / "keras3.keras") as archive:
        files["keras3.weights.h5"] = archive.read("model.weights.h5")
    for version in ("earliest", "v108", "latest"):
        files[f"layered{version}.h5"] = hdf(layered, libver=version)
    for version in ("earliest", "v108"):
        files[f"mixed{version}.h5"] = hdf(mixed, libver=version)
    files["puzzle.hdf"] = puzzle()
    files["model.onnx"] = onnxModel().SerializeToString()
    return files


GOLDEN = [("keras3", "h5"), ("keras3", "keras"), ("small", "gguf"), ("small", "tflite")]


@functools.cache
def onnxModel():
    """A model with initialisers of some kinds, one of them in a branch."""
    from onnx import TensorProto, helper, numpy_helper

    inner = helper.make_graph([], "then", [], [], [numpy_helper.from_array(np.ones(2), "inner")])
    node = helper.make_node("If", ["c"], ["y"], "choose", then_branch=inner, else_branch=inner)
    tensors = [numpy_helper.from_array(np.arange(12, dtype=kind).reshape(3, 4), kind) for kind in ("f4", "f2", "i8")]
    tensors += [helper.make_tensor("b", TensorProto.BFLOAT16, (3,), [1.0, 2.0, 3.0])]
    tensors += [helper.make_tensor("four", TensorProto.INT4, (3,), [1, 2, 3])]
    return helper.make_model(helper.make_graph([node], "net", [], [], tensors))


# Damage ---------------------------------------------------------------------------------------------------------------


def lied(data, rng):
    """A number in the file that lies, small numbers most of all, as they count or lead somewhere."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2])):
        width = rng.choice("BHIQ")
        size = struct.calcsize(f"<{width}")
        spots = [at for at in (rng.randrange(max(len(data) - 8, 1)) for _ in range(20)) if any(data[at : at + 8])]
        at = rng.choice(spots or [0])
        lie = rng.choice([*LIES, len(data), len(data) - 1, rng.randrange(len(data))]) % 256**size
        data[at : at + size] = struct.pack(f"<{width}", lie)
    return bytes(data)


def resigned(data):
    """The file with the checksums of HDF5's superblock and object headers made to fit again, where they stand."""
    data = bytearray(data)
    if data[:4] == b"\x89HDF" and data[8] >= 2:
        data[44:48] = struct.pack("<I", checksum(bytes(data[:44])))
    at = data.find(b"OHDR")
    while at >= 0:
        flags = data[at + 5] if at + 6 < len(data) else 0
        start = at + 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        width = 1 << (flags & 3)
        end = start + width + int.from_bytes(data[start : start + width], "little")
        if end + 4 <= len(data):
            data[end : end + 4] = struct.pack("<I", checksum(bytes(data[at:end])))
        at = data.find(b"OHDR", at + 4)
    return bytes(data)


def badFile(seed):
    """A name and the bytes of a damaged file."""
    rng = random.Random(f"weights {seed}")
    names = list(goodFiles())
    name = names[seed % len(names)]
    data = goodFiles()[name]
    kind = rng.random()
    if name == "model.onnx" and kind < 0.6:
        from onnxdamage import changed

        return name, changed(onnxModel(), np.random.default_rng(seed))
    bad = damage.damaged(data, rng) if kind < 0.4 else lied(data, rng)
    return name, resigned(bad) if rng.random() < 0.5 and b"OHDR" in bad and len(bad) > 64 else bad


# Forged files ---------------------------------------------------------------------------------------------------------


def ggufText(value):
    return struct.pack("<Q", len(value)) + value


def gguf(
    version=3, tensors=1, values=1, metadata=None, axes=1, sizes=(4,), kind=0, offset=0, name=b"w", data=bytes(64)
):
    """A GGUF file whose fields are as they are given."""
    metadata = ggufText(b"k") + struct.pack("<II", 4, 1) if metadata is None else metadata
    row = ggufText(name) + struct.pack(f"<I{len(sizes)}QIQ", axes, *(n % 2**64 for n in sizes), kind, offset)
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, values) + metadata + row
    return head + bytes(-len(head) % 32) + data


def ggufCases():
    """GGUF whose counts, lengths, types and offsets lie."""
    numbers = (2, 255, 1 << 20, 1 << 32, 1 << 40, 1 << 61, (1 << 64) - 1)
    for n in numbers:
        yield f"gguf {n} tensors", gguf(tensors=n)
        yield f"gguf {n} values", gguf(values=n)
        yield f"gguf a size of {n}", gguf(sizes=(n,))
        yield f"gguf sizes of {n}", gguf(axes=4, sizes=(n, n, n, n))
        yield f"gguf an offset of {n}", gguf(offset=n)
        yield f"gguf a type {n}", gguf(kind=n % 2**32)
        yield f"gguf {n} axes", gguf(axes=n % 2**32)
        for inner in (0, 6, 8, 9):
            values = ggufText(b"k") + struct.pack("<IIQ", 9, inner, n)
            yield f"gguf a list of {n} of type {inner}", gguf(metadata=values)
        yield f"gguf a key of {n} characters", gguf(metadata=struct.pack("<Q", n) + b"k")
        yield f"gguf a text of {n} characters", gguf(metadata=ggufText(b"k") + struct.pack("<IQ", 8, n))
        yield f"gguf an alignment of {n}", gguf(metadata=ggufText(b"general.alignment") + struct.pack("<IQ", 10, n))
    nested = ggufText(b"k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 100_000
    yield "gguf lists in lists", gguf(metadata=nested)
    lists = ggufText(b"k") + struct.pack("<IIQ", 9, 9, 50_000) + struct.pack("<IQ", 0, 0) * 50_000
    yield "gguf many empty lists", gguf(metadata=lists)
    yield "gguf a name to obey", gguf(name=b"\x1b]0;x\x07" * 3, offset=5)
    yield "gguf an empty axis", gguf(axes=2, sizes=(0, 1 << 62))


def tfliteCases():
    """TFLite in which every number of its structure, one after the other, lies."""
    good = (DATA / "small.tflite").read_bytes()
    spots = [at for at in range(0, len(good) - 3, 4) if 0 < int.from_bytes(good[at : at + 4], "little") < 4 * len(good)]
    rng = random.Random(3)
    for at in rng.sample(spots, min(40, len(spots))):
        lie = rng.choice(LIES) % 2**32
        yield f"tflite {lie} at {at}", good[:at] + struct.pack("<I", lie) + good[at + 4 :]
    loop = struct.pack("<I4sI", 12, b"TFL3", 0) + struct.pack("<iIIIIIII", -12, 0, 0, 0, 0, 0, 0, 0)
    yield "tflite tables in themselves", loop
    yield "tflite nothing", struct.pack("<I4s", 8, b"TFL3")
    yield "tflite an offset to itself", struct.pack("<I4s", 0, b"TFL3") + bytes(64)


def zipped(compression=zipfile.ZIP_DEFLATED, **members):
    """An archive in the layout of Keras."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr({"config": "config.json", "weights": "model.weights.h5"}.get(name, name), data)
    return memory.getvalue()


def kerasCases():
    """Archives that inflate, nest, name other files, or declare other sizes than they have."""
    weights = goodFiles()["keras3.weights.h5"]
    nest = '{"class_name":"M","config":{"layers":[' * 900 + "]}}" * 900
    yield "keras a gigabyte of zeros", zipped(weights=bytes(1 << 28))
    yield "keras zeros as configuration", zipped(config=bytes(1 << 28), weights=weights)
    yield "keras a deep configuration", zipped(config=nest, weights=weights)
    yield "keras deep lists", zipped(config="[" * 1_000_000, weights=weights)
    yield "keras many lists", zipped(config="[" + "[]," * 1_000_000 + "[]]", weights=weights)
    yield "keras a configuration of nothing", zipped(config="null", weights=weights)
    yield (
        "keras odd layers",
        zipped(config='{"config":{"layers":[1,null,{"class_name":3},{"class_name":"A","config":7}]}}', weights=weights),
    )
    yield "keras no weights", zipped(config="{}")
    yield "keras weights that are an archive", zipped(weights=zipped(weights=weights))
    yield "keras many members", zipped(weights=weights, **{f"m{i}": "" for i in range(20_000)})
    stored = zipped(zipfile.ZIP_STORED, weights=weights)
    directory = stored.rindex(b"PK\1\2")
    for at, size in [(10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (42, 4)]:
        for lie in (1, 255, (1 << 8 * size) - 1):
            spot = directory + at
            yield f"keras {lie} at {at}", stored[:spot] + struct.pack("<Q", lie)[:size] + stored[spot + size :]


def hdfCases():
    """HDF5 with shapes, chunks, texts and links that cost or lead elsewhere."""

    def bomb(file):
        data = zlib.compress(bytes(1 << 25), 9)
        file.create_dataset("d", (1 << 11, 1 << 13), "f4", chunks=(1 << 10, 1 << 13), compression="gzip")
        for row in (0, 1 << 10):
            file["d"].id.write_direct_chunk((row, 0), data)

    def many(file):
        for i in range(3000):
            file[f"d{i}"] = np.float32(i)

    def texts(file):
        file.attrs["layer_names"] = ["x" * 1000] * 400

    def layers(file):
        file.attrs["layer_names"] = ["a"] * 60_000
        file.create_group("a").attrs["weight_names"] = ["b"] * 6000

    def deep(file):
        file.create_group("/".join("g" * 300))

    def virtual(file):
        layout = h5py.VirtualLayout((4,), "f4")
        layout[:] = h5py.VirtualSource("/etc/passwd", "x", (4,))
        file.create_virtual_dataset("v", layout)

    def external(file):
        file.create_dataset("e", (4,), "f4", external=[("/etc/passwd", 0, 16)])

    def links(file):
        file["s"], file["x"] = h5py.SoftLink("/a"), h5py.ExternalLink("/etc/passwd", "/a")

    def hard(file):
        file["a"] = np.zeros(1000)
        for i in range(500):
            file[f"b{i}"] = file["a"]

    def cycle(file):
        file.create_group("a")["b"] = file["/"]

    fills = [bomb, many, texts, layers, deep, virtual, external, links, hard, cycle]
    for fill in fills:
        for version in ("earliest", "v108", "latest"):
            if fill is layers and version == "earliest":  # larger than an attribute may be there
                continue
            yield f"hdf5 {fill.__name__} {version}", functools.partial(hdf, fill, libver=version)


def onnxCases():
    """Models whose tensors lie."""
    from onnx import TensorProto, helper, numpy_helper

    def model(change):
        tensor = numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
        change(tensor)
        return helper.make_model(helper.make_graph([], "net", [], [], [tensor])).SerializeToString()

    def dims(*sizes):
        return lambda tensor: (tensor.ClearField("dims"), tensor.dims.extend(sizes))

    def external(location, **entries):
        def change(tensor):
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in {"location": location, **entries}.items():
                tensor.external_data.add(key=key, value=value)

        return change

    for sizes in [(1 << 40,), (-4,), (1 << 62, 4), (0, 1 << 62), (1,) * 100, (2, 2, 2)]:
        yield f"onnx dims {sizes[:4]} {len(sizes)}", model(dims(*sizes))
    for place in ["/etc/passwd", "../secret", "", "a\0b", "x" * 5000, "..\\secret"]:
        yield f"onnx data in {place[:20]!r}", model(external(place))
    for kind in (0, 8, 14, 99):
        yield f"onnx kind {kind}", model(lambda tensor, kind=kind: setattr(tensor, "data_type", kind))

    def inside(field, data):
        length, size = b"", len(data)
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        return bytes([field << 3 | 2]) + length + bytes([size]) + data

    nested = b""
    for _ in range(1000):
        nested = inside(1, inside(5, inside(6, nested)))
    nested = b"\x08\x08" + inside(7, nested)
    yield "onnx graphs in graphs", nested


def forgedFiles():
    """(name, suffix, bytes or a function that makes them) of every forged file."""
    sets = {".gguf": ggufCases, ".tflite": tfliteCases, ".keras": kerasCases, ".h5": hdfCases, ".onnx": onnxCases}
    return {name: (suffix, data) for suffix, cases in sets.items() for name, data in cases()}
