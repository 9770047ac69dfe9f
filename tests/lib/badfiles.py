"""Files that are damaged or forged at random, one for each seed: of models, checkpoints, PuzzleLib and data."""

import copy
import functools
import gzip
import io
import json
import random
import struct
import warnings

import damage
import forgery
import numpy as np
from everymodule import EXAMPLES, examplesOf
from hostile import manifestOf, puzzle, withManifest
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnxdamage import WHOLE, changed, damaged
from puzzles import container, lenet, module

from puregraph import optimizers
from puregraph.data import ImageFolder, TableReader, readCsv, readIdx
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.onnx import fromOnnx
from puregraph.onnx.onnxsummary import OnnxSummary
from puregraph.serialize import checkpoint

FLOATS = [0.0, -0.0, -1.0, 1e-30, 1e30, float("inf"), float("-inf"), float("nan")]

# Models of ONNX -------------------------------------------------------------------------------------------------------


def standardModels():
    """(model, arrays that go in, by name) of every case of the standard whose inputs are arrays."""
    with warnings.catch_warnings():  # what makes the cases overflows on purpose
        warnings.simplefilter("ignore")
        cases = [case for case in load_model_tests(kind="node") if case.model is not None]
    models = []
    for case in cases:
        given = dict(zip([info.name for info in case.model.graph.input], case.data_sets[0][0]))
        models.append((case.model, {name: x for name, x in given.items() if isinstance(x, np.ndarray)}))
    return models


def knownInputs(model, arrays, rng):
    """The model in which some of its inputs are constants."""
    known = {name: x for name, x in arrays.items() if rng.random() < 0.5 and x.dtype.kind in "biuf"}
    model = copied(model)
    kept = [info for info in model.graph.input if info.name not in known]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(numpy_helper.from_array(x, name) for name, x in known.items())
    return model


def copied(model):
    result = type(model)()
    result.CopyFrom(model)
    return result


def lied(model, rng):
    """The model with one element of a constant, or one number of an attribute, at the end of its range."""
    model = copied(model)
    tensors = [t for t in model.graph.initializer if t.data_type in (1, 6, 7) and np.prod(t.dims) > 0]
    numbers = [a for node in model.graph.node for a in node.attribute if a.type in (1, 2, 6, 7)]
    if tensors and (not numbers or rng.random() < 0.6):
        tensor = tensors[rng.integers(len(tensors))]
        values = np.array(numpy_helper.to_array(tensor))
        value = rng.choice(FLOATS) if values.dtype.kind == "f" else int(rng.choice(WHOLE))
        with np.errstate(all="ignore"):
            values.reshape(-1)[rng.integers(values.size)] = np.array(value).astype(values.dtype)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    elif numbers:
        attribute = numbers[rng.integers(len(numbers))]
        isFloat = attribute.type in (1, 6)
        value = float(rng.choice(FLOATS)) if isFloat else int(rng.choice(WHOLE))
        if attribute.type in (1, 2):
            setattr(attribute, "f" if isFloat else "i", value)
        elif values := attribute.floats if isFloat else attribute.ints:
            values[int(rng.integers(len(values)))] = value
    return model


def modelFile(seed, forms, standard=()):
    """A damaged model: of one of these forms, or of these cases of the standard."""
    rng = np.random.default_rng((seed, 35))
    if standard and rng.random() < 0.9:
        model = knownInputs(*standard[rng.integers(len(standard))], rng)
    else:
        model = forms[rng.integers(len(forms))]
    kind = rng.random()
    if kind < 0.3:
        return lied(model, rng).SerializeToString()
    if kind < 0.5:
        return changed(lied(model, rng), rng)
    return changed(model, rng) if kind < 0.7 else damaged(model.SerializeToString(), rng)


def readModel(path):
    """Read a model as its users do: as a graph, or as a page about it."""
    if path.stat().st_size % 4:
        fromOnnx(path)
    else:
        text = OnnxSummary(path).text(80, False)
        assert text.replace("\n", "").isprintable(), text


# Checkpoints ----------------------------------------------------------------------------------------------------------


