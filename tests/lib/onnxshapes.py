"""OnnxShapes: random uses of operators that move, cut, join and pick elements."""

import numpy as np
from onnxsettings import axesOf, axisOf, onnxSetting, optional, partner, shape, values, whole


@onnxSetting("Shape")
def shapeOf(rng, opset):
    attributes = optional(rng, start=int(rng.integers(-5, 5)), end=int(rng.integers(-5, 5))) if opset >= 15 else {}
    return attributes, [values(rng, shape(rng))], 1


@onnxSetting("Size", "NonZero")
def plain(rng, opset):
    return {}, [values(rng, shape(rng, 1), "float32", -1, 1)], 1


@onnxSetting("Reshape")
def reshape(rng, opset):
    sizes = shape(rng)
    target = list(np.array(sizes)[rng.permutation(len(sizes))]) if sizes else [1]
    if len(target) > 1 and rng.random() < 0.4:
        target = [target[0] * target[1], *target[2:]]
    if target and rng.random() < 0.4 and 0 not in target:
        target[rng.integers(len(target))] = -1
    for i, n in enumerate(sizes[: len(target)]):
        if target[i] == n and rng.random() < 0.3 and 0 not in sizes:
            target[i] = 0
    attributes = {"allowzero": 1} if opset >= 14 and 0 in sizes else {}
    return attributes, [values(rng, sizes), whole(*target)], 1


@onnxSetting("Flatten")
def flatten(rng, opset):
    sizes = shape(rng, 1)
    low = -len(sizes) if opset >= 11 else 0
    return optional(rng, axis=int(rng.integers(low, len(sizes) + 1))), [values(rng, sizes)], 1


@onnxSetting("Transpose")
def transpose(rng, opset):
    sizes = shape(rng)
    return optional(rng, perm=[int(i) for i in rng.permutation(len(sizes))]) if sizes else {}, [values(rng, sizes)], 1


@onnxSetting("Squeeze")
def squeeze(rng, opset):
    sizes = tuple(1 if rng.random() < 0.5 else n for n in shape(rng, 1))
    ones = [i - len(sizes) if opset >= 11 and rng.random() < 0.5 else i for i, n in enumerate(sizes) if n == 1]
    if not ones or rng.random() < 0.2:
        return {}, [values(rng, sizes)], 1
    axes = [int(a) for a in rng.permutation(ones)[: rng.integers(1, len(ones) + 1)]]
    return ({}, [values(rng, sizes), whole(*axes)], 1) if opset >= 13 else ({"axes": axes}, [values(rng, sizes)], 1)


@onnxSetting("Unsqueeze")
def unsqueeze(rng, opset):
    sizes = shape(rng, 0, 3)
    rank = len(sizes) + int(rng.integers(1, 3))
    chosen = rng.choice(rank, rank - len(sizes), replace=False)
    axes = [int(a - rank if opset >= 11 and rng.random() < 0.5 else a) for a in chosen]
    return ({}, [values(rng, sizes), whole(*axes)], 1) if opset >= 13 else ({"axes": axes}, [values(rng, sizes)], 1)


@onnxSetting("Concat")
def concat(rng, opset):
    sizes, dtype = shape(rng, 1), rng.choice(["float32", "int64", "bool"])
    axis = int(rng.integers(-len(sizes), len(sizes))) if opset >= 11 else int(rng.integers(len(sizes)))
    lengths = rng.integers(0, 4, rng.integers(1, 4))
    parts = [tuple(int(n) if i == axis % len(sizes) else s for i, s in enumerate(sizes)) for n in lengths]
    return {"axis": axis}, [values(rng, part, dtype) for part in parts], 1


@onnxSetting("Split")
def split(rng, opset):
    sizes = list(shape(rng, 1, empty=False))
    axis = axisOf(rng, len(sizes)) if opset >= 11 else int(rng.integers(len(sizes)))
    lengths = [int(n) for n in rng.integers(0 if opset >= 13 else 1, 4, rng.integers(1, 4))]
    isEqual = rng.random() < 0.4
    lengths = [max(lengths[0], 1)] * len(lengths) if isEqual else lengths
    sizes[axis] = sum(lengths)
    x, attributes = values(rng, tuple(sizes)), {"axis": axis}
    if isEqual:
        return attributes | ({"num_outputs": len(lengths)} if opset >= 18 else {}), [x], len(lengths)
    if opset >= 13:
        return attributes, [x, whole(*lengths)], len(lengths)
    return attributes | {"split": lengths}, [x], len(lengths)


