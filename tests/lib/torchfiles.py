"""Torch files written byte by byte, without torch: those that it writes, and those that it never would."""

import io
import struct
import zipfile

OLDER = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19." + b"\x80\x02M\xe9\x03."


def text(value):
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value):
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def rows(*parts):
    """A tuple."""
    return b"(" + b"".join(parts) + b"t"


def numbers(values):
    return rows(*map(number, values))


def named(module, name):
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def call(module, name, *parts):
    return named(module, name) + rows(*parts) + b"R"


def pairs(items):
    """A dict."""
    return b"}(" + b"".join(text(key) + value for key, value in items.items()) + b"u"


def storage(key="0", count=6, kind="FloatStorage", module="torch", more=b""):
    return rows(text("storage"), named(module, kind), text(key), text("cpu"), number(count), more) + b"Q"


def tensor(shape=(2, 3), strides=(3, 1), offset=0, of=None, more=b""):
    hooks = call("collections", "OrderedDict")
    parts = [storage() if of is None else of, number(offset), numbers(shape), numbers(strides), b"\x89", hooks, more]
    return call("torch._utils", "_rebuild_tensor_v2", *parts)


def pickled(body):
    return b"\x80\x02" + body + b"."


def zipped(body, storages=None, method=zipfile.ZIP_STORED, **members):
    """A zip archive: a pickle's body, and the bytes of its storages."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", method) as archive:
        archive.writestr("archive/data.pkl", pickled(body))
        for key, data in ({"0": struct.pack("<6f", *range(6))} if storages is None else storages).items():
            archive.writestr(f"archive/data/{key}", data)
        for name, data in members.items():
            archive.writestr(f"archive/{name}", data)
    return memory.getvalue()


def older(body, storages=None, isLittle=True):
    """The older form."""
    order = "<" if isLittle else ">"
    storages = {"0": (6, struct.pack(order + "6f", *range(6)))} if storages is None else storages
    system = pairs({"protocol_version": number(1001), "little_endian": b"\x88" if isLittle else b"\x89"})
    keys = b"](" + b"".join(map(text, storages)) + b"e"
    data = b"".join(struct.pack(order + "q", count) + part for count, part in storages.values())
    return OLDER + pickled(system) + pickled(body) + pickled(keys) + data
