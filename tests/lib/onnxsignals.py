"""OnnxSignals: random uses of operators of signals, boxes, regions and windows, of bits and of caches."""

import numpy as np
import onnx
from onnxsettings import FLOATS, onnxSetting, optional, shape, values, whole


@onnxSetting("Constant")
def constant(rng, opset):
    kinds = ["value"] if opset < 12 else ["value", "value_float", "value_floats", "value_int", "value_ints"]
    kind = str(rng.choice(kinds))
    if kind == "value":
        array = values(rng, shape(rng), rng.choice([*FLOATS, "int32", "int64", "uint8", "bool"]))
        return {kind: onnx.numpy_helper.from_array(np.asarray(array))}, [], 1
    numbers = rng.integers(-9, 9, rng.integers(1, 4)).tolist()
    numbers = [n / 4 for n in numbers] if "float" in kind else numbers
    return {kind: numbers if kind.endswith("s") else numbers[0]}, [], 1


@onnxSetting("CastLike")
def castLike(rng, opset):
    kinds = [*FLOATS, "int32", "int64", "uint8", "bool"]
    return {}, [values(rng, shape(rng), rng.choice(kinds), 0), values(rng, shape(rng), rng.choice(kinds))], 1


@onnxSetting("BitCast")
def bitCast(rng, opset):
    kinds = [["float32", "int32", "uint32"], ["float64", "int64", "uint64"], ["float16", "int16", "uint16"]]
    before, after = rng.choice(kinds[rng.integers(len(kinds))], 2)
    return {"to": onnx.helper.np_dtype_to_tensor_dtype(np.dtype(after))}, [values(rng, shape(rng), before)], 1


@onnxSetting("Scatter")
def scatter(rng, opset):
    sizes = shape(rng, 1, 3, empty=False)
    axis, lengths = int(rng.integers(len(sizes))), tuple(int(rng.integers(1, n + 1)) for n in sizes)
    index = np.argsort(rng.random(sizes), axis)[tuple(slice(n) for n in lengths)]
    return {"axis": axis}, [values(rng, sizes), index, values(rng, lengths)], 1


@onnxSetting("TensorScatter")
def tensorScatter(rng, opset):
    sizes = list(shape(rng, 2, 4, empty=False))
    axis = int(rng.integers(1, len(sizes)))
    count = int(rng.integers(1, sizes[axis] + 1))
    part = [count if i == axis else n for i, n in enumerate(sizes)]
    isCircular = rng.random() < 0.5
    at = rng.integers(0, sizes[axis] if isCircular else sizes[axis] - count + 1, sizes[0])
    attributes = {"axis": axis - len(sizes) if rng.random() < 0.5 else axis}
    attributes |= {"mode": "circular"} if isCircular else optional(rng, mode="linear")
    dtype = rng.choice(["float32", "int64"])
    given = [values(rng, sizes, dtype), values(rng, part, dtype), at]
    return attributes, given if isCircular or rng.random() < 0.7 else given[:2], 1


@onnxSetting("DFT")
def dft(rng, opset):
    n, isComplex, isInverse = int(rng.integers(1, 7)), rng.random() < 0.5, rng.random() < 0.5
    attributes = {"inverse": int(isInverse)}
    attributes |= {"onesided": 1} if not isComplex and not isInverse and rng.random() < 0.5 else {}
    axis, dtype = int(rng.choice([1, 2, -2, -3])), rng.choice(FLOATS[:2])
    x = values(rng, (2, n, 3, 1 + isComplex), dtype)
    length = np.int64(rng.integers(1, 8)) if rng.random() < 0.5 else None
    if opset < 20:
        return attributes | {"axis": axis % 4}, [x] if length is None else [x, length], 1
    return attributes, [x, length, np.int64(axis)], 1


@onnxSetting("STFT")
def stft(rng, opset):
    size, count = int(rng.choice([4, 8])), int(rng.integers(8, 20))
    isComplex, dtype = rng.random() < 0.3, rng.choice(FLOATS[:2])
    x, window = values(rng, (2, count, 1 + isComplex), dtype), np.asarray(rng.random(size), dtype)
    isWindowed = rng.random() < 0.7
    given = [x, np.int64(rng.integers(1, 5)), window if isWindowed else None, np.int64(size)]
    return {"onesided": 0 if isComplex else int(rng.integers(0, 2))}, given, 1


@onnxSetting("HannWindow", "HammingWindow", "BlackmanWindow")
def windowOf(rng, opset):
    return optional(rng, periodic=int(rng.integers(2)), output_datatype=1), [np.int64(rng.integers(2, 12))], 1


@onnxSetting("MelWeightMatrix")
def melWeights(rng, opset):
    length, low = int(rng.choice([16, 32, 64])), float(rng.integers(0, 500))
    given = [np.int64(rng.integers(1, 9)), np.int64(length), np.int64(rng.choice([8000, 16000]))]
    return {}, [*given, np.float32(low), np.float32(low + rng.integers(500, 3000))], 1


