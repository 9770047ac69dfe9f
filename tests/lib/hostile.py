"""Small checkpoints that would cost much: loads them, in a process of its own, and says what each took.

python hostile.py NAME ...      prints a line of JSON for each: outcomes, seconds of CPU of the slower call, megabytes
"""

import io
import json
import sys
import time
import zlib

import h5py
import numpy as np
from puzzles import container, module

from puregraph.core.errors import CheckpointError
from puregraph.core.storage.archive import Archive, Header
from puregraph.core.storage.hdf import BASE, HdfLayout
from puregraph.core.storage.hdf import Array as Stored
from puregraph.core.storage.jsoncodec import dumps
from puregraph.graph.sequential import Sequential
from puregraph.modules import Identity
from puregraph.serialize.checkpoint import contents, load


def manifestOf(data):
    """The JSON of a file."""
    return json.loads(data[Archive(io.BytesIO(data)).layout.offsets[-1] :])


def withManifest(data, manifest):
    """The same arrays under another manifest (a dict, or bytes), with a header and a structure that fit it."""
    layout = Archive(io.BytesIO(data)).layout
    offset = layout.offsets[-1]
    text = manifest if isinstance(manifest, bytes) else dumps(manifest)
    layout = HdfLayout([*layout.arrays[:-1], Stored("manifest", (len(text),), "uint8")])
    structure = b"".join(piece.data for piece in layout.structure())
    header = Header(1, layout.end, offset, len(text), zlib.crc32(text)).write()
    return header + structure + data[BASE + len(structure) : offset] + text


def own(change, extra=None):
    """A file of one module, changed."""
    data = Sequential(Identity(name="i"), name="net").save(None, extra=extra)
    manifest = manifestOf(data)
    change(manifest)
    return withManifest(data, manifest)


def modules(rows):
    """A file with these rows of modules after an Identity."""
    identity = {"class": "Identity", "args": [], "kwargs": {}}
    return own(lambda m: m["blueprint"].update(modules=[identity, *rows]))


def extra(value):
    """A file with this JSON as `extra`."""
    return own(lambda m: m.update(extra=value))


def sequential(items, **more):
    return {"class": "Sequential", "items": items, **more}


def argument(value):
    """A file whose only module has an argument."""
    return modules([{"class": "Reshape", "args": [value], "kwargs": {}}, sequential([1])])


def repeated():
    """Eight megabytes that are asked for two thousand times."""
    data = Sequential(Identity()).save(None, extra=np.zeros(1 << 20))
    manifest = manifestOf(data)
    return withManifest(data, {**manifest, "extra": [manifest["extra"]] * 2000})


def doubled():
    return modules([sequential([i, i]) for i in range(40)])


def wide():
    return modules([sequential([0] * 300), sequential([1] * 300)])


def levels():
    return modules([sequential([i], name=f"level{i}") for i in range(320)])


def longNames():
    """A name of fifty thousand characters on every path."""
    return modules([sequential([0] * 1000), sequential([1], name="n" * 50_000), sequential([2] * 3)])


def split():
    return modules([{"class": "Split", "args": [1, 10**9], "kwargs": {}}, sequential([1])])


def splits():
    return modules([{"class": "Split", "args": [1, 20_000], "kwargs": {}}] * 50 + [sequential([1])])


def sizes(text):
    """A symbolic size."""
    return argument({"tuple": [{"dim": text}]})


def polynomial():
    return sizes("*".join(["(" + "+".join(f"a{i}" for i in range(20)) + ")"] * 20))


def modulo():
    return sizes("(" * 60 + "N" + "%(M+3))" * 60)


def digits():
    return sizes("N*" + "9" * 9000)


def longInteger():
    return extra([{"int": "0x" + "f" * 2_000_000}] * 4)


def integers():
    return own(lambda m: m["arrays"].append(["extra/0", [10**4000] * 5000, "float32", 0]))


def collidingIntegers():
    return extra({"dict": [[k * (2**61 - 1), 0] for k in range(60_000)]})


def collidingTuples():
    rows = [[-1 - (i >> b & 1) for b in range(16)] for i in range(1 << 15)]
    return extra({"dict": [[{"tuple": row}, 0] for row in rows]})


def emptyLists():
    return extra([[]] * 3_000_000)


def deepLists():
    return withManifest(own(lambda m: None), b"[" * 5_000_000)


def pointwise(formula, **constants):
    """A file with a formula."""
    return modules([{"class": "Pointwise", "args": [], "kwargs": {"formula": formula, **constants}}, sequential([1])])


def formula():
    return pointwise("x" + "+x" * 200_000)


def shortFormula():
    return pointwise("x" + "*sin(x)" * 400)


def power():
    return pointwise("9**9**9**9*x")


def number():
    return pointwise("x+" + "9" * 1_000_000)


def nestedFormula():
    return pointwise("sin(" * 5000 + "x" + ")" * 5000)


def squares():
    return pointwise("square(" * 60 + "x" + ")" * 60)


def variables():
    return pointwise("+".join(f"x{i}" for i in range(20_000)))


def constants():
    return pointwise("+".join(f"x{i}" for i in range(2000)) + "+x", **{f"x{i}": 1.0 for i in range(2000)})


def names():
    return own(lambda m: m["blueprint"].update(ties={f"a{i}.W": f"b{i}.W" for i in range(50_000)}))


def manyArrays():
    return own(lambda m: m["blueprint"].update(arrays={f"i{i}.W": {} for i in range(50_000)}))


