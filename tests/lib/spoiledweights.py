"""Weight files that are damaged or forged at random, one for each seed, and those that are small and would cost much."""

import functools
import io
import json
import random
import struct
import zipfile

import damage
import numpy as np
import torchfiles
from torchfiles import named, number, pairs, storage, tensor, text

from puregraph.serialize.weights import readWeights, writeWeights

INDEX = "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
PROVEN = ("a.npz", "b.npz", "a.pt")  # whose formats have checksums


@functools.cache
def arrays():
    """The arrays of all sound files but those of torch."""
    rng = np.random.default_rng(0)
    return {
        "fc.weight": rng.standard_normal((5, 7)).astype(np.float32),
        "fc.bias": rng.standard_normal(7).astype(np.float16),
        "steps": np.array(3),
        "mask": rng.random(9) > 0.5,
        "empty": np.zeros((0, 3)),
        "table": rng.integers(0, 99, (4, 3, 2), np.uint8),
    }


def torchBody():
    """The pickle of a checkpoint of torch: views of two storages, and what training has."""
    second = storage("1", 4, "BFloat16Storage")
    state = {
        "w": tensor(),
        "turned": tensor((3, 2), (1, 3)),
        "part": tensor((2,), (3,), 1),
        "wide": tensor((4, 2), (0, 1), of=second),
        "empty": tensor((0, 2), (2, 1)),
        "number": tensor((), (), 5),
    }
    settings = pairs({"lr": b"G" + struct.pack(">d", 0.1), "sizes": torchfiles.numbers((3, 2)), "name": b"N"})
    return pairs({"state_dict": pairs(state), "epoch": number(3), "settings": settings})


TORCHDATA = struct.pack("<6f", *range(6)), struct.pack("<4H", 0x3F80, 0x4000, 0x4040, 0x4080)


def torchFile(body, isZip=True):
    """A file of torch with this pickle."""
    first, second = TORCHDATA
    if isZip:
        return torchfiles.zipped(body, {"0": first, "1": second}, byteorder=b"little", version=b"3\n")
    return torchfiles.older(body, {"0": (6, first), "1": (4, second)})


def shard(path, names):
    """The bytes of a safetensors file with some of the arrays."""
    writeWeights(path, {name: arrays()[name] for name in names}, {"format": "np"})
    return path.read_bytes()


def sound(folder):
    """The bytes of a sound file of each kind by its name; shards are written into the folder."""
    names = list(arrays())
    files = {"a.safetensors": shard(folder / "a.safetensors", names)}
    for name, part in zip(SHARDS, (names[:3], names[3:]), strict=True):
        shard(folder / name, part)
    places = dict.fromkeys(names[:3], SHARDS[0]) | dict.fromkeys(names[3:], SHARDS[1])
    files[INDEX] = json.dumps({"metadata": {"total_size": 300}, "weight_map": places}).encode()
    for name, save in (("a.npz", np.savez), ("b.npz", np.savez_compressed)):
        memory = io.BytesIO()
        save(memory, **arrays())
        files[name] = memory.getvalue()
    memory = io.BytesIO()
    np.save(memory, arrays()["fc.weight"])
    files["a.npy"] = memory.getvalue()
    files["a.pt"], files["older.pt"] = torchFile(torchBody()), torchFile(torchBody(), False)
    return files


def read(path):
    """Read everything of a file; the arrays by name."""
    with readWeights(path) as weights:
        assert repr(weights).isprintable() and repr(weights.metadata)
        found = {}
        for name, each in weights.items():
            assert repr(each).isprintable()
            found[name] = each.read()
            assert found[name].shape == each.shape and each.read(widen=False).shape == each.shape
        return found


def equal(found, wanted):
    """True if the same arrays were read."""
    return found.keys() == wanted.keys() and all(
        found[name].dtype == array.dtype and np.array_equal(found[name], array) for name, array in wanted.items()
    )


# Forged ---------------------------------------------------------------------------------------------------------------

NUMBERS = [0, 1, -1, 2, 3, 6, 7, 255, 256, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 62, 1 << 63, (1 << 64) - 1]
OPCODES = [
    bytes([code]) for code in b"().0123abcdehijlqrstuNQRX]}\x80\x81\x85\x86\x87\x88\x89\x8a\x8c\x90\x92\x93\x94\x95"
]
PARTS = [tensor(), storage(), text("w"), text("state_dict"), named("torch", "Size"), named("os", "system"), b")", b"}"]
PARTS += [number(n) for n in NUMBERS] + [named("collections", "OrderedDict"), b"h\0", b"q\0", b"\x94", b"(", b"]", b"N"]


