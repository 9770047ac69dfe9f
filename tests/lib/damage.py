"""Damages thousands of checkpoints and loads each, in a process of its own, so that a crash would be seen.

    python damage.py KIND START STOP

`plain`    any bytes are damaged: the file must be refused, unless it is what it was
`signed`   the manifest is damaged, and all checksums made to fit: refused, or a different but sound file
`foreign`  a file of PuzzleLib's, which has no checksums: refused, or loaded without a crash
`forged`   one whose structure alone is made to lie: refused, or loaded, with the same values unless an address leads to free space

Prints what went wrong, then how many were refused, left as they were, loaded though they differ, and failed otherwise.
"""

import copy
import faulthandler
import io
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

import forgery
import numpy as np
from hostile import manifestOf, withManifest
from nets import small, values
from puzzles import writePuzzle

from puregraph import optimizers
from puregraph.core.errors import CheckpointError
from puregraph.core.storage.archive import Archive
from puregraph.serialize.checkpoint import contents, load

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


COUNTER = (truncate, flip, zero, swap, duplicate, insert)


def damaged(data, rng):
    return bytes(rng.choice(COUNTER)(bytearray(data), rng))


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


ODD = [None, True, False, 0, -1, 1, 3, 2**31, 2**63, 10**30, 1e308, 0.5, "", "x", "Linear", "\x1b[31m", "a.b", "../x"]
ODD += [[], {}, [[]], {"a": 1}, {"tuple": [1]}, {"module": 0}, {"class": "Relu"}, {"array": 0}, {"dim": "N"}]


def placesIn(value):
    """Every list and dict inside a JSON value, itself too."""
    waiting, found = [value], []
    while waiting:
        item = waiting.pop()
        if isinstance(item, (list, dict)):
            found.append(item)
            waiting += item.values() if isinstance(item, dict) else item
    return found


def tamper(manifest, rng):
    """Change one or a few things of a manifest in place: values, kinds, keys, order."""
    for _ in range(rng.choice([1, 1, 2, 4])):
        place = rng.choice([p for p in placesIn(manifest) if p] or [{"x": 1}])
        key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
        kind = rng.randrange(6)
        if kind == 0:
            place[key] = copy.deepcopy(rng.choice(ODD))
        elif kind == 1:
            place[key] = copy.deepcopy(rng.choice(placesIn(manifest)))
        elif kind == 2:
            del place[key]
        elif kind == 3 and isinstance(place[key], int):
            place[key] = rng.choice([place[key] + 1, place[key] - 1, -place[key], place[key] * 1000])
        elif kind == 4 and isinstance(place, list):
            place.insert(rng.randrange(len(place) + 1), copy.deepcopy(rng.choice([*place, *ODD])))
        elif isinstance(place, dict):
            place[rng.choice(["x", "W", "name", "class", "own", "\x1b]0;x\x07", *place])] = place.pop(key)


def signed(data, rng):
    """The same file with a damaged manifest, and header and structure that fit it."""
    kind = rng.random()
    if kind < 0.6:
        manifest = manifestOf(data)
        tamper(manifest, rng)
        return withManifest(data, manifest)
    text = data[Archive(io.BytesIO(data)).layout.offsets[-1] :]
    return withManifest(data, damaged(text, rng) if kind < 0.75 else edit(text, rng))


def checkSound(data, found):
    """What was taken can be listed, written, and read again."""
    try:
        contents(data)
        load(found.graph.save(None, optimizer=found.optimizer, extra=found.extra))
    except Exception as error:
        raise AssertionError(f"it was loaded, but is not sound: {error}") from error


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
    if own and found.graph.trainMode().save(None, optimizer=found.optimizer, extra=found.extra) != good:
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
            if kind == "signed":
                checkSound(data, again)
        except CheckpointError as error:
            outcome = "refused"
            if any(not c.isprintable() and c != "\n" for c in str(error)):
                raise SystemExit(f"{kind} {number}: {error!r}") from None
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
