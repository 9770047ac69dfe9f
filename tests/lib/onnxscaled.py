"""OnnxScaled: random uses of operators of quantised values, and of pictures in other sizes."""

import numpy as np
from onnxlayers import convolution
from onnxsettings import FLOATS, axisOf, onnxSetting, optional, shape, values, whole


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
