"""OnnxBlocks: random uses of operators that the standard writes out: attention, norms, gates and losses."""

import numpy as np
from onnxsettings import FLOATS, axesOf, axisOf, onnxSetting, optional, shape, values, whole


@onnxSetting("Attention")
def attention(rng, opset):
    n, heads, t, s, d, e, past = (int(k) for k in rng.integers(1, 4, 7))
    kvHeads = heads if rng.random() < 0.5 else 1
    isFlat, hasPast, isMasked = rng.random() < 0.3, rng.random() < 0.3, rng.random() < 0.5
    attributes = optional(rng, scale=0.5, softcap=2.0)
    if opset >= 25 or not hasPast:  # before that onnxruntime hides others than the standard of what is past
        attributes |= optional(rng, is_causal=1)
    sizes = [(n, heads, t, d), (n, kvHeads, s, d), (n, kvHeads, s, e)]
    if isFlat:
        sizes = [(n, length, h * width) for n, h, length, width in sizes]
        attributes |= {"q_num_heads": heads, "kv_num_heads": kvHeads}
    given = [values(rng, each, low=-2, high=2) for each in sizes]
    keys = s + past if hasPast else s
    kind = rng.choice(["float32", "bool"])
    mask = values(rng, (t, keys) if rng.random() < 0.5 else (n, heads, t, keys), kind)
    if kind == "bool":
        mask[..., 0] = True  # a query that sees no key has no answer
    given.append(mask if isMasked else None)
    given += [values(rng, (n, kvHeads, past, width)) for width in (d, e)] if hasPast else [None, None]
    while given[-1] is None:
        given.pop()
    count = int(rng.choice([1, 3])) if hasPast else 1
    return attributes, given, count


@onnxSetting("RotaryEmbedding")
def rotary(rng, opset):
    n, heads, t, half, most = (int(k) for k in rng.integers(1, 4, 5))
    isFlat, hasPositions, used = rng.random() < 0.5, rng.random() < 0.5, int(rng.integers(1, half + 1))
    attributes = optional(rng, interleaved=1) | ({"rotary_embedding_dim": 2 * used} if used < half else {})
    attributes |= {"num_heads": heads} if isFlat or used < half else {}
    x = values(rng, (n, t, heads * 2 * half) if isFlat else (n, heads, t, 2 * half))
    caches = [values(rng, (most, used) if hasPositions else (n, t, used)) for _ in "ab"]
    return attributes, [x, *caches, *([rng.integers(0, most, (n, t))] if hasPositions else [])], 1


@onnxSetting("LinearAttention")
def linearAttention(rng, opset):
    n, kvHeads, times, t, d, e = (int(k) for k in rng.integers(1, 4, 6))
    heads, rule = kvHeads * times, str(rng.choice(["linear", "gated", "delta", "gated_delta"]))
    attributes = {"q_num_heads": heads, "kv_num_heads": kvHeads, "update_rule": rule} | optional(rng, scale=0.5)
    sizes = [(n, t, heads * d), (n, t, kvHeads * d), (n, t, kvHeads * e)]
    given = [values(rng, each, low=-1, high=1) for each in sizes]
    given.append(values(rng, (n, kvHeads, d, e)) if rng.random() < 0.5 else None)
    given.append(-values(rng, (n, t, kvHeads), low=0, high=1) if "gated" in rule else None)
    given.append(values(rng, (n, t, kvHeads), low=0, high=1) if "delta" in rule else None)
    while given[-1] is None:
        given.pop()
    return attributes, given, 2


@onnxSetting("SwiGLU")
def swiglu(rng, opset):
    sizes = shape(rng)
    return optional(rng, alpha=0.5), [values(rng, sizes), values(rng, sizes)], 1


@onnxSetting("CausalConvWithState")
def causalConvolution(rng, opset):
    n, c, t, k = (int(i) for i in rng.integers(1, 5, 4))
    given = [values(rng, (n, c, t)), values(rng, (c, 1, k))]
    given += [values(rng, (c,)) if rng.random() < 0.5 else None]
    given += [values(rng, (n, c, k - 1)) if rng.random() < 0.5 else None]
    while given[-1] is None:
        given.pop()
    return optional(rng, activation=str(rng.choice(["none", "silu", "swish"]))), given, 2


@onnxSetting("CenterCropPad")
def centreCropped(rng, opset):
    sizes = shape(rng, 1, 4, False)
    axes = axesOf(rng, len(sizes)) if rng.random() < 0.6 else None
    lengths = rng.integers(1, 7, len(sizes) if axes is None else len(axes))
    return {} if axes is None else {"axes": axes}, [values(rng, sizes), whole(*lengths)], 1


@onnxSetting("RMSNormalization")
def rmsNorm(rng, opset):
    sizes = shape(rng, 1, 4, False)
    axis = axisOf(rng, len(sizes))
    return {"axis": axis, **optional(rng, epsilon=0.25)}, [values(rng, sizes), values(rng, sizes[axis:])], 1


@onnxSetting("GroupNormalization")
def groupNorm(rng, opset):
    groups, each = (int(k) for k in rng.integers(1, 4, 2))
    sizes = (int(rng.integers(1, 3)), groups * each, *shape(rng, 1, 3, False))
    c = sizes[1:2]
    return {"num_groups": groups, **optional(rng, epsilon=0.25)}, [values(rng, s) for s in (sizes, c, c)], 1


@onnxSetting("MeanVarianceNormalization")
def centred(rng, opset):
    x = values(rng, (2, *shape(rng, 3, 3, False)))
    x[0] -= 9  # of elements that are next to equal the variance is a rounding
    return optional(rng, axes=[0, 2]), [x], 1


@onnxSetting("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(rng, opset, name="SoftmaxCrossEntropyLoss"):
    n, classes = (int(k) for k in rng.integers(1, 5, 2))
    rest, dtype = shape(rng, 0, 2, False), rng.choice(FLOATS[:2])
    labels = rng.integers(0, classes, (n, *rest))
    attributes = optional(rng, reduction=str(rng.choice(["none", "sum", "mean"])))
    if rng.random() < 0.4:
        attributes["ignore_index"] = int(rng.choice([-1, 0])) if classes > 1 else -1
        labels.flat[1:] = np.where(rng.random(labels.size - 1) < 0.3, attributes["ignore_index"], labels.flat[1:])
        labels.flat[0] = classes - 1
    given = [values(rng, (n, classes, *rest), dtype), labels]
    given += [values(rng, (classes,), dtype, 1)] if rng.random() < 0.5 else []
    return attributes, given, 2 if name[0] == "S" and rng.random() < 0.5 else 1
