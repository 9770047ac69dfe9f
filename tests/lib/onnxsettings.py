"""OnnxSettings: random uses of operators of ONNX: attributes, shapes that are empty, of one, or broadcast, and types."""

import numpy as np

FLOATS = ["float32", "float64", "float16"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
NUMBERS = ["float32", "float64", "int32", "int64"]

UNARY = """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor IsNaN Log Neg Reciprocal Round Sigmoid Sign Sin
Sinh Sqrt Tan Tanh Relu Softplus Softsign HardSwish Mish Identity""".split()
BINARY = "Add Sub Mul Div Pow Mod Equal Less LessOrEqual Greater GreaterOrEqual And Or Xor".split()
VARIADIC = "Max Min Sum Mean".split()
REDUCED = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()
ACTIVATIONS = {
    "Elu": ["alpha"],
    "Celu": ["alpha"],
    "LeakyRelu": ["alpha"],
    "Selu": ["alpha", "gamma"],
    "HardSigmoid": ["alpha", "beta"],
    "ThresholdedRelu": ["alpha"],
    "Shrink": ["bias", "lambd"],
}
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


@onnxSetting(*UNARY)
def unary(rng, opset):
    dtype = rng.choice([*FLOATS, *SIGNED[2:]])
    return {}, [values(rng, shape(rng), dtype)], 1


@onnxSetting(*BINARY)
def binary(rng, opset, name="Add"):
    sizes = shape(rng)
    dtype = rng.choice(["bool"] if name in ("And", "Or", "Xor") else NUMBERS)
    a, b = values(rng, sizes, dtype), values(rng, partner(rng, sizes), dtype)
    if name in ("Div", "Mod", "Pow"):
        b = np.where(b == 0, 1, b).astype(dtype)
        a = np.abs(a) + 1 if name == "Pow" else a
        b = np.abs(b) if name == "Pow" else b
    attributes = {"fmod": 1} if name == "Mod" and (np.dtype(dtype).kind == "f" or rng.random() < 0.5) else {}
    isTurned = rng.random() < 0.5 and name not in ("Div", "Mod", "Pow")
    return attributes, [b, a] if isTurned else [a, b], 1


@onnxSetting(*VARIADIC)
def variadic(rng, opset):
    sizes, dtype = shape(rng), rng.choice(FLOATS[:2])
    count = rng.integers(1, 4)
    return {}, [values(rng, sizes if i == 0 else partner(rng, sizes), dtype) for i in range(count)], 1


@onnxSetting("Not")
def negation(rng, opset):
    return {}, [values(rng, shape(rng), "bool")], 1


@onnxSetting("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift")
def bits(rng, opset, name="BitwiseAnd"):
    sizes, dtype = shape(rng), rng.choice(UNSIGNED if name == "BitShift" else [*SIGNED, *UNSIGNED])
    a, b = values(rng, sizes, dtype, 0, 100), values(rng, partner(rng, sizes), dtype, 0, 7)
    attributes = {"direction": str(rng.choice(["LEFT", "RIGHT"]))} if name == "BitShift" else {}
    return attributes, [a] if name == "BitwiseNot" else [a, b], 1


@onnxSetting("IsInf")
def isInf(rng, opset):
    x = values(rng, shape(rng), rng.choice(FLOATS[:2]))
    x = np.where(x > 2, np.inf, np.where(x < -2, -np.inf, x)).astype(x.dtype)
    return optional(rng, detect_negative=0, detect_positive=0), [x], 1


@onnxSetting(*ACTIVATIONS)
def activation(rng, opset, name="Elu"):
    given = {each: float(rng.integers(1, 16) / 8) for each in ACTIVATIONS[name]}
    return optional(rng, **given), [values(rng, shape(rng), "float32")], 1


@onnxSetting("Gelu")
def gelu(rng, opset):
    return optional(rng, approximate=str(rng.choice(["none", "tanh"]))), [values(rng, shape(rng))], 1


@onnxSetting("Swish")
def swish(rng, opset):
    return optional(rng, alpha=0.5), [values(rng, shape(rng))], 1


@onnxSetting("PRelu")
def pRelu(rng, opset):
    sizes = shape(rng)
    return {}, [values(rng, sizes), values(rng, partner(rng, sizes))], 1


@onnxSetting("Clip")
def clip(rng, opset):
    dtype = "float32" if opset < 12 else rng.choice(NUMBERS)
    x, low, high = values(rng, shape(rng), dtype), values(rng, (), dtype, -4, 1), values(rng, (), dtype, -1, 4)
    if opset < 11:
        return optional(rng, min=float(low), max=float(high)), [x], 1
    return {}, [x, low if rng.random() < 0.7 else None, high if rng.random() < 0.7 else None], 1


@onnxSetting("Where")
def where(rng, opset):
    sizes, dtype = shape(rng), rng.choice(["float32", "int64", "uint8"])
    a, b = (values(rng, partner(rng, sizes), dtype) for _ in "ab")
    return {}, [values(rng, sizes, "bool"), a, b], 1


@onnxSetting("Cast")
def cast(rng, opset):
    import onnx

    kinds = [*FLOATS, "int32", "int64", "uint8", "bool"]
    to = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(rng.choice(kinds)))
    return {"to": to}, [values(rng, shape(rng), rng.choice(kinds), 0, 4)], 1


