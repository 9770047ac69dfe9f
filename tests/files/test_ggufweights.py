"""GGUF: block formats against their definitions element by element, a golden file of the package gguf, and lies."""

import struct
from pathlib import Path

import numpy as np
import pytest

from puregraph.core.errors import CheckpointError
from puregraph.serialize.weights import readWeights
from puregraph.serialize.weights.ggufblocks import BLOCKFORMATS

DATA = Path(__file__).parent / "data"
TYPES = {"q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "q2_k": 10, "q3_k": 11, "q4_k": 12, "q5_k": 13}
TYPES |= {"q6_k": 14, "float32": 0, "float16": 1, "bfloat16": 30, "int8": 24, "int16": 25, "int32": 26, "int64": 27}
TYPES |= {"float64": 28}


def half(block, at):
    return float(np.frombuffer(bytes(block[at : at + 2]), "<f2")[0])


def signed(byte):
    return byte - 256 if byte > 127 else byte


def simple(name, block, i):
    """Element i of a block of 32."""
    d = half(block, 0)
    if name == "q8_0":
        return d * signed(block[2 + i])
    hasMinimum, isFive = name[3] == "1", name[1] == "5"
    start = 4 if hasMinimum else 2
    fifth = block[start + i // 8] >> i % 8 & 1 if isFive else 0
    byte = block[start + (4 if isFive else 0) + i % 16]
    q = (byte >> 4 if i >= 16 else byte & 15) + 16 * fifth
    return d * q + half(block, 2) if hasMinimum else d * (q - (16 if isFive else 8))


def grouped(name, block, i):
    """Element i of a block of 256: (d times scale, quantised value, minimum)."""
    half128, j, pos = i // 128, i % 128 // 32, i % 32
    if name == "q2_k":
        scale = block[i // 16]
        q = block[16 + half128 * 32 + pos] >> 2 * j & 3
        return half(block, 80) * (scale & 15), q, half(block, 82) * (scale >> 4)
    if name == "q3_k":
        g = i // 16
        low = block[96 + g % 8] >> (4 if g >= 8 else 0) & 15
        high = block[104 + g % 4] >> 2 * (g // 4) & 3
        q = (block[32 + half128 * 32 + pos] >> 2 * j & 3) + 4 * (block[pos] >> (half128 * 4 + j) & 1) - 4
        return half(block, 108) * (low + 16 * high - 32), q, 0
    if name == "q6_k":
        in128 = i % 128
        low = block[half128 * 64 + in128 % 64] >> (4 if in128 >= 64 else 0) & 15
        high = block[128 + half128 * 32 + pos] >> 2 * j & 3
        return half(block, 208) * signed(block[192 + i // 16]), low + 16 * high - 32, 0
    g, s = i // 32, block[4:16]
    scale = s[g] & 63 if g < 4 else (s[g + 4] & 15) + 16 * (s[g - 4] >> 6)
    minimum = s[g + 4] & 63 if g < 4 else (s[g + 4] >> 4) + 16 * (s[g] >> 6)
    start = 48 if name == "q5_k" else 16
    q = block[start + i // 64 * 32 + pos] >> (4 if g % 2 else 0) & 15
    if name == "q5_k":
        q += 16 * (block[16 + pos] >> g & 1)
    return half(block, 0) * scale, q, half(block, 2) * minimum


def randomBlocks(name, count, rng):
    """Blocks of any bits whose scales are finite."""
    form = BLOCKFORMATS[name]
    blocks = rng.integers(0, 256, (count, form.bytes), dtype=np.uint8)
    ends = {"q2_k": [80, 82], "q3_k": [108], "q6_k": [208], "q4_0": [0], "q5_0": [0], "q8_0": [0]}
    for at in ends.get(name, [0, 2]):
        blocks[:, at : at + 2] = rng.standard_normal((count, 1)).astype("<f2").view(np.uint8)
    return blocks


@pytest.mark.parametrize("name", BLOCKFORMATS)
def test_blocks_are_what_their_definition_says(name):
    blocks = randomBlocks(name, 7, np.random.default_rng(len(name)))
    wide = BLOCKFORMATS[name].widen(blocks)
    assert wide.dtype == np.float32 and wide.shape == (7, BLOCKFORMATS[name].elements)
    for block, values in zip(blocks.tolist(), wide, strict=True):
        for i, value in enumerate(values):
            if len(values) == 32:
                wanted = np.float32(simple(name, block, i))
                assert value == wanted or "1" in name[3:] and abs(value - wanted) <= 2**-23 * (abs(wanted) + 100)
            else:
                scale, q, minimum = grouped(name, block, i)
                assert abs(float(value) - (scale * q - minimum)) <= 2**-23 * (abs(scale * q) + abs(minimum))


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(tensors, metadata=b"", values=0, version=3, alignment=32, count=None, shift=0, cut=0):
    """A file of (name, dtype, shape, bytes); the parts of it can be made to lie."""
    rows, data = b"", b""
    for name, dtype, shape, content in tensors:
        data += bytes(-len(data) % alignment)
        number = TYPES.get(dtype, dtype)
        sizes = struct.pack(f"<{len(shape)}Q", *reversed(shape))
        rows += text(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", number, len(data) + shift)
        data += content
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors) if count is None else count, values) + metadata + rows
    file = head + bytes(-len(head) % alignment) + data
    return file[: len(file) - cut]


def test_every_type_is_read_with_sizes_in_the_order_of_numpy():
    rng = np.random.default_rng(3)
    tensors, wanted = [], {}
    for name, number in TYPES.items():
        if name in BLOCKFORMATS:
            form = BLOCKFORMATS[name]
            blocks = randomBlocks(name, 30, rng)
            shape = (2, 5, 3 * form.elements)
            wanted[name] = form.widen(blocks).reshape(shape)
            tensors.append((name, name, shape, blocks.tobytes()))
        elif name == "bfloat16":
            values = rng.standard_normal((3, 5)).astype(np.float32).view(np.uint32) >> 16 << 16
            wanted[name] = values.view(np.float32)
            tensors.append((name, name, (3, 5), (values >> 16).astype("<u2").tobytes()))
        else:
            values = (rng.standard_normal((3, 5)) * 50).astype(name)
            wanted[name] = values
            tensors.append((name, number, (3, 5), values.tobytes()))
    for version in (2, 3):
        weights = readWeights(gguf(tensors, version=version))
        assert list(weights) == list(wanted) and weights.format == "gguf"
        for name, values in wanted.items():
            assert weights[name].dtype == name and weights[name].shape == values.shape
            read = weights[name].read()
            assert read.dtype == values.dtype and np.array_equal(read, values), name


def test_large_tensors_are_widened_in_parts():
    blocks = randomBlocks("q4_k", 3000, np.random.default_rng(5))
    weights = readWeights(gguf([("w", "q4_k", (3, 256_000), blocks.tobytes())]))
    assert np.array_equal(weights["w"].read().ravel(), BLOCKFORMATS["q4_k"].widen(blocks).ravel())


def test_the_golden_file_of_the_package_gguf():
    """As made by GGUFWriter and quantize of gguf 0.19; the rounding of quantize is known from the numbers it was fed."""
    fed = (np.arange(128, dtype=np.float32).reshape(2, 64) - 60) / 16
    with readWeights(DATA / "small.gguf") as weights:
        assert weights.metadata["general.architecture"] == "llama" and weights.metadata["llama.block_count"] == 2
        assert weights.metadata["tokenizer.ggml.tokens"] == ["a", "bé", "c"]
        assert weights.metadata["numbers"] == [1.5, 2.5] and weights.metadata["yes"] is True
        assert np.array_equal(weights["plain"].read(), fed[:, :5])
        assert np.array_equal(weights["half"].read(), fed.astype(np.float16))
        assert np.array_equal(weights["bf16"].read(), fed)
        assert np.array_equal(weights["ints"].read(), np.arange(6, dtype=np.int32).reshape(1, 2, 3))
        steps = {"q4_0": 8, "q4_1": 15, "q5_0": 16, "q5_1": 31, "q8_0": 127}
        for name, count in steps.items():
            limit = np.abs(fed).max() / count * (2 if name == "q4_0" else 1.05)
            assert weights[name].shape == fed.shape and np.abs(weights[name].read() - fed).max() <= limit
        assert weights["q4_k"].shape == (1, 256)


def test_a_format_that_is_not_widened_is_listed_and_refused_when_read():
    weights = readWeights(gguf([("w", 16, (1, 256), bytes(66)), ("b", "float32", (2,), bytes(8))]))
    assert weights["w"].dtype == "ggml type 16" and np.array_equal(weights["b"].read(), np.zeros(2))
    with pytest.raises(CheckpointError, match="'w' has ggml type 16, which is not supported; float32, "):
        weights["w"].read()


def test_alignment_is_that_of_the_metadata():
    key = text("general.alignment") + struct.pack("<II", 4, 64)
    values = np.arange(5, dtype=np.float32)
    tensors = [("a", "float32", (5,), values.tobytes()), ("b", "float32", (5,), values.tobytes())]
    assert np.array_equal(readWeights(gguf(tensors, key, 1, alignment=64))["b"].read(), values)
    bad = text("general.alignment") + struct.pack("<II", 4, 48)
    with pytest.raises(CheckpointError, match="must be a power of two"):
        readWeights(gguf(tensors, bad, 1))


FOUR = ("w", "float32", (4,), bytes(16))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (gguf([FOUR], version=1), "version 1; versions 2 and 3 are read"),
        (gguf([FOUR], version=3 << 24), "big-endian"),
        (gguf([FOUR, FOUR]), "two tensors of one name"),
        (gguf([FOUR], cut=1), "cannot be 16 bytes at 0 of the data: there are 15"),
        (gguf([FOUR], shift=4), "offsets are multiples of 32"),
        (gguf([FOUR], shift=1 << 63), "cannot be 16 bytes at"),
        (gguf([("w", "float32", (1 << 40, 1 << 40), b"")]), "no memory holds"),
        (gguf([("w", "float32", (1 << 63, 0), b""), FOUR]), "no memory holds"),
        (gguf([("w", "float32", (1, 1, 1, 1, 1), bytes(4))]), "has 5 axes; GGUF allows 4"),
        (gguf([("w", "q4_0", (4, 48), bytes(200))]), "the last size of q4_0 is a multiple of 32"),
        (gguf([("w", "q4_0", (), bytes(18))]), "the last size of q4_0 is a multiple of 32"),
        (gguf([FOUR], count=1 << 60), "it ends at byte|has no|takes more"),
        (gguf([FOUR], text("k") + struct.pack("<II", 4, 1) + text("k") + struct.pack("<II", 4, 1), 2), "'k' twice"),
        (gguf([FOUR], text("k") + struct.pack("<I", 13), 1), "a value of type 13"),
        (gguf([FOUR], text("k") + struct.pack("<IIQ", 9, 8, 1 << 50), 1), "a list of 1125899906842624 elements"),
        (gguf([FOUR], text("k") + struct.pack("<IIQ", 9, 4, 1 << 61), 1), "bytes of structure"),
        (gguf([FOUR], text("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9, 1), "nested more than 4 deep"),
        (b"GGUF", "it ends at byte 4"),
    ],
)
def test_lies_are_refused(data, words):
    with pytest.raises(CheckpointError, match=words):
        readWeights(data)


def test_tensors_that_share_bytes_are_refused():
    data = bytearray(gguf([("a", "float32", (4,), bytes(16)), ("b", "float32", (4,), bytes(16))]))
    at = data.index(text("b")) + len(text("b")) + 4 + 8 + 4
    data[at : at + 8] = bytes(8)
    with pytest.raises(CheckpointError, match="'b' shares bytes with 'a'"):
        readWeights(bytes(data))