@onnxSetting("Slice")
def sliced(rng, opset):
    sizes = shape(rng, 1)
    axes = axesOf(rng, len(sizes)) if opset >= 10 else [a % len(sizes) for a in axesOf(rng, len(sizes))]
    far = [-(1 << 63), -(1 << 31), (1 << 31) - 1, (1 << 63) - 1]
    ends = [
        [int(rng.choice(far)) if rng.random() < 0.1 else int(n) for n in rng.integers(-6, 7, len(axes))] for _ in "ab"
    ]
    if opset < 10:
        return {"starts": ends[0], "ends": ends[1], "axes": axes}, [values(rng, sizes)], 1
    steps = [int(rng.choice([1, 2] if end > 6 else [1, 1, 2, -1, -2])) for end in ends[1]]  # or onnxruntime errs
    given = [values(rng, sizes), whole(*ends[0]), whole(*ends[1]), whole(*axes), whole(*steps)]
    return {}, given[: 5 if rng.random() < 0.8 else 4], 1


@onnxSetting("Expand")
def expand(rng, opset):
    sizes = shape(rng)
    return {}, [values(rng, partner(rng, sizes)), whole(*(1 if rng.random() < 0.2 else n for n in sizes))], 1


@onnxSetting("Tile")
def tile(rng, opset):
    sizes = shape(rng, 1, 3)
    return {}, [values(rng, sizes), whole(*rng.integers(0 if rng.random() < 0.1 else 1, 4, len(sizes)))], 1


@onnxSetting("Pad")
def pad(rng, opset):
    sizes = shape(rng, 1, 3, empty=False)
    mode = str(rng.choice(["constant", "reflect", "edge"]))
    most = [n - 1 if mode == "reflect" else 2 for n in sizes] * 2
    pads = [int(rng.integers(0, m + 1)) for m in most]
    if opset < 11:
        return {"mode": mode, "pads": pads, **optional(rng, value=1.5)}, [values(rng, sizes)], 1
    given = [values(rng, sizes), whole(*pads)]
    return {"mode": mode}, [*given, np.float32(1.5)] if mode == "constant" and rng.random() < 0.5 else given, 1


@onnxSetting("Trilu")
def trilu(rng, opset):
    x = values(rng, shape(rng, 2), rng.choice(["float32", "int64"]))
    return optional(rng, upper=0), [x, np.int64(rng.integers(-5, 6))] if rng.random() < 0.7 else [x], 1


@onnxSetting("Range")
def ranged(rng, opset):
    dtype = np.dtype(rng.choice(["int32", "int64", "float32", "float64"]))
    step = rng.choice([-2, -1, 1, 2, 3])
    return {}, [np.array(n, dtype) for n in (*rng.integers(-6, 7, 2), step)], 1


@onnxSetting("EyeLike")
def eyeLike(rng, opset):
    x = values(rng, shape(rng, 2, 2, False), rng.choice(["float32", "int64"]))
    return optional(rng, k=int(rng.integers(-3, 4)), dtype=int(rng.choice([1, 7, 11]))), [x], 1


@onnxSetting("DepthToSpace", "SpaceToDepth")
def blocks(rng, opset, name="DepthToSpace"):
    n, c, h, w, b = (int(n) for n in rng.integers(1, 4, 5))
    if name == "SpaceToDepth":
        return {"blocksize": b}, [values(rng, (n, c, h * b, w * b))], 1
    attributes = optional(rng, mode=str(rng.choice(["DCR", "CRD"]))) if opset >= 11 else {}
    return {"blocksize": b} | attributes, [values(rng, (n, c * b * b, h, w))], 1


def indices(rng, sizes, length, low=True):
    """Indices of an axis, from the first or from the end."""
    return rng.integers(-length if low else 0, length, sizes)


@onnxSetting("Gather")
def gather(rng, opset):
    sizes = shape(rng, 1, 3, empty=False)
    axis = axisOf(rng, len(sizes))
    index = indices(rng, shape(rng, 0, 3), sizes[axis], opset >= 11).astype(rng.choice(["int32", "int64"]))
    return {"axis": axis}, [values(rng, sizes, rng.choice(["float32", "int64", "bool"])), index], 1