@onnxSetting("Col2Im")
def windowsBack(rng, opset):
    rank = 2  # of any other onnxruntime puts windows elsewhere than the standard
    lengths, size = rng.integers(4, 7, rank), rng.integers(1, 4, rank)
    stride, dilation, pads = rng.integers(1, 3, rank), rng.integers(1, 3, rank), rng.integers(0, 2, 2 * rank)
    spans = lengths + pads[:rank] + pads[rank:] - dilation * (size - 1) - 1
    if (spans < 0).any():
        return windowsBack(rng, opset)
    x = values(rng, (2, 2 * int(np.prod(size)), int(np.prod(spans // stride + 1))))
    attributes = {"strides": stride.tolist(), "dilations": dilation.tolist(), "pads": pads.tolist()}
    return attributes, [x, whole(*lengths), whole(*size)], 1


@onnxSetting("MaxUnpool")
def unpool(rng, opset):
    rank = int(rng.integers(1, 4))
    kernel, counts = ([int(n) for n in rng.integers(1, 4, rank)] for _ in "ab")
    sizes = (int(rng.integers(1, 3)), int(rng.integers(1, 3)), *counts)
    strides = [int(n) for n in rng.integers(1, 4, rank)] if rng.random() < 0.5 else None
    lengths = [(n - 1) * s + k for n, s, k in zip(counts, strides or [1] * rank, kernel)]
    attributes = {"kernel_shape": kernel} | ({"strides": strides} if strides else {})
    count, total = int(np.prod(sizes)), int(np.prod([*sizes[:2], *lengths]))
    at = rng.permutation(total)[:count].reshape(sizes)
    return attributes, [values(rng, sizes), at, *([whole(*sizes[:2], *lengths)] if rng.random() < 0.4 else [])], 1


@onnxSetting("RoiAlign")
def regions(rng, opset):
    low, dtype = rng.uniform(-1, 3, (3, 2)), rng.choice(FLOATS[:2])
    rois = np.concatenate([low, low + rng.uniform(0.5, 4, (3, 2))], 1).astype(dtype)
    attributes = {"mode": str(rng.choice(["avg", "max"])), "spatial_scale": float(rng.choice([0.5, 1.0]))}
    attributes |= {key: int(rng.integers(1, 4)) for key in ("output_height", "output_width")}
    attributes["sampling_ratio"] = int(rng.integers(0, 3))
    if opset >= 16:
        ways = ["half_pixel", "output_half_pixel"]
        attributes |= optional(rng, coordinate_transformation_mode=str(rng.choice(ways)))
    return attributes, [values(rng, (2, 2, 5, 6), dtype), rois, rng.integers(0, 2, 3)], 1


@onnxSetting("MaxRoiPool")
def regionMaxima(rng, opset):
    corners = rng.integers(-2, 9, (3, 4)).astype("f4") + rng.choice([0, 0.25], (3, 4))
    rois = np.concatenate([rng.integers(0, 2, (3, 1)), corners], 1).astype("f4")
    attributes = {"pooled_shape": [int(n) for n in rng.integers(1, 4, 2)], **optional(rng, spatial_scale=0.5)}
    return attributes, [values(rng, (2, 2, 5, 6)), rois], 1


@onnxSetting("NonMaxSuppression")
def suppression(rng, opset):
    n, boxes, classes = (int(rng.integers(1, k)) for k in (3, 8, 3))
    given = [rng.random((n, boxes, 4)).astype("f4"), rng.random((n, classes, boxes)).astype("f4")]
    given += [whole(rng.integers(0, 5)), np.float32([rng.random()]), np.float32([rng.random() / 2])]
    return optional(rng, center_point_box=1), given[: int(rng.integers(3, 6))], 1


@onnxSetting("DeformConv")
def deformed(rng, opset):
    groups, parts = (int(n) for n in rng.integers(1, 3, 2))
    inmaps, outmaps = 2 * groups, groups * int(rng.integers(1, 3))
    kernel, strides, dilations = ([int(n) for n in rng.integers(1, 3, 2)] for _ in "abc")
    pads = [int(n) for n in rng.integers(0, 2, 4)]
    sizes = (int(rng.integers(1, 3)), inmaps, *(int(n) for n in rng.integers(4, 7, 2)))
    out = [
        (n + pads[i] + pads[2 + i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1
        for i, n in enumerate(sizes[2:])
    ]
    count = parts * kernel[0] * kernel[1]
    attributes = {"kernel_shape": kernel, "group": groups, "offset_group": parts, "pads": pads}
    attributes |= optional(rng, strides=strides) if strides == [1, 1] else {"strides": strides}
    dtype = rng.choice(FLOATS[:2])
    offset = rng.uniform(-1.6, 1.6, (sizes[0], 2 * count, *out)).astype(dtype)
    given = [values(rng, sizes, dtype), values(rng, (outmaps, inmaps // groups, *kernel), dtype), offset]
    given.append(values(rng, (outmaps,), dtype) if rng.random() < 0.5 else None)
    given.append(np.asarray(rng.random((sizes[0], count, *out)), dtype) if rng.random() < 0.5 else None)
    while given[-1] is None:
        given.pop()
    return attributes | {"dilations": dilations}, given, 1
