"""OnnxLayers: random uses of products, convolutions, pools, norms and recurrent layers."""

import numpy as np
from onnxsettings import FLOATS, axisOf, onnxSetting, optional, partner, shape, values, whole


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