@functools.cache
def soundCheckpoint(index):
    """The bytes of a checkpoint of one module, of all kinds of layers, or of one optimizer or schedule."""
    if index >= len(EXAMPLES):
        return damage.checkpoint() if index % 2 else scheduled()
    found, which = EXAMPLES[index]
    layer, shapes = examplesOf(found)[which]
    inputs = [Input(name=f"x{i}").node() for i in range(len(shapes))]
    try:
        return Graph(inputs, layer.node(*inputs, name="it")).save(None)
    except Exception:  # one that holds code of its user's, or needs constants
        return damage.checkpoint()


@functools.cache
def scheduled():
    """A checkpoint with schedules in schedules, and options that were changed."""
    net = damage.small()
    schedule = optimizers.WarmUp(3, optimizers.OneCycle(total=10))
    optimizer = optimizers.AdamW(0.01, schedule=schedule, decay=0.1).setupOn(net)
    return net.save(None, optimizer=optimizer, extra={"names": ["a", "b"], "at": (1, 2.5, None)})


FORGED = [
    0,
    1,
    -1,
    2,
    3,
    7,
    1 << 31,
    1 << 40,
    1 << 62,
    1 << 63,
    -(1 << 63),
    10**30,
    0.5,
    1e308,
    -0.5,
    True,
    False,
    None,
]
FORGED += ["", "x", "float32", "S100000000", "O", "\x1b[31m", [], [1], {"tuple": []}, {"tuple": [1 << 40, 1 << 40]}]
FORGED += [{"tuple": [0]}, {"tuple": [-1, -1]}, {"float": "nan"}, {"float": "inf"}, {"dim": "N"}, {"dtype": "float32"}]
FORGED += [{"dtype": "bool"}, {"type": "float"}, {"module": 0}, {"class": "Relu"}, {"slice": [None, None, 0]}]
FORGED += [{"dict": [["a", 1]]}, {"ellipsis": True}, {"int": "0x" + "f" * 200}, {"tuple": ["a", "b"]}]


def forgeSettings(manifest, rng):
    """Change arguments of modules, of optimizers and of what declares arrays."""
    rows = [row for row in manifest["blueprint"]["modules"] if isinstance(row, dict) and "args" in row]
    rows = [row for row in rows if row["args"] or row["kwargs"]] or rows
    if manifest["optimizer"] is not None and rng.random() < 0.5:
        rows = [manifest["optimizer"]]
    for _ in range(rng.choice([1, 1, 2])):
        row = rng.choice(rows)
        places = [*((row["args"], i) for i in range(len(row["args"]))), *((row["kwargs"], k) for k in row["kwargs"])]
        arrays = manifest["blueprint"].get("arrays") or {}
        places += [(about, key) for about in arrays.values() if isinstance(about, dict) for key in about]
        if not places:
            row["kwargs"][rng.choice(["axis", "size", "name", "dtype"])] = copy.deepcopy(rng.choice(FORGED))
            continue
        place, key = rng.choice(places)
        inner = [p for p in damage.placesIn(place[key]) if p]
        if inner and rng.random() < 0.5:
            place = rng.choice(inner)
            key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
        place[key] = copy.deepcopy(rng.choice(FORGED))


@functools.cache
def foreignFile():
    return damage.puzzle(), forgery.puzzle(), forgery.structure(forgery.puzzle())


def puzzleOf(rng):
    """A file of PuzzleLib's whose blueprint is another one."""
    inner = {
        "fc": module("Linear", "fc", insize=8, outsize=3),
        "pool": module("MaxPool2D", "pool", size=2, stride=2, pad=0),
        "act": module("Activation", "act", activation="relu", slc=None, args=[]),
        "norm": module("BatchNorm2D", "norm", maps=2, epsilon=1e-5),
    }
    edges = {"fc": [], "act": [["fc", None]], "norm": [["act", [0]]], "pool": [["norm", None]]}
    graph = container("Graph", "inner", inner, edges, inputs=["fc"], outputs=["pool"])
    blueprint = rng.choice([lenet(), graph, container("Sequential", "net", {"g": graph, **inner}, ["g", "act"])])
    for _ in range(rng.choice([1, 1, 2])):
        damage.tamper(blueprint, rng)
    return puzzle(lambda file: None, blueprint)