def forgedSafetensors(data, rng):
    """A file whose header is another one."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    if rng.random() < 0.6:
        row = header[rng.choice(list(header))]
        key = rng.choice(["dtype", "shape", "data_offsets"])
        if key in row and key != "dtype" and row[key]:
            row[key][rng.randrange(len(row[key]))] = rng.choice(NUMBERS)
        else:
            row[key] = rng.choice(["F64", "F32", "BF16", "I8", "F8_E5M2", "F4", "", 3, None])
    else:
        damage.tamper(header, rng)
    made = json.dumps(header).encode()
    return len(made).to_bytes(8, "little") + made + data[8 + size :]


def forgedIndex(data, rng):
    """An index that is another one."""
    index = json.loads(data)
    if rng.random() < 0.5:
        names = ["../secret.safetensors", "secret", "/etc/passwd", ".", "..", "", SHARDS[0], SHARDS[1], INDEX]
        index["weight_map"][rng.choice(list(index["weight_map"]))] = rng.choice(names)
    else:
        damage.tamper(index, rng)
    return json.dumps(index).encode()


def forgedTorch(isZip, rng):
    """A file with another pickle, and checksums that fit."""
    body = torchBody()
    for _ in range(rng.choice([1, 1, 2, 5])):
        at, kind = rng.randrange(len(body)), rng.randrange(4)
        if kind == 0:
            body = body[:at] + rng.choice(PARTS) + body[at:]
        elif kind == 1:
            body = body[:at] + rng.choice(OPCODES) + body[at + 1 :]
        elif kind == 2:
            at = rng.choice([i for i in range(len(body)) if body[i : i + 1] == b"K"])
            body = body[:at] + number(rng.choice(NUMBERS)) + body[at + 2 :]
        else:
            end = at + rng.randrange(1, 60)
            to = rng.randrange(len(body))
            body = body[:to] + body[at:end] + body[to:]
    return torchFile(body, isZip)


def forgedNpy(data, rng):
    """An array with another header."""
    size = int.from_bytes(data[8:10], "little")
    header, elements = data[10 : 10 + size].decode("latin-1").strip(), data[10 + size :]
    pieces = ["'<f4'", "'|O'", "'<f8'", "(5, 7)", "(35,)", "()", "(-1,)", "True", "False", "'shape'", "{", "}", "None"]
    pieces += [f"({n}, 7)" for n in NUMBERS] + [f"({n}, 0)" for n in NUMBERS]
    old = rng.choice([piece for piece in pieces if piece in header])
    header = header.replace(old, rng.choice(pieces), 1)
    made = header.encode("latin-1")
    return data[:8] + struct.pack("<H", len(made)) + made + elements


def forgedZip(data, rng):
    """An archive in whose headers, directory or end a number is another one."""
    signatures = [b"PK\3\4", b"PK\1\2", b"PK\5\6"]
    starts = [i for i in range(len(data) - 4) if data[i : i + 4] in signatures]
    made = bytearray(data)
    for _ in range(rng.choice([1, 1, 2])):
        at = min(rng.choice(starts) + rng.randrange(4, 46), len(data) - 8)
        form = rng.choice(["<B", "<H", "<I"])
        struct.pack_into(form, made, at, rng.choice(NUMBERS) % 256 ** struct.calcsize(form))
    return bytes(made)


def forged(files, seed):
    """The name and the bytes of a forged file."""
    rng = random.Random(f"forged {seed}")
    name = rng.choice([*files, "a.safetensors", "a.pt", "older.pt"])
    data = files[name]
    if name == "a.safetensors":
        return name, forgedSafetensors(data, rng)
    if name == INDEX:
        return name, forgedIndex(data, rng)
    if name == "a.npy":
        return name, forgedNpy(data, rng)
    if name.endswith(".pt") and rng.random() < 0.7 or name == "older.pt":
        return name, forgedTorch(name == "a.pt", rng)
    if name.endswith(".npz") and rng.random() < 0.5:
        memory = io.BytesIO()
        with zipfile.ZipFile(
            memory, "w", zipfile.ZIP_DEFLATED if rng.random() < 0.5 else zipfile.ZIP_STORED
        ) as archive:
            archive.writestr("w.npy", forgedNpy(files["a.npy"], rng))
        return name, memory.getvalue()
    return name, forgedZip(data, rng)


def damaged(files, seed):
    """The name and the bytes of a damaged file."""
    rng = random.Random(f"damaged {seed}")
    name = list(files)[seed % len(files)]
    return name, damage.damaged(files[name], rng)


# Costly ---------------------------------------------------------------------------------------------------------------


def header(middle, buffer=b""):
    """A safetensors file of two megabytes of header."""
    return len(middle).to_bytes(8, "little") + middle + buffer


def joined(start, parts, end, most=(2 << 20) - 100):
    """Parts with commas between them, as long as a header may be."""
    made, size = [], 0
    for part in parts:
        size += len(part) + 1
        if size > most:
            break
        made.append(part)
    return start + b",".join(made) + end


def bomb(size, array=None):
    """An `.npz` that is much larger in memory."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("w.npy", "w") as member:
        np.lib.format.write_array(member, np.zeros(size, np.uint8))
    return memory.getvalue()


