"""OnnxElements: random uses of operators of elements, and of sums along axes."""

import numpy as np
from onnxsettings import (
    FLOATS,
    NUMBERS,
    SIGNED,
    UNSIGNED,
    axesOf,
    axisOf,
    onnxSetting,
    optional,
    partner,
    shape,
    values,
    whole,
)

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
