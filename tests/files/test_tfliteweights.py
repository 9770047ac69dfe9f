"""TFLite: constants of models that are built here byte by byte, and of one that the package tflite wrote."""

import struct
from pathlib import Path

import numpy as np
import pytest

from puregraph.core.errors import CheckpointError
from puregraph.serialize.weights import readWeights

DATA = Path(__file__).parent / "data"


class Builder:
    """A FlatBuffer written from the front: a table holds offsets to what is written behind it."""

    def __init__(self):
        self.data = bytearray(8)

    def table(self, fields):
        """Write a table of {number: (form, value)}, where a value that is a function writes what the offset leads to."""
        count = max(fields, default=-1) + 1
        listing = len(self.data)
        sizes = {
            number: 4 if callable(value) else struct.calcsize(f"<{form}") for number, (form, value) in fields.items()
        }
        offsets, at = {}, 4
        for number, size in sizes.items():
            offsets[number], at = at, at + size
        self.data += struct.pack(f"<{2 + count}H", 4 + 2 * count, at, *(offsets.get(i, 0) for i in range(count)))
        table = len(self.data)
        self.data += struct.pack("<i", table - listing) + bytes(at - 4)
        for number, (form, value) in fields.items():
            spot = table + offsets[number]
            if callable(value):
                struct.pack_into("<I", self.data, spot, value() - spot)
            else:
                struct.pack_into(f"<{form}", self.data, spot, value)
        return table

    def vector(self, data, count):
        """A function that writes a list of `count` elements."""

        def write():
            at = len(self.data)
            self.data.extend(struct.pack("<I", count) + data)
            return at

        return "I", write

    def text(self, value):
        """A function that writes a text."""
        return self.vector(value.encode(), len(value.encode()))

    def tables(self, rows):
        """A function that writes a list of tables."""

        def write():
            at = len(self.data)
            self.data.extend(struct.pack(f"<I{len(rows)}I", len(rows), *[0] * len(rows)))
            for i, fields in enumerate(rows):
                spot = at + 4 + 4 * i
                struct.pack_into("<I", self.data, spot, self.table(fields()) - spot)
            return at

        return "I", write

    def inner(self, fields):
        """A function that writes a table."""
        return "I", lambda: self.table(fields())


def tflite(tensors, buffers=None, subgraphs=1):
    """A model of (name, type, shape, buffer, quantisation) and buffers of bytes; the first buffer is empty."""
    make = Builder()

    def tensorFields(name, kind, shape, buffer, quantised):
        fields = {0: make.vector(struct.pack(f"<{len(shape)}i", *shape), len(shape)), 1: ("b", kind), 2: ("I", buffer)}
        fields[3] = make.text(name)
        if quantised:
            scale, zero, axis = quantised
            fields[4] = make.inner(
                lambda: {
                    2: make.vector(struct.pack(f"<{len(scale)}f", *scale), len(scale)),
                    3: make.vector(struct.pack(f"<{len(zero)}q", *zero), len(zero)),
                    6: ("i", axis),
                }
            )
        return fields

    rows = [lambda row=row: tensorFields(*row) for row in tensors]
    graphs = [lambda: {0: make.tables(rows)}] * subgraphs
    contents = [lambda data=data: {0: make.vector(data, len(data))} if data else {} for data in [b"", *(buffers or [])]]
    root = make.table({0: ("I", 3), 2: make.tables(graphs), 3: make.text("made here"), 4: make.tables(contents)})
    make.data[:8] = struct.pack("<I4s", root, b"TFL3")
    return bytes(make.data)


CODES = {"float32": 0, "float16": 1, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "int16": 7, "int8": 9}
CODES |= {"float64": 10, "uint64": 12, "uint32": 15, "uint16": 16}


def test_constants_of_each_kind_are_read():
    rng = np.random.default_rng(1)
    arrays = {kind: rng.integers(0, 2, (3, 1, 5)).astype(kind) for kind in CODES}
    tensors = [(kind, CODES[kind], (3, 1, 5), i + 1, None) for i, kind in enumerate(arrays)]
    tensors.append(("computed", 0, (7, 9), 0, None))
    weights = readWeights(tflite(tensors, [array.tobytes() for array in arrays.values()]))
    assert list(weights) == list(arrays) and weights.format == "tflite"
    assert weights.metadata == {"version": 3, "description": "made here"}
    for kind, array in arrays.items():
        read = weights[kind].read()
        assert weights[kind].dtype == kind and weights[kind].shape == (3, 1, 5)
        assert read.dtype == array.dtype and np.array_equal(read, array)


