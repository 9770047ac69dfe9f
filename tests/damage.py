"""Damages thousands of checkpoints and loads each, in a process of its own, so that a crash would be seen.

    python damage.py KIND START STOP

`plain`    any bytes are damaged: the file must be refused, unless it is what it was
`signed`   the manifest is damaged, and all checksums made to fit: refused, or a different but sound file
`foreign`  a file of PuzzleLib's, which has no checksums: refused, or loaded without a crash
`forged`   one whose structure alone is made to lie: refused, or loaded, with the same values unless an address leads to free space

Prints what went wrong, then how many were refused, left as they were, loaded though they differ, and failed otherwise.
"""

import faulthandler
import io
import random
import resource
import sys
import tempfile
import time
import zlib
from pathlib import Path

import forgery
import numpy as np
from nets import small, values
from puzzles import writePuzzle

from puregraph import optimizers
from puregraph.archive import Archive, Header
from puregraph.checkpoint import load
from puregraph.errors import CheckpointError
from puregraph.hdf import BASE, Layout
from puregraph.hdf import Array as Stored

MEMORY = 4 << 30  # address space: a file that makes us allocate more fails
SECONDS = 2  # for one file


def checkpoint():
    """A file with parameters, states, an optimizer's arrays and extra."""
    net = small()
    for k, array in enumerate(values(net)):
        found = {**net.params, **net.states}[array]
        found.data = (np.random.default_rng(k).random(found.shape) * 100).astype(found.dtype)
    optimizer = optimizers.Adam().setupOn(net)
    x = np.random.default_rng(0).standard_normal((2, 1, 6, 6)).astype(np.float32)
    for _ in range(2):
        net(x)
        net.backward(np.ones((2, 3), np.float32))
        optimizer.update()
    return net.save(None, optimizer=optimizer, extra={"epoch": 1, "noise": np.arange(500), "big": 2**90})


def puzzle():
    """A file of PuzzleLib's with a blueprint, compressed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.hdf"
        writePuzzle(path)
        return path.read_bytes()


def truncate(data, rng):
    return data[: rng.randrange(len(data))]


def flip(data, rng):
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def zero(data, rng):
    at, size = rng.randrange(len(data)), rng.randrange(1, 512)
    data[at : at + size] = bytes(len(data[at : at + size]))
    return data


def swap(data, rng):
    size = rng.choice([8, 64, 512])
    a, b = (rng.randrange(max(len(data) // size, 1)) * size for _ in range(2))
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]
    return data


def duplicate(data, rng):
    size = rng.choice([8, 64, 512])
    a, b = (rng.randrange(max(len(data) // size, 1)) * size for _ in range(2))
    data[a : a + size] = data[b : b + size]
    return data


def insert(data, rng):
    at = rng.randrange(len(data))
    return data[:at] + rng.randbytes(rng.randrange(1, 100)) + data[at:]


CHANGES = (truncate, flip, zero, swap, duplicate, insert)


def damaged(data, rng):
    return bytes(rng.choice(CHANGES)(bytearray(data), rng))


def edit(text, rng):
    """JSON that is still JSON: a number, a word or a bracket pair is replaced by another of the text."""
    pieces = text.split(b",")
    a, b = rng.randrange(len(pieces)), rng.randrange(len(pieces))
    kind = rng.randrange(4)
    if kind == 0:
        pieces[a] = pieces[b]
    elif kind == 1:
        pieces[a] = rng.choice([b"null", b"-1", b"1e9", b"true", b'""', b"[]", b"{}", b"99999999999"])
    elif kind == 2:
        key, colon, _ = pieces[a].rpartition(b":")
        pieces[a] = key + colon + rng.choice([b"null", b"-1", b"3", b"[]", b"{}", b'"Linear"', b'{"module":0}'])
    else:
        del pieces[a]
    return b",".join(pieces)


def signed(data, rng):
    """The same file with a damaged manifest, and header and structure that fit it."""
    layout = Archive(io.BytesIO(data)).layout
    offset = layout.offsets[-1]
    text = data[offset:]
    text = damaged(text, rng) if rng.random() < 0.3 else edit(text, rng)
    layout = Layout([*layout.arrays[:-1], Stored("manifest", (len(text),), "uint8")])
    structure = b"".join(piece.data for piece in layout.structure())
    header = Header(1, layout.end, offset, len(text), zlib.crc32(text)).write()
    return header + structure + data[BASE + len(structure) : offset] + text


def weights(found):
    """The values that were loaded."""
    return [array.data.tobytes() for array in found.graph.params.values()]


def main(kind, start, stop):
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    own = kind in ("plain", "signed")
    good = checkpoint() if own else puzzle() if kind == "foreign" else forgery.puzzle()
    options = {} if own else {"format": "puzzlelib"}
    found = load(good, **options)
    places = forgery.structure(good) if kind == "forged" else None
    if own and found.graph.save(None, optimizer=found.optimizer, extra=found.extra) != good:
        raise SystemExit("the undamaged file does not come back as it was")
    counts = dict.fromkeys(["refused", "unchanged", "loaded", "other"], 0)
    for number in range(start, stop):
        rng = random.Random(f"{kind} {number}")
        data = signed(good, rng) if kind == "signed" else damaged(good, rng) if places is None else None
        data = forgery.forged(good, places, rng) if data is None else data
        begun = time.thread_time()
        try:
            again = load(data, **options)
            same = data == good or kind == "forged" and weights(again) == weights(found)
            outcome = "unchanged" if same else "loaded"
        except CheckpointError:
            outcome = "refused"
        except BaseException as error:
            outcome = "other"
            print(kind, number, repr(error)[:300])
        if time.thread_time() - begun > SECONDS:
            outcome = "other"
            print(kind, number, f"took {time.thread_time() - begun:.1f} s")
        counts[outcome] += 1
    print(*counts.values())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