@onnxSetting("Softmax", "LogSoftmax", "Hardmax")
def softmax(rng, opset):
    sizes = shape(rng, 1, empty=False)
    return optional(rng, axis=axisOf(rng, len(sizes))), [values(rng, sizes)], 1


@onnxSetting(*(f"Reduce{kind}" for kind in REDUCED))
def reduction(rng, opset, name="ReduceSum"):
    sizes = shape(rng, empty=name != "ReduceMean")  # of nothing it is not defined
    dtype = rng.choice(FLOATS[:2] if "Log" in name else NUMBERS)  # logarithms of integers are rounded as one likes
    x = values(rng, sizes, dtype, 1 if "Log" in name else -4)
    attributes = optional(rng, keepdims=int(rng.integers(2)))
    axes = axesOf(rng, len(sizes)) if rng.random() < 0.8 else None
    if opset >= (13 if name == "ReduceSum" else 18):
        attributes.update(optional(rng, noop_with_empty_axes=int(rng.integers(2))))
        return attributes, [x] if axes is None else [x, whole(*axes)], 1
    return attributes | ({"axes": axes} if axes else {}), [x], 1


@onnxSetting("ArgMax", "ArgMin")
def argExtreme(rng, opset):
    sizes = shape(rng, 1, empty=False)
    attributes = optional(rng, axis=axisOf(rng, len(sizes)), keepdims=int(rng.integers(2)))
    attributes |= optional(rng, select_last_index=1) if opset >= 12 else {}
    return attributes, [values(rng, sizes, rng.choice(["float32", "int32"]), -1, 1)], 1


@onnxSetting("CumSum", "CumProd")
def cumulative(rng, opset):
    sizes = shape(rng, 1)
    axis = np.array(axisOf(rng, len(sizes)), rng.choice(["int32", "int64"]))
    return optional(rng, exclusive=1, reverse=1), [values(rng, sizes, rng.choice(NUMBERS)), axis], 1


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


@onnxSetting("MatMul")
def matMul(rng, opset):
    i, j, k = (int(n) for n in rng.integers(0 if rng.random() < 0.1 else 1, 5, 3))
    lead = shape(rng, 0, 2, False)
    a, b = (i, j) if rng.random() < 0.7 else (j,), (j, k) if rng.random() < 0.7 else (j,)
    a = (*lead, *a) if len(a) == 2 else a
    b = (*partner(rng, lead), *b) if len(b) == 2 else b
    dtype = rng.choice(FLOATS[:2])
    return {}, [values(rng, a, dtype), values(rng, b, dtype)], 1


@onnxSetting("Gemm")
def gemm(rng, opset):
    i, j, k = (int(n) for n in rng.integers(1, 5, 3))
    attributes = optional(rng, alpha=0.5, beta=2.0, transA=1, transB=1)
    a, b = (j, i) if "transA" in attributes else (i, j), (k, j) if "transB" in attributes else (j, k)
    given = [values(rng, a), values(rng, b)]
    return attributes, [*given, values(rng, partner(rng, (i, k)))] if opset < 11 or rng.random() < 0.7 else given, 1