def manyMembers():
    """An archive of ten thousand empty arrays."""
    data = io.BytesIO()
    np.save(data, np.zeros(0))
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        for i in range(10_000):
            archive.writestr(zipfile.ZipInfo(f"{i}.npy"), data.getvalue())
    return memory.getvalue()


def far():
    """Ten thousand tensors of two elements, the first and the last of a large storage."""
    large = storage("0", 1 << 20)
    body = b"}(" + b"".join(text(f"w{i}") + tensor((2,), ((1 << 20) - 1,), of=large) for i in range(10_000))
    return torchfiles.zipped(body + b"u", {"0": bytes(4 << 20)})


def laughs():
    """A dict that holds another one twice, and so on."""
    body = b"}(" + text("w") + tensor() + b"uq\0"
    for i in range(60):
        body += b"}(" + text("a") + b"h" + bytes([i]) + text("b") + b"h" + bytes([i]) + b"uq" + bytes([i + 1])
    return torchfiles.zipped(b"(" + body + b"t")


def colliding():
    """A dict whose keys have one hash."""
    keys = b"".join(number(i * ((1 << 61) - 1)) + b"N" for i in range(60_000))
    return torchfiles.zipped(b"}(" + keys + b"u")


COSTLY = {
    "lists.safetensors": lambda: header(b'{"a":' + b"[" + b"[]," * 699_000 + b"[]]}"),
    "deep.safetensors": lambda: header(b'{"a":' + b"[" * 2_000_000),
    "keys.safetensors": lambda: header(joined(b"{", (b'"%x":1' % i for i in range(1 << 20)), b"}")),
    "texts.safetensors": lambda: header(
        joined(b'{"__metadata__":{', (b'"%x":"%x"' % (i, i) for i in range(1 << 20)), b"}}")
    ),
    "empty.safetensors": lambda: header(
        joined(b"{", (b'"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i for i in range(20_000)), b"}")
    ),
    "numbers.safetensors": lambda: header(b'{"a":{"dtype":"U8","shape":[' + b"9" * 2_000_000 + b"]}}"),
    "long.json": lambda: joined(
        b'{"weight_map":{', (b'"%x":"a.safetensors"' % i for i in range(1 << 20)), b"}}", 15 << 20
    ),
    "shards.json": lambda: joined(
        b'{"weight_map":{', (b'"%x":"%x.safetensors"' % (i, i) for i in range(40_000)), b"}}"
    ),
    "lists.pt": lambda: torchfiles.zipped(b"(" + b"]" * 290_000 + b"t"),
    "dicts.pt": lambda: torchfiles.zipped(b"(" + b"}\x94" * 145_000 + b"t"),
    "deep.pt": lambda: torchfiles.zipped(b")" + b"\x85" * 290_000),
    "deeplists.pt": lambda: torchfiles.zipped(b"]" * 145_000 + b"a" * 144_999),
    "texts.pt": lambda: torchfiles.zipped(b"(" + (text("a" * 90)) * 20_000 + b"t"),
    "laughs.pt": laughs,
    "colliding.pt": colliding,
    "far.pt": far,
    "wide.pt": lambda: torchfiles.zipped(pairs({"w": tensor((1 << 11, 1 << 12), (0, 0))})),
    "older.pt": lambda: torchfiles.OLDER + b"\x80\x02(" + b"]" * 290_000,
    "wrapped.pt": lambda: torchfiles.zipped(
        b"}(" + text("w") + tensor() + text("x") + b"(" + b"]" * 290_000 + b"t" + b"u"
    ),
    "bomb.npz": lambda: bomb(30 << 20),
    "bombs.npz": lambda: bomb(200 << 20),
    "many.npz": manyMembers,
    "spaces.npy": lambda: b"\x93NUMPY\1\0" + struct.pack("<H", 9000) + b"{" + b" " * 8999,
}
REFUSED = [
    name
    for name in COSTLY
    if name not in ("empty.safetensors", "texts.safetensors", "texts.pt", "wide.pt", "bomb.npz", "many.npz")
]