def test_narrow_numbers_are_widened():
    values = np.array([1.5, -2.0, 0.125], np.float32)
    four = [(-8, 7), (3, -1), (5, 0)]
    packed = bytes((low & 15) | (high & 15) << 4 for low, high in four)
    tensors = [("b", 18, (3,), 1, None), ("four", 17, (5,), 2, None)]
    weights = readWeights(tflite(tensors, [(values.view(np.uint32) >> 16).astype("<u2").tobytes(), packed]))
    assert weights["b"].dtype == "bfloat16" and np.array_equal(weights["b"].read(), values)
    assert weights["four"].dtype == "int4" and weights["four"].read().tolist() == [-8, 7, 3, -1, 5]
    assert weights["four"].read().dtype == np.int8


def test_quantised_tensors_give_their_integers_and_the_metadata_their_scales():
    kernel = np.arange(12, dtype=np.int8).reshape(2, 3, 2)
    tensors = [("k", 9, (2, 3, 2), 1, ([0.5, 0.25, 2.0], [0, 0, 0], 1)), ("t", 3, (3,), 2, ([0.125], [128], 0))]
    weights = readWeights(tflite(tensors, [kernel.tobytes(), bytes([1, 2, 3])]))
    assert np.array_equal(weights["k"].read(), kernel) and weights["t"].read().tolist() == [1, 2, 3]
    assert weights.metadata["quantization"] == {
        "k": {"scale": [0.5, 0.25, 2.0], "zeroPoint": [0, 0, 0], "axis": 1},
        "t": {"scale": [0.125], "zeroPoint": [128], "axis": None},
    }


def test_tensors_of_one_name_and_of_several_subgraphs_are_told_from_each_other_by_number():
    weights = readWeights(tflite([("w", 3, (1,), 1, None), ("w", 3, (1,), 1, None), ("", 3, (1,), 1, None)], [b"x"], 2))
    assert list(weights) == ["w", "w#1", "#2", "1/w", "1/w#1", "1/#2"]


def test_texts_are_named_as_skipped():
    weights = readWeights(tflite([("words", 5, (1,), 1, None), ("w", 3, (1,), 1, None)], [b"x"]))
    assert list(weights) == ["w"] and weights.metadata["skipped"] == ["words"]


def test_the_golden_file_of_the_package_tflite():
    with readWeights(DATA / "small.tflite") as weights:
        assert list(weights) == ["conv/kernel", "conv/bias", "dense", "half", "bytes"]
        kernel = np.random.default_rng(5).integers(-128, 128, (4, 3, 3, 2), dtype=np.int8)
        assert np.array_equal(weights["conv/kernel"].read(), kernel)
        assert weights["conv/bias"].read().tolist() == [-9, -2, 5, 12]
        assert np.array_equal(weights["dense"].read(), np.arange(6, dtype=np.float32).reshape(2, 3) / 8)
        assert np.array_equal(weights["half"].read(), np.arange(5, dtype=np.float16) / 4)
        assert weights["bytes"].read().tolist() == [[0, 1], [2, 3]]
        assert weights.metadata["quantization"]["conv/kernel"]["axis"] == 0
        assert weights.metadata["quantization"]["bytes"] == {"scale": [0.25], "zeroPoint": [128], "axis": None}


@pytest.mark.parametrize(
    ("tensors", "buffers", "words"),
    [
        ([("w", 0, (5,), 1, None)], [bytes(16)], r"'w' is float32 \(5,\), which needs 20 bytes; its buffer has 16"),
        ([("w", 0, (-4,), 1, None)], [bytes(16)], "which is not possible"),
        ([("w", 0, (1 << 30, 1 << 30), 1, None)], [bytes(16)], "which needs 4611686018427387904 bytes"),
        ([("w", 0, (4,), 7, None)], [bytes(16)], "'w' has the buffer 7 of 2"),
        ([("w", 9, (2, 3), 1, ([0.5, 0.5], [0, 0], 1))], [bytes(6)], "2 scales and 2 zero points on axis 1"),
        ([("w", 9, (2, 3), 1, ([0.5, 0.5], [0, 0], 5))], [bytes(6)], "on axis 5"),
    ],
)
def test_lies_are_refused(tensors, buffers, words):
    with pytest.raises(CheckpointError, match=words):
        readWeights(tflite(tensors, buffers))


def test_a_file_that_is_cut_off_anywhere_is_refused_or_read_in_full():
    data = tflite([("w", 0, (4,), 1, None)], [np.arange(4, dtype=np.float32).tobytes()])
    for end in range(8, len(data)):
        try:
            values = readWeights(data[:end])["w"].read()
        except CheckpointError:
            continue
        assert values.tolist() == [0, 1, 2, 3]