def checkpointFile(seed):
    """The bytes of a damaged checkpoint and its format."""
    rng = random.Random(f"checkpoint {seed}")
    kind = rng.random()
    if kind < 0.1:
        return puzzleOf(rng), "puzzlelib"
    if kind < 0.3:
        plain, forged, places = foreignFile()
        data = damage.damaged(plain, rng) if kind < 0.2 else forgery.forged(forged, places, rng)
        return data, "puzzlelib"
    data = soundCheckpoint(rng.randrange(len(EXAMPLES) + 100))
    if kind < 0.45:
        return damage.damaged(data, rng), "puregraph"
    if kind < 0.65:
        return damage.signed(data, rng), "puregraph"
    manifest = manifestOf(data)
    forgeSettings(manifest, rng)
    return withManifest(data, manifest), "puregraph"


RAW = ("TypeError", "KeyError", "IndexError", "AttributeError", "ZeroDivisionError", "OverflowError", "MemoryError")
RAW += ("RecursionError", "AssertionError", "ValueError", "UnicodeDecodeError", "NotImplementedError")


def readCheckpoint(path, form):
    """Load a checkpoint, and list what is in it; an error of Python's own in a message is one that nobody foresaw."""
    refusals = []
    for call in (checkpoint.load, checkpoint.contents):
        try:
            call(path, format=form)
        except checkpoint.CheckpointError as error:
            if any(f"{name}: " in str(error) for name in RAW):
                raise RuntimeError(str(error)) from None
            refusals.append(error)
    if refusals:
        raise refusals[0]


# Data -----------------------------------------------------------------------------------------------------------------

TABLE = b"age,city,rank\n" + b"".join(b"%d,%s,%d\n" % (i, [b"Rome", b"Oslo", b""][i % 3], i % 2) for i in range(50))
KNOWN = {"numbers": ["age"], "categories": ["city"], "classes": None, "fill": None, "scale": False, "quantities": []}
FITTED = {"vocabulary": {"city": ["Oslo", "Rome"]}, "fills": [0.0], "means": [25.5], "deviations": [5.5], "gapped": []}


def idx(array, kind=8):
    """An array as an IDX file."""
    return bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@functools.cache
def pictures():
    """The bytes of an image in each format that is read."""
    from PIL import Image

    pixels = np.random.default_rng(1).integers(0, 255, (16, 24, 3), np.uint8)
    files = []
    for kind, options in [("BMP", {}), ("GIF", {}), ("JPEG", {}), ("PNG", {}), ("PPM", {}), ("WEBP", {})] + [
        ("TIFF", {"compression": c}) for c in ("raw", "tiff_lzw", "tiff_deflate", "jpeg")
    ]:
        memory = io.BytesIO()
        Image.fromarray(pixels).save(memory, kind, **options)
        files.append(memory.getvalue())
    return files


def readImage(path):
    ImageFolder(path.parent.parent, size=8)[[0]]
    ImageFolder(path.parent.parent, dtype="uint8")[[0]]  # as many bytes as there are; as float32 four times as many


READERS = {
    "a.csv": lambda path: (readCsv(path), TableReader(numbers="age", categories="city", classes="rank").fit(path)),
    "a-idx2-ubyte": readIdx,
    "a-idx2-ubyte.gz": readIdx,
    "a.json": TableReader.load,
    "a.png": readImage,
}


def dataFile(seed):
    """The name of a damaged file of data, and its bytes."""
    rng = random.Random(f"data {seed}")
    name = rng.choice([*READERS, "a.png"])
    if name == "a.json":
        about = KNOWN | FITTED
        damage.tamper(about, rng)
        text = json.dumps(about).encode()
        return name, text if rng.random() < 0.8 else damage.damaged(text, rng)
    sound = {
        "a.csv": lambda: TABLE,
        "a-idx2-ubyte": lambda: idx(np.arange(60, dtype=np.uint8).reshape(5, 12)),
        "a-idx2-ubyte.gz": lambda: gzip.compress(idx(np.arange(60, dtype=np.uint8).reshape(5, 12))),
        "a.png": lambda: rng.choice(pictures()),
    }[name]()
    if rng.random() < 0.3:  # a number near the head that lies
        data = bytearray(sound)
        width = rng.choice("BHI")
        at = rng.randrange(min(64, len(data) - 4))
        struct.pack_into(rng.choice("<>") + width, data, at, rng.choice(forgery.LIES) % 256 ** struct.calcsize(width))
        return name, bytes(data)
    return name, damage.damaged(sound, rng)
