"""Forges the structure of HDF5 files in PuzzleLib's layout: sizes, addresses, counts, kinds, each made to lie."""

import io
import json
import struct

import h5py
import numpy as np
from puzzles import container, module

from puregraph.core.storage.safehdf import Guarded

LIES = (0, 1, 2, 7, 255, 65535, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
MARKS = (b"TREE", b"SNOD", b"HEAP", b"GCOL", b"\x89HDF")


def puzzle():
    """A file with every way of storing that is read: contiguous, compact, in chunks without and with filters."""
    rng = np.random.default_rng(5)
    inner = {f"m{k}": module("Linear", f"m{k}", insize=7, outsize=7, useBias=False) for k in range(5)}
    memory = io.BytesIO()
    with h5py.File(memory, "w", libver="earliest") as file:
        options = [{}, {"chunks": (3, 4)}, {"chunks": (7, 7), "compression": "gzip"}]
        options += [{"chunks": (2, 5), "compression": "gzip", "shuffle": True}]
        for k, each in enumerate(options):
            file.create_dataset(f"params/{k}", data=rng.standard_normal((7, 7)).astype("f4"), **each)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((7, 7))
        compact = h5py.h5d.create(file["params"].id, b"4", h5py.h5t.IEEE_F32LE, space, plist)
        compact.write(h5py.h5s.ALL, h5py.h5s.ALL, rng.standard_normal((7, 7)).astype("f4"))
        for k in range(5):
            file[f"links/net.m{k}.W"] = k
        file.create_group("attrs.net")
        text = json.dumps(container("Sequential", "net", inner, list(inner)))
        file.create_dataset("blueprint", (), dtype=h5py.special_dtype(vlen=str), data=text)
    return memory.getvalue()


def structure(data):
    """The positions of the bytes that say how values are stored, not the values themselves."""
    guarded = Guarded(io.BytesIO(data))
    values = set()
    places = [(f"params/{k}", "arrays") for k in guarded.names("params")]
    places += [(f"links/{k}", "arrays") for k in guarded.names("links")]
    for path, _ in places:
        found = guarded.declared(path)
        before = set(guarded.claims)
        guarded.read(path, found.shape, found.dtype)
        added = set(guarded.claims) - before
        tree = [c for c in added if data[c[0] : c[0] + 4] == b"TREE"]
        nodes = {c[1] + 16 for c in tree}  # the rest of a node begins behind its two neighbours
        values |= {i for c in added if c not in tree and c[0] not in nodes for i in range(c[0], c[1])}
        if found.layout[1] == 0:
            at = data.index(found.layout[4:])
            values |= set(range(at, at + found.nbytes))
    text = guarded.text("blueprint")
    at = data.index(text)
    values |= set(range(at, at + len(text)))
    claimed = {i for start, end, _ in guarded.claims for i in range(start, end)}
    return sorted(claimed - values)


def forged(data, places, rng):
    """A file whose structure was changed in one or two places, and nothing else."""
    good, data = data, bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2])):
        at = rng.choice(places)
        kind = rng.randrange(6)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.randrange(256)
        elif kind == 2:  # a size or an address that lies
            width = rng.choice("BHIQ")
            at -= at % 4 if width in "IQ" else at % struct.calcsize(width)
            lie = rng.choice([*LIES, len(data), len(data) - 1, rng.randrange(len(data)), rng.choice(places)])
            size = struct.calcsize(width)
            data[at : at + size] = struct.pack(f"<{width}", lie % 256**size)[: len(data) - at]
        elif kind == 3:  # a number a little beside the true one
            at -= at % 4
            old = struct.unpack_from("<I", data, min(at, len(data) - 4))[0]
            new = (old + rng.choice([-64, -8, -4, -1, 1, 4, 8, 64, old])) % 2**32
            struct.pack_into("<I", data, min(at, len(data) - 4), new)
        elif kind == 4:  # what stands at the next landmark
            mark = rng.choice(MARKS)
            found = bytes(data).find(mark, rng.randrange(len(data)))
            if found >= 0:
                data[found + 4 + rng.randrange(40)] = rng.choice([0, 1, 2, 127, 255])
        else:
            data[at : at + rng.choice([2, 4, 8])] = b""
    if len(data) == len(good):
        sound = bytearray(good)
        for at in places:
            sound[at] = data[at]
        data = sound
    return bytes(data)


def overlong(declared):
    """A file with a chunk of twelve bytes that, as its index says, holds `declared`; all those bytes are there."""
    memory = io.BytesIO()
    with h5py.File(memory, "w", libver="earliest") as file:
        file.create_dataset("params/0", data=np.ones((2, 3), "f4"))
        file.create_dataset("params/1", data=np.ones(3, "f4"), chunks=(3,))
        file["links/net.fc.W"], file["links/net.fc.b"] = 0, 1
        text = json.dumps(container("Sequential", "net", {"fc": module("Linear", "fc", insize=2, outsize=3)}, ["fc"]))
        file.create_dataset("blueprint", (), dtype=h5py.special_dtype(vlen=str), data=text)
    data = bytearray(memory.getvalue())
    at = data.index(b"TREE\x01") + 24
    if struct.unpack_from("<I", data, at) != (12,):
        raise ValueError("this version of HDF5 keeps its chunks elsewhere")
    struct.pack_into("<I", data, at, declared)
    end = data.index(struct.pack("<Q", len(data)), 0, 64)
    data += b"A" * (declared + 4096)
    struct.pack_into("<Q", data, end, len(data))
    return bytes(data)