@onnxSetting("GatherElements")
def gatherElements(rng, opset):
    sizes = shape(rng, 1, 3, empty=False)
    axis = axisOf(rng, len(sizes))
    lengths = [
        int(rng.integers(0, 5)) if i == axis % len(sizes) else int(rng.integers(1, n + 1)) for i, n in enumerate(sizes)
    ]
    return {"axis": axis}, [values(rng, sizes), indices(rng, lengths, sizes[axis])], 1


@onnxSetting("GatherND", "ScatterND")
def points(rng, opset, name="GatherND"):
    sizes = shape(rng, 1, 4, empty=False)
    batch = int(rng.integers(0, len(sizes))) if name == "GatherND" and opset >= 12 else 0
    count = int(rng.integers(1, len(sizes) - batch + 1))
    around = (*sizes[:batch], *shape(rng, 0 if batch else 1, 2, False))
    index = np.stack([indices(rng, around, n) for n in sizes[batch : batch + count]], -1).astype(np.int64)
    if name == "GatherND":
        return {"batch_dims": batch} if batch else {}, [values(rng, sizes), index], 1
    kinds = ["none"] if opset < 16 else ["none", "add", "mul"] + (["max", "min"] if opset >= 18 else [])
    kind = str(rng.choice(kinds))
    if kind == "none":
        rows = np.unique(index.reshape(-1, count) % np.array(sizes[:count]), axis=0)
        index, around = rows, (len(rows),)
    updates = values(rng, (*around, *sizes[count:]))
    return {"reduction": kind} if kind != "none" else {}, [values(rng, sizes), index, updates], 1


@onnxSetting("ScatterElements")
def scatterElements(rng, opset):
    sizes = shape(rng, 1, 3, empty=False)
    axis = axisOf(rng, len(sizes))
    kinds = ["none"] if opset < 16 else ["none", "add", "mul"] + (["max", "min"] if opset >= 18 else [])
    kind = str(rng.choice(kinds))
    lengths = tuple(int(rng.integers(1, n + 1)) for n in sizes)
    index = np.argsort(rng.random(sizes), axis)[tuple(slice(n) for n in lengths)].astype(np.int64)
    if kind != "none":
        index = indices(rng, lengths, sizes[axis])
    attributes = {"axis": axis} | ({"reduction": kind} if kind != "none" else {})
    return attributes, [values(rng, sizes), index, values(rng, lengths)], 1


@onnxSetting("Compress")
def compress(rng, opset):
    sizes = shape(rng, 1, 3, empty=False)
    axis = axisOf(rng, len(sizes)) if opset >= 11 else int(rng.integers(len(sizes)))
    isFlat = rng.random() < 0.3
    length = int(np.prod(sizes)) if isFlat else sizes[axis]
    condition = values(rng, (int(rng.integers(1, length + 1)),), "bool")
    return {} if isFlat else {"axis": axis}, [values(rng, sizes), condition], 1


@onnxSetting("Unique")
def unique(rng, opset):
    sizes = shape(rng, 1, 3, empty=False)
    attributes = optional(rng, axis=axisOf(rng, len(sizes)), sorted=int(rng.integers(2)))
    return attributes, [values(rng, sizes, rng.choice(["float32", "int64"]), -1, 1)], 4


@onnxSetting("OneHot")
def oneHot(rng, opset):
    sizes = shape(rng, 0, 3)
    depth = int(rng.integers(1, 5))
    index = rng.integers(-depth - 1 if opset >= 11 else 0, depth + 1, sizes)
    ends = values(rng, (2,), rng.choice(["float32", "int64"]))
    return {"axis": int(rng.integers(-len(sizes) - 1, len(sizes) + 1))}, [index, np.int64(depth), ends], 1


@onnxSetting("ReverseSequence")
def reverseSequence(rng, opset):
    sizes, time = shape(rng, 2, 4, empty=False), int(rng.integers(2))
    return (
        {"time_axis": time, "batch_axis": 1 - time},
        [values(rng, sizes), rng.integers(1, sizes[time] + 1, sizes[1 - time])],
        1,
    )


@onnxSetting("TopK")
def topK(rng, opset):
    sizes = shape(rng, 1, 3, empty=False)
    axis = axisOf(rng, len(sizes)) if opset >= 11 else int(rng.integers(len(sizes)))
    count = int(rng.integers(1, sizes[axis] + 1))
    x = values(rng, sizes, rng.choice(["float32", "int64"] if opset >= 11 else ["float32"]))
    if opset < 10:
        return {"axis": axis, "k": count}, [x], 2
    return {"axis": axis} | (optional(rng, largest=0) if opset >= 11 else {}), [x, whole(count)], 2