def nestedSchedules():
    start, end = '{"class":"optimizers.WarmUp","args":[3,{"recorded":', '}],"kwargs":{}}'
    row = start * 300 + '{"class":"optimizers.WarmUp","args":[3],"kwargs":{}}' + end * 300
    adam = '{"class":"optimizers.Adam","args":[0.1,{"recorded":' + row + '}],"kwargs":{},"step":0,"state":[]}'
    data = own(lambda m: None)
    return withManifest(data, dumps(manifestOf(data)).replace(b'"optimizer":null', b'"optimizer":' + adam.encode()))


# Files of PuzzleLib ---------------------------------------------------------------------------------------------------


def puzzle(fill, blueprint=None):
    """A file in PuzzleLib's layout."""
    memory = io.BytesIO()
    with h5py.File(memory, "w", libver="earliest") as file:
        file.create_group("params")
        file.create_group("links")
        fill(file)
        if blueprint is not None:
            text = json.dumps(blueprint)
            file.create_dataset("blueprint", (), dtype=h5py.special_dtype(vlen=str), data=text)
    return memory.getvalue()


def zeros():
    """A gigabyte of zeros in a megabyte."""

    def fill(file):
        size = 1 << 14
        file.create_dataset("params/0", (size, size), "f4", chunks=(512, size), compression="gzip")
        data = zlib.compress(bytes(512 * size * 4), 9)
        for row in range(0, size, 512):
            file["params/0"].id.write_direct_chunk((row, 0), data)
        file["links/net.fc.W"] = 0

    layer = module("Linear", "fc", insize=1 << 14, outsize=1 << 14, useBias=False)
    return puzzle(fill, container("Sequential", "net", {"fc": layer}, ["fc"]))


def hardLinks():
    """One megabyte under two thousand names."""

    def fill(file):
        file["params/0"] = np.zeros(1 << 18, "f4")
        for k in range(1, 2000):
            file[f"params/{k}"] = file["params/0"]
        for k in range(2000):
            file[f"links/net.m{k}.W"] = k

    return puzzle(fill)


def containers():
    """Containers that name one module again and again."""
    inner = module("Identity", "i")
    for _ in range(60):
        inner = container("Sequential", "s", {"i": inner}, ["i"] * 4)
    return puzzle(lambda file: None, inner)


def longContainers():
    """Containers in containers, each with a long name."""
    inner = module("Identity", "i")
    for _ in range(95):
        inner = container("Sequential", "s", {"n" * 20_000: inner}, ["n" * 20_000])
    return puzzle(lambda file: None, inner)


def longShape():
    """An Input of two thousand sizes, each of four thousand digits."""
    sizes = {"tuple": [10**3999] * 2000}
    return modules([{"class": "Input", "args": [sizes], "kwargs": {}}, sequential([1])])


def longParameter():
    """A parameter of two thousand sizes, each of four thousand digits."""
    linear = {"class": "Linear", "args": [2, 2], "kwargs": {"useBias": False}, "name": "fc"}
    shape = {"kind": "param", "shape": [10**3999] * 2000, "dtype": "float32"}

    def change(manifest):
        manifest["blueprint"].update(modules=[linear, sequential([0])], arrays={"fc.W": shape})

    return own(change)


def manyParameters():
    """Fifty thousand layers, none of whose parameters the file holds."""
    rows = [{"class": "Linear", "args": [2, 2], "kwargs": {}, "name": f"l{i}"} for i in range(50_000)]
    return modules([*rows, sequential(list(range(1, 50_001)))])


def manyModules():
    """Ten thousand layers without parameters, as a file of half a megabyte may have."""
    rows = [{"class": "Relu", "args": [], "kwargs": {}, "name": f"l{i}"} for i in range(10_000)]
    return modules([*rows, sequential(list(range(1, 10_001)))])


def deepObjects():
    return withManifest(own(lambda m: None), b'{"a":' * 100_000)


FILES = [
    repeated, doubled, wide, levels, longNames, split, splits, polynomial, modulo, digits, longInteger, integers,
    collidingIntegers, collidingTuples, emptyLists, deepLists, formula, shortFormula, power, number, nestedFormula,
    squares, variables, constants, names, manyArrays, nestedSchedules, zeros, hardLinks, containers,
    longContainers, longShape, longParameter, manyParameters, manyModules, deepObjects,
]  # fmt: skip


def main(name):
    data = globals()[name]()
    options = {"format": "puzzlelib"} if globals()[name] in (zeros, hardLinks, containers, longContainers) else {}
    load(Sequential(Identity()).save(None))  # what is imported with the first file is not the file's fault
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak of memory is counted from here
    before, seconds, outcomes = memory(), 0.0, []  # seconds of the slower call
    for call in (load, contents):
        begun = time.process_time()
        try:
            call(data, **options)
            outcomes.append("loaded")
        except CheckpointError as error:
            outcomes.append(f"CheckpointError: {error}")
        except BaseException as error:
            outcomes.append(f"{type(error).__name__}: {error}")
        seconds = max(seconds, time.process_time() - begun)
    print(json.dumps([name, *[outcome[:500] for outcome in outcomes], seconds, memory() - before]), flush=True)


def memory():
    """The peak of this process in megabytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) >> 10 for line in file if line.startswith("VmHWM"))


if __name__ == "__main__":
    for each in sys.argv[1:]:
        main(each)
