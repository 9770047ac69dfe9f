"""OnnxSettings: random uses of operators of ONNX: attributes, shapes that are empty, of one, or broadcast, and types."""

import numpy as np

FLOATS = ["float32", "float64", "float16"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
NUMBERS = ["float32", "float64", "int32", "int64"]

READERS = {}  # for each operator: (rng, opset) -> attributes, inputs, count of outputs


def onnxSetting(*names):
    """Register the function below it as what draws settings of operators."""

    def register(draw):
        for name in names:
            READERS[name] = draw
        return draw

    return register


def shape(rng, least=0, most=4, empty=True):
    """Sizes from 0 to 4, often 1."""
    sizes = [0, 1, 1, 2, 3, 4] if empty and rng.random() < 0.15 else [1, 2, 3, 4]
    return tuple(int(n) for n in rng.choice(sizes, rng.integers(least, most + 1)))


def partner(rng, sizes):
    """A shape that broadcasts with another one."""
    kept = sizes[int(rng.integers(0, len(sizes) + 1)) :]
    return tuple(1 if rng.random() < 0.3 else n for n in kept)


def values(rng, sizes, dtype="float32", low=-4, high=4):
    """Elements of a dtype; floats are multiples of 1/8, now and then at 0."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(sizes) < 0.5
    if dtype.kind == "f":
        return np.asarray(rng.integers(low * 8, high * 8 + 1, sizes) / 8).astype(dtype)
    return rng.integers(max(low, 0) if dtype.kind == "u" else low, high + 1, sizes).astype(dtype)


def axisOf(rng, rank):
    """An axis, from the first or from the end."""
    return int(rng.integers(-rank, rank))


def axesOf(rng, rank):
    """Some axes, each once."""
    chosen = rng.choice(rank, rng.integers(1, rank + 1), replace=False) if rank else np.zeros(0, int)
    return [int(axis - rank if rng.random() < 0.5 else axis) for axis in chosen]


def optional(rng, **attributes):
    """Some of the attributes."""
    return {name: value for name, value in attributes.items() if rng.random() < 0.6}


def whole(*numbers):
    """int64 numbers that options are given as."""
    return np.array(numbers, np.int64)


def setting(name, rng, opset):
    """Attributes, inputs (None for one that is left out) and the count of outputs of a use of an operator."""
    draw = READERS[name]
    takesName = "name" in draw.__code__.co_varnames[: draw.__code__.co_argcount]
    attributes, inputs, count = draw(rng, opset, name) if takesName else draw(rng, opset)
    return attributes, [None if x is None else np.asarray(x) for x in inputs], count