@onnxSetting("Einsum")
def einsum(rng, opset):
    equation = str(
        rng.choice(["ij,jk->ik", "bij,bjk->bik", "ij->ji", "ii->i", "i,j->ij", "...ij,...jk->...ik", "ij,ij", "ij->"])
    )
    lengths = {letter: int(rng.integers(1, 4)) for letter in "bijk"}
    left = equation.split("->")[0].replace("...", "b").split(",")
    return {"equation": equation}, [values(rng, tuple(lengths[c] for c in each)) for each in left], 1


def windows(rng, sizes, kernel):
    """Strides, pads, dilations so that every window fits."""
    rank = len(kernel)
    attributes = optional(rng, strides=[int(n) for n in rng.integers(1, 4, rank)])
    if rng.random() < 0.3:
        kinds = ["VALID", "SAME_UPPER", "SAME_LOWER"]
        kind = str(rng.choice(kinds))
        if kind != "VALID":  # onnxruntime moves windows, and cuts outputs short, where strides are longer than windows
            attributes["strides"] = [min(s, k) for s, k in zip(attributes.get("strides", kernel), kernel)]
        return attributes | {"auto_pad": kind}
    return attributes | optional(rng, pads=[int(rng.integers(0, k)) for k in kernel * 2])


@onnxSetting("Conv", "ConvTranspose")
def convolution(rng, opset, name="Conv"):
    rank, groups = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    kernel = [int(n) for n in rng.integers(1, 4, rank)]
    inmaps, outmaps = (groups * int(n) for n in rng.integers(1, 4, 2))
    sizes = (int(rng.integers(1, 3)), inmaps, *(int(n) for n in rng.integers(5, 8, rank)))
    attributes = windows(rng, sizes, kernel) | {"group": groups}
    if "auto_pad" not in attributes:
        attributes |= optional(rng, dilations=[int(n) for n in rng.integers(1, 3, rank)])
    if name == "Conv":
        W = values(rng, (outmaps, inmaps // groups, *kernel))
    else:
        W = values(rng, (inmaps, outmaps // groups, *kernel))
        strides = attributes.get("strides", [1] * rank)
        if rng.random() < 0.3 and "auto_pad" not in attributes:
            attributes["output_padding"] = [int(rng.integers(0, s)) for s in strides]
    given = [values(rng, sizes), W]
    return attributes, [*given, values(rng, (outmaps,))] if rng.random() < 0.5 else given, 1


@onnxSetting("MaxPool", "AveragePool", "LpPool")
def pool(rng, opset, name="MaxPool"):
    rank = int(rng.integers(1, 4))
    kernel = [int(n) for n in rng.integers(1, 4, rank)]
    sizes = (int(rng.integers(1, 3)), int(rng.integers(1, 3)), *(int(n) for n in rng.integers(5, 8, rank)))
    attributes = {"kernel_shape": kernel} | windows(rng, sizes, kernel)
    if opset >= (18 if name == "LpPool" else 10) and "auto_pad" not in attributes:
        attributes |= optional(rng, ceil_mode=1)
    if name == "MaxPool" and opset >= 10 and "auto_pad" not in attributes:
        attributes |= optional(rng, dilations=[int(n) for n in rng.integers(1, 3, rank)])
    if name == "AveragePool":
        attributes |= optional(rng, count_include_pad=1)
    if name == "LpPool":
        attributes |= optional(rng, p=int(rng.integers(1, 4)))
    return attributes, [values(rng, sizes)], 2 if name == "MaxPool" and opset >= 8 and rng.random() < 0.4 else 1


@onnxSetting("GlobalAveragePool", "GlobalMaxPool")
def globalPool(rng, opset):
    return {}, [values(rng, shape(rng, 3, 5, False))], 1


@onnxSetting("GlobalLpPool")
def globalLpPool(rng, opset):
    return optional(rng, p=int(rng.integers(1, 4))), [values(rng, shape(rng, 3, 5, False))], 1


@onnxSetting("BatchNormalization")
def batchNorm(rng, opset):
    sizes = shape(rng, 2, 4, False)
    c = (sizes[1],)
    given = [values(rng, sizes), values(rng, c), values(rng, c), values(rng, c), values(rng, c, low=1)]
    return optional(rng, epsilon=0.25), given, 1


@onnxSetting("InstanceNormalization")
def instanceNorm(rng, opset):
    sizes = shape(rng, 3, 4, False)
    return optional(rng, epsilon=0.25), [values(rng, sizes), values(rng, sizes[1:2]), values(rng, sizes[1:2])], 1


@onnxSetting("LayerNormalization")
def layerNorm(rng, opset):
    sizes = shape(rng, 1, 4, False)
    axis = axisOf(rng, len(sizes))
    rest = sizes[axis:]
    given = [values(rng, sizes), values(rng, rest), values(rng, rest)]
    return {"axis": axis, **optional(rng, epsilon=0.25)}, given[: int(rng.integers(2, 4))], int(rng.choice([1, 3]))


@onnxSetting("LRN")
def lrn(rng, opset):
    given = optional(rng, alpha=0.5, beta=0.5, bias=2.0)
    return {"size": int(rng.choice([1, 3, 5]))} | given, [values(rng, shape(rng, 4, 4, False))], 1


@onnxSetting("LpNormalization")
def normalizeLp(rng, opset):
    sizes = shape(rng, 1, 4, False)
    return optional(rng, axis=axisOf(rng, len(sizes)), p=int(rng.integers(1, 3))), [values(rng, sizes, low=1)], 1


@onnxSetting("Det")
def determinant(rng, opset):
    n = int(rng.integers(1, 4))
    return {}, [values(rng, (*shape(rng, 0, 2, False), n, n))], 1


@onnxSetting("Dropout")
def dropout(rng, opset):
    return {}, [values(rng, shape(rng))], 1


@onnxSetting("ConstantOfShape")
def constantOfShape(rng, opset):
    import onnx

    value = onnx.numpy_helper.from_array(values(rng, (1,), rng.choice(["float32", "int64", "bool", "float16"])))
    return optional(rng, value=value), [whole(*shape(rng))], 1


@onnxSetting("RNN", "GRU", "LSTM")
def recurrent(rng, opset, name="LSTM"):
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[name]
    t, n, i, h = (int(n) for n in rng.integers(1, 4, 4))
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    sides = 2 if direction == "bidirectional" else 1
    attributes = {"hidden_size": h, "direction": direction}
    if rng.random() < 0.3:
        plain = ["Sigmoid", "Tanh", "Relu", "HardSigmoid", "Softsign"]
        count = {"RNN": 1, "GRU": 2, "LSTM": 3}[name] * sides
        attributes["activations"] = [str(each) for each in rng.choice(plain, count)]
        used = attributes["activations"].count("HardSigmoid")
        if used:
            attributes |= {"activation_alpha": [0.25] * used, "activation_beta": [0.5] * used}
    attributes |= optional(rng, clip=0.75) if rng.random() < 0.3 else {}
    attributes |= optional(rng, linear_before_reset=1) if name == "GRU" else {}
    attributes |= optional(rng, input_forget=1) if name == "LSTM" and rng.random() < 0.3 else {}
    W, R = values(rng, (sides, gates * h, i), low=-1, high=1), values(rng, (sides, gates * h, h), low=-1, high=1)
    given = [values(rng, (t, n, i), low=-1, high=1), W, R]
    state = values(rng, (sides, n, h), low=-1, high=1)
    rest = [values(rng, (sides, 2 * gates * h), low=-1, high=1), rng.integers(1, t + 1, n).astype(np.int32), state]
    rest += [state, values(rng, (sides, 3 * h), low=-1, high=1)] if name == "LSTM" else []
    given += [x if rng.random() < 0.5 else None for x in rest]
    while given[-1] is None:
        given.pop()
    return attributes, given, 3 if name == "LSTM" else 2


@onnxSetting("QuantizeLinear", "DequantizeLinear")
def quantization(rng, opset, name="QuantizeLinear"):
    sizes, dtype = shape(rng, 1, empty=False), rng.choice(["int8", "uint8"])
    axis, isEach, block = axisOf(rng, len(sizes)), opset >= 13 and rng.random() < 0.6, int(rng.integers(1, 4))
    isBlock = isEach and opset >= 21 and rng.random() < 0.5
    blocks = list(sizes)
    blocks[axis] = -(-sizes[axis] // block)
    one = tuple(blocks) if isBlock else (sizes[axis],) if isEach else ()
    scale, zero = values(rng, one, low=1), values(rng, one, dtype, -9, 9)
    attributes = {"axis": axis} if isEach else {}
    attributes |= {"block_size": block} if isBlock else {}
    x = values(rng, sizes, low=-150, high=150) if name == "QuantizeLinear" else values(rng, sizes, dtype, -128, 127)
    return attributes, [x, scale, zero if rng.random() < 0.7 or dtype == "int8" else None], 1


@onnxSetting("DynamicQuantizeLinear")
def dynamicQuantization(rng, opset):
    return {}, [values(rng, shape(rng, 1, empty=False), low=-9, high=9)], 3


# where a processor has no VNNI, onnxruntime adds two products of 8 bits in 16, and cuts off what is more
WITHIN = {"int8": (-64, 63), "uint8": (-128, 127)}


@onnxSetting("MatMulInteger", "QLinearMatMul")
def integerProduct(rng, opset, name="MatMulInteger"):
    i, j, k = (int(n) for n in rng.integers(1, 5, 3))
    a, b = (
        values(rng, (*shape(rng, 0, 1, False), i, j), "uint8", 0, 255),
        values(rng, (j, k), kind := str(rng.choice(["int8", "uint8"])), *WITHIN[kind]),
    )
    aZero, bZero = values(rng, (), "uint8", 0, 255), values(rng, (k,) if rng.random() < 0.5 else (), b.dtype, -128, 127)
    if name == "MatMulInteger":
        return {}, [a, b, aZero, bZero][: int(rng.choice([2, 4]))], 1
    scales = [values(rng, one, low=1) / np.float32(50) for one in ((), bZero.shape, ())]
    return {}, [a, scales[0], aZero, b, scales[1], bZero, scales[2], values(rng, (), "uint8", 0, 255)], 1


@onnxSetting("ConvInteger", "QLinearConv")
def integerConvolution(rng, opset, name="ConvInteger"):
    attributes, (x, W, *rest), _ = convolution(rng, opset, "Conv")
    x, W = (
        values(rng, x.shape, "uint8", 0, 255),
        values(rng, W.shape, kind := "int8" if name == "QLinearConv" else "uint8", *WITHIN[kind]),
    )
    xZero, wZero = (
        values(rng, (), "uint8", 0, 255),
        np.zeros((), W.dtype) if name == "QLinearConv" else values(rng, (), W.dtype),
    )
    if name == "ConvInteger":
        return attributes, [x, W, xZero, wZero][: int(rng.choice([2, 4]))], 1
    each = W.shape[:1] if rng.random() < 0.5 else ()
    given = [x, np.float32(0.02), xZero, W, values(rng, each, low=1) / np.float32(50), np.zeros(each, W.dtype)]
    given += [np.float32(2), values(rng, (), "uint8", 0, 255)]
    return attributes, [*given, *[values(rng, b.shape, "int32", -99, 99) for b in rest]], 1


@onnxSetting("Resize")
def resizing(rng, opset):
    mode = str(rng.choice(["nearest", "linear", "cubic"][: 2 if opset == 10 else 3]))
    rank = 4 if mode == "cubic" or rng.random() < 0.5 else 2
    spatial = [rank - 2, rank - 1]
    x = values(rng, [*shape(rng, rank - 2, rank - 2, False), *map(int, rng.integers(2, 7, 2))], "float32", -4, 4)
    scales = np.ones(rank, np.float32)
    scales[spatial] = rng.choice([0.5, 1, 1.5, 2, 3], 2)
    if opset == 10:
        return {"mode": mode}, [x, scales], 1
    kinds = ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "tf_crop_and_resize"]
    kinds += ["half_pixel_symmetric"] if opset >= 19 else []
    attributes = {"mode": mode, "coordinate_transformation_mode": str(rng.choice(kinds))}
    if mode == "nearest":
        attributes["nearest_mode"] = str(rng.choice(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]))
    if mode == "cubic":
        attributes |= optional(rng, cubic_coeff_a=-0.5) | optional(rng, exclude_outside=1)
    isCrop = attributes["coordinate_transformation_mode"] == "tf_crop_and_resize"
    axes = spatial if opset >= 18 and rng.random() < 0.5 else range(rank)
    attributes |= {"axes": axes} if axes is spatial else {}
    region = [[0.0] * rank, [1.0] * rank]
    region[0][-1], region[1][-1], region[1][-2] = 0.25, 0.75, 1.25
    region = np.array(region, np.float32)[:, list(axes)].ravel() if isCrop else None
    attributes |= optional(rng, extrapolation_value=3.0) if isCrop else {}
    isExact = isCrop or attributes["coordinate_transformation_mode"] == "align_corners"
    if isExact or rng.random() < 0.5:
        sizes = np.array([*x.shape[:-2], *rng.integers(1, 9, 2)])[list(axes)]
        if isCrop:  # onnxruntime crops nothing off an axis that keeps its length
            sizes[-2:] = np.array(x.shape[-2:]) + rng.integers(1, 4, 2)
        elif opset >= 18 and axes is spatial and not isExact:
            attributes |= optional(rng, keep_aspect_ratio_policy=str(rng.choice(["not_larger", "not_smaller"])))
        return attributes, [x, region, None, sizes], 1
    if opset >= 18 and mode != "nearest" and attributes["coordinate_transformation_mode"] == "half_pixel":
        attributes |= optional(rng, antialias=1)
    return attributes, [x, region, scales[list(axes)]], 1


@onnxSetting("Upsample")
def upsampling(rng, opset):
    x = values(rng, [*shape(rng, 2, 2, False), *map(int, rng.integers(1, 6, 2))], "float32", -4, 4)
    mode, scales = str(rng.choice(["nearest", "linear"])), np.float32([1, 1, *rng.choice([1, 1.5, 2, 3], 2)])
    return ({"mode": mode, "scales": scales}, [x], 1) if opset < 9 else ({"mode": mode}, [x, scales], 1)


@onnxSetting("GridSample")
def gridSampling(rng, opset):
    dtype, rank = rng.choice(FLOATS[:2]), 2 if opset < 20 else int(rng.integers(2, 4))
    x = values(rng, [*shape(rng, 2, 2, False), *map(int, rng.integers(1, 6, rank))], dtype)
    modes = ["bilinear", "bicubic", "nearest"] if opset < 20 else ["linear", "cubic", "nearest"]
    mode = str(rng.choice(modes if rank == 2 else ["linear", "nearest"]))  # onnxruntime has cubic of two axes alone
    attributes = {"mode": mode} | optional(rng, align_corners=1)
    attributes |= optional(rng, padding_mode=str(rng.choice(["zeros", "border", "reflection"])))
    grid = rng.uniform(-1.6, 1.6, [len(x), *map(int, rng.integers(1, 5, rank)), rank]).astype(dtype)
    return attributes, [x, grid], 1


@onnxSetting("AffineGrid")
def affineGrids(rng, opset):
    dtype, rank, n = rng.choice(FLOATS[:2]), int(rng.integers(2, 4)), int(rng.integers(1, 4))
    theta = values(rng, (n, rank, rank + 1), dtype)
    return optional(rng, align_corners=1), [theta, whole(n, 3, *rng.integers(2, 6, rank))], 1


def setting(name, rng, opset):
    """Attributes, inputs (None for one that is left out) and the count of outputs of a use of an operator."""
    draw = READERS[name]
    takesName = "name" in draw.__code__.co_varnames[: draw.__code__.co_argcount]
    attributes, inputs, count = draw(rng, opset, name) if takesName else draw(rng, opset)
    return attributes, [None if x is None else np.asarray(x) for x in inputs], count
