"""OnnxTorch: operators of ONNX said in PyTorch, each from the standard's text, so that gradients can be compared.

A function is given the operator's attributes, its opset, its inputs (None for one that is left out; whole numbers as
numpy arrays, floats as float64 tensors) and the shape of the output; it gives the first output.
"""

import numpy as np
import torch
import torch.nn.functional as F

TORCH = {}  # for each operator: its function


def saidBy(*names):
    """Register the function below it for operators."""

    def register(function):
        TORCH.update(dict.fromkeys(names, function))
        return function

    return register


def plain(function):
    """For a function of tensors alone."""
    return lambda a, opset, shape, *xs: function(*xs)


for _name in """Abs Acos Acosh Add Asin Asinh Atan Atanh Ceil Cos Cosh Det Div Erf Exp Floor Log MatMul Mul Neg Pow
Reciprocal Round Sigmoid Sign Sin Sinh Sqrt Sub Tan Tanh""".split():
    TORCH[_name] = plain(getattr(torch, _name.lower()))
for _name in "HardSwish Mish Relu Softplus Softsign".split():
    TORCH[_name] = plain(getattr(F, _name.lower()))
TORCH["Where"] = plain(lambda condition, x, y: torch.where(torch.tensor(condition), x, y))
TORCH["Identity"] = plain(lambda x: x * 1)
TORCH["Sum"] = plain(lambda *xs: sum(xs[1:], xs[0] * 1))
TORCH["Mean"] = plain(lambda *xs: sum(xs[1:], xs[0]) / len(xs))
TORCH["PRelu"] = plain(lambda x, slope: torch.where(x > 0, x, x * slope))
TORCH["Einsum"] = lambda a, opset, shape, *xs: torch.einsum(a["equation"], *xs)


@saidBy("Mod")
def modulo(a, opset, shape, x, y):
    return torch.fmod(x, y) if a.get("fmod") else torch.remainder(x, y)


@saidBy("Max", "Min")
def extreme(a, opset, shape, *xs, name="Max"):
    each = torch.stack([x.expand(shape) for x in xs])
    return each.amax(0) if name == "Max" else each.amin(0)


@saidBy("Elu", "Celu", "LeakyRelu", "Selu", "HardSigmoid", "ThresholdedRelu", "Shrink")
def activation(a, opset, shape, x, name="Elu"):
    alpha = a.get("alpha")
    if name == "Elu":
        return F.elu(x, 1.0 if alpha is None else alpha)
    if name == "Celu":
        return F.celu(x, 1.0 if alpha is None else alpha)
    if name == "LeakyRelu":
        return F.leaky_relu(x, 0.01 if alpha is None else alpha)
    if name == "Selu":
        scale, gain = alpha or 1.6732631921768188, a.get("gamma", 1.0507010221481323)
        return gain * torch.where(x > 0, x, scale * (torch.exp(x.clamp(max=0)) - 1))
    if name == "HardSigmoid":
        return ((0.2 if alpha is None else alpha) * x + a.get("beta", 0.5)).clamp(0, 1)
    if name == "ThresholdedRelu":
        return F.threshold(x, 1.0 if alpha is None else alpha, 0.0)
    edge, bias = a.get("lambd", 0.5), a.get("bias", 0.0)
    return torch.where(x < -edge, x + bias, torch.where(x > edge, x - bias, x * 0))


@saidBy("Gelu")
def gelu(a, opset, shape, x):
    return F.gelu(x, approximate=a.get("approximate", "none"))


@saidBy("Swish")
def swish(a, opset, shape, x):
    return x * torch.sigmoid(a.get("alpha", 1.0) * x)


@saidBy("Clip")
def clip(a, opset, shape, x, low=None, high=None):
    low, high = (a.get("min"), a.get("max")) if opset < 11 else (low, high)
    return x * 1 if low is None and high is None else torch.clamp(x, low, high)


@saidBy("Cast")
def cast(a, opset, shape, x):
    return x.to({1: torch.float32, 10: torch.float16, 11: torch.float64}[a["to"]]) * 1


@saidBy("Softmax", "LogSoftmax")
def softmax(a, opset, shape, x, name="Softmax"):
    rule = torch.softmax if name == "Softmax" else torch.log_softmax
    if opset >= 13:
        return rule(x, a.get("axis", -1))
    first = a.get("axis", 1)
    if not -x.ndim <= first < x.ndim:
        return None  # left out, it is an axis that is not there
    first %= x.ndim
    return rule(x.reshape(int(np.prod(x.shape[:first])), -1), 1).reshape(x.shape)


REDUCTIONS = {
    "L1": lambda x, axes, keep: x.abs().sum(axes, keep),
    "L2": lambda x, axes, keep: torch.linalg.vector_norm(x, dim=axes, keepdim=keep),
    "LogSum": lambda x, axes, keep: x.sum(axes, keep).log(),
    "LogSumExp": lambda x, axes, keep: x.logsumexp(axes, keep),
    "Max": lambda x, axes, keep: x.amax(axes, keep),
    "Mean": lambda x, axes, keep: x.mean(axes, keep),
    "Min": lambda x, axes, keep: x.amin(axes, keep),
    "Sum": lambda x, axes, keep: x.sum(axes, keep),
    "SumSquare": lambda x, axes, keep: (x * x).sum(axes, keep),
}


def productOver(x, axes, keep):
    """The product over several axes, one after another from the last."""
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x * 1


REDUCTIONS["Prod"] = productOver


@saidBy(*(f"Reduce{kind}" for kind in REDUCTIONS))
def reduction(a, opset, shape, x, axes=None, name="ReduceSum"):
    axes = a.get("axes") if axes is None else axes.tolist()
    if not axes and a.get("noop_with_empty_axes"):
        return None  # what then is done to each element the standard says another way in each version
    every = tuple(axes) if axes else tuple(range(x.ndim))
    return REDUCTIONS[name[6:]](x, every, bool(a.get("keepdims", 1))) if x.ndim else None


@saidBy("CumSum", "CumProd")
def cumulative(a, opset, shape, x, axis, name="CumSum"):
    axis, rule = int(axis), torch.cumsum if name == "CumSum" else torch.cumprod
    x = x.flip(axis) if a.get("reverse") else x
    if a.get("exclusive"):
        first = torch.full_like(x.narrow(axis, 0, min(1, x.shape[axis])), float(name == "CumProd"))
        x = torch.cat([first, x.narrow(axis, 0, max(0, x.shape[axis] - 1))], axis)
    y = rule(x, axis)
    return y.flip(axis) if a.get("reverse") else y


# Elements moved ------------------------------------------------------------------------------------------------------


@saidBy("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshaped(a, opset, shape, x, *rest):
    return x.reshape(shape) * 1


@saidBy("Transpose")
def transposed(a, opset, shape, x):
    return x.permute(a.get("perm", list(range(x.ndim))[::-1])) * 1


@saidBy("Concat")
def concat(a, opset, shape, *xs):
    return torch.cat(xs, a["axis"])


@saidBy("Split")
def split(a, opset, shape, x, *rest):
    axis = a.get("axis", 0)
    return x.narrow(axis, 0, shape[axis]) * 1


@saidBy("TopK")
def topK(a, opset, shape, x, *rest):
    axis = a.get("axis", -1)
    order = np.argsort(-x.detach().numpy() if a.get("largest", 1) else x.detach().numpy(), axis, kind="stable")
    return x.gather(axis, torch.tensor(order).narrow(axis, 0, shape[axis]))


@saidBy("Expand")
def expand(a, opset, shape, x, *rest):
    return x.expand(shape) * 1


@saidBy("Tile")
def tile(a, opset, shape, x, counts):
    return x.repeat(counts.tolist())


@saidBy("Trilu")
def trilu(a, opset, shape, x, k=0):
    return torch.triu(x, int(k)) if a.get("upper", 1) else torch.tril(x, int(k))


@saidBy("Slice")
def sliced(a, opset, shape, x, *given):
    starts, ends, axes, steps = (*given, None, None)[:4] if given else (a["starts"], a["ends"], a.get("axes"), None)
    axes = range(len(starts)) if axes is None else axes
    for axis, start, end, step in zip(axes, starts, ends, [1] * len(starts) if steps is None else steps):
        n = x.shape[int(axis)]
        low, high = (0, n) if step > 0 else (-1, n - 1)
        first, last = (min(max(int(k) + n * (k < 0), low), high) for k in (start, end))
        at = torch.tensor(range(max(first, 0), last, int(step)), dtype=torch.int64)
        x = x.index_select(int(axis), at)
    return x * 1


@saidBy("Pad")
def pad(a, opset, shape, x, pads=None, value=None):
    pads = np.asarray(a["pads"] if pads is None else pads)
    at = np.arange(x.numel()).reshape(x.shape)
    wide = np.pad(at, list(zip(pads[: x.ndim], pads[x.ndim :])), a.get("mode", "constant"), **fill(a))
    value = a.get("value", 0.0) if value is None else value
    taken = x.reshape(-1)[torch.tensor(wide.clip(0))]
    return torch.where(torch.tensor(wide < 0), value, taken)


def fill(a):
    """How numpy is told that nothing is there."""
    return {"constant_values": -1} if a.get("mode", "constant") == "constant" else {}


@saidBy("DepthToSpace", "SpaceToDepth")
def blocks(a, opset, shape, x, name="DepthToSpace"):
    n, c, h, w = x.shape
    b = a["blocksize"]
    if name == "SpaceToDepth":
        return x.reshape(n, c, h // b, b, w // b, b).permute(0, 3, 5, 1, 2, 4).reshape(shape)
    if a.get("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, b)
    return x.reshape(n, b, b, c // b // b, h, w).permute(0, 3, 4, 1, 5, 2).reshape(shape)


@saidBy("Gather")
def gather(a, opset, shape, x, index):
    axis = a.get("axis", 0) % x.ndim
    flat = torch.tensor(index.astype(np.int64).reshape(-1) % x.shape[axis])
    return x.index_select(axis, flat).reshape(shape)


@saidBy("GatherElements")
def gatherElements(a, opset, shape, x, index):
    axis = a.get("axis", 0)
    return x.gather(axis, torch.tensor(index % x.shape[axis]))


@saidBy("GatherND")
def gatherPoints(a, opset, shape, x, index):
    batch = a.get("batch_dims", 0)
    lead = np.indices(index.shape[:-1])[:batch]
    key = [torch.tensor(each) for each in (*lead, *np.moveaxis(index, -1, 0))]
    return x[tuple(key)] * 1


@saidBy("ScatterElements")
def scatterElements(a, opset, shape, x, index, updates):
    axis, kind = a.get("axis", 0), a.get("reduction", "none")
    index = torch.tensor(index % x.shape[axis])
    return x.scatter(axis, index, updates) if kind == "none" else x.scatter_reduce(axis, index, updates, KINDS[kind])


KINDS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@saidBy("ScatterND")
def scatterPoints(a, opset, shape, x, index, updates):
    at = np.arange(x.numel()).reshape(x.shape)[tuple(np.moveaxis(index, -1, 0))]
    given = {"index": at.ravel(), "updates": updates.reshape(-1), "x": x.reshape(-1)}
    return scatterElements(a | {"axis": 0}, opset, shape, **given).reshape(shape)


@saidBy("Compress")
def compress(a, opset, shape, x, condition):
    kept = torch.tensor(np.flatnonzero(condition))
    return x.reshape(-1)[kept] if "axis" not in a else x.index_select(a["axis"], kept)


@saidBy("ReverseSequence")
def reverseSequence(a, opset, shape, x, lengths):
    time, batch = a["time_axis"], a["batch_axis"]
    at = np.arange(x.numel()).reshape(x.shape)
    for i, n in enumerate(lengths):
        part = np.moveaxis(at, (time, batch), (0, 1))
        part[:n, i] = part[:n, i][::-1].copy()
    return x.reshape(-1)[torch.tensor(at)]


# Products and windows ------------------------------------------------------------------------------------------------


@saidBy("Gemm")
def gemm(a, opset, shape, x, W, c=None):
    y = a.get("alpha", 1.0) * ((x.T if a.get("transA") else x) @ (W.T if a.get("transB") else W))
    return y if c is None else y + a.get("beta", 1.0) * c


def windowing(a, x, kernel, outsizes=None):
    """Strides, dilations, and what is padded before and behind each axis."""
    rank = len(kernel)
    strides, dilations = a.get("strides", [1] * rank), a.get("dilations", [1] * rank)
    pads, kind = a.get("pads", [0] * 2 * rank), a.get("auto_pad", "NOTSET")
    before, behind = list(pads[:rank]), list(pads[rank:])
    if kind.startswith("SAME"):
        spans = [d * (k - 1) + 1 for d, k in zip(dilations, kernel)]
        totals = [max(0, (-(-n // s) - 1) * s + span - n) for n, s, span in zip(x.shape[2:], strides, spans)]
        before = [t // 2 if kind == "SAME_UPPER" else t - t // 2 for t in totals]
        behind = [t - b for t, b in zip(totals, before)]
    return strides, dilations, before, behind


def padded(x, before, behind, value=0.0):
    """The spatial axes padded."""
    return F.pad(x, [n for pair in zip(before[::-1], behind[::-1]) for n in pair], value=value)


@saidBy("Conv")
def convolution(a, opset, shape, x, W, b=None):
    strides, dilations, before, behind = windowing(a, x, W.shape[2:])
    rule = [F.conv1d, F.conv2d, F.conv3d][x.ndim - 3]
    return rule(padded(x, before, behind), W, b, strides, 0, dilations, a.get("group", 1))


@saidBy("ConvTranspose")
def transposedConvolution(a, opset, shape, x, W, b=None):
    if "output_shape" in a or a.get("auto_pad", "NOTSET").startswith("SAME"):
        return None
    rank = x.ndim - 2
    rule = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][rank - 1]
    strides, dilations = a.get("strides", [1] * rank), a.get("dilations", [1] * rank)
    pads, extra = a.get("pads", [0] * 2 * rank), a.get("output_padding", [0] * rank)
    y = padded(rule(x, W, None, strides, 0, 0, a.get("group", 1), dilations), [0] * rank, extra)
    for axis in range(rank):
        y = y.narrow(axis + 2, pads[axis], y.shape[axis + 2] - pads[axis] - pads[rank + axis])
    return y if b is None else y + b.reshape(-1, *[1] * rank)


def windowsOf(x, a, shape, value):
    """What lies in each window, along a last axis, and how many of its positions are in the padded input."""
    kernel = a["kernel_shape"]
    strides, dilations, before, behind = windowing(a, x, kernel)
    rank, sizes = len(kernel), [b + n + e for b, n, e in zip(before, x.shape[2:], behind)]
    ends = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(shape[2:], strides, kernel, dilations)]
    wide = padded(x, before, [e + max(0, end - n) for e, end, n in zip(behind, ends, sizes)], value)
    key, inside = [slice(None)] * 2, torch.ones(())
    for axis in range(rank):
        at = np.arange(shape[2 + axis])[:, None] * strides[axis] + np.arange(kernel[axis]) * dilations[axis]
        form = [1] * 2 * rank
        form[axis], form[rank + axis] = at.shape
        key.append(torch.tensor(at.reshape(form)))
        inside = inside * (key[-1] < sizes[axis])
    return wide[tuple(key)].flatten(2 + rank), inside.flatten(rank).sum(-1)


@saidBy("MaxPool")
def maxPool(a, opset, shape, x):
    found, _ = windowsOf(x, a, shape, -torch.inf)
    first = torch.tensor(found.detach().numpy().argmax(-1))  # numpy's is the first of equal ones
    return found.gather(-1, first[..., None])[..., 0]


@saidBy("AveragePool")
def averagePool(a, opset, shape, x):
    found, count = windowsOf(x, a, shape, 0.0)
    if not a.get("count_include_pad"):
        count = windowsOf(torch.ones_like(x), a, shape, 0.0)[0].sum(-1)
    return found.sum(-1) / count


@saidBy("LpPool")
def lpPool(a, opset, shape, x):
    return torch.linalg.vector_norm(windowsOf(x, a, shape, 0.0)[0], a.get("p", 2), -1)


@saidBy("GlobalLpPool")
def globalLpPool(a, opset, shape, x):
    return torch.linalg.vector_norm(x, a.get("p", 2), tuple(range(2, x.ndim)), True)


@saidBy("GlobalAveragePool", "GlobalMaxPool")
def globalPool(a, opset, shape, x, name="GlobalMaxPool"):
    return x.mean(tuple(range(2, x.ndim)), True) if "Average" in name else x.amax(tuple(range(2, x.ndim)), True)


# Normalization -------------------------------------------------------------------------------------------------------


@saidBy("BatchNormalization")
def batchNorm(a, opset, shape, x, scale, bias, mean, var):
    scale, bias, mean, var = (v.reshape(-1, *[1] * (x.ndim - 2)) for v in (scale, bias, mean, var))
    return (x - mean) / torch.sqrt(var + a.get("epsilon", 1e-5)) * scale + bias


@saidBy("InstanceNormalization")
def instanceNorm(a, opset, shape, x, scale, bias):
    if x[0, 0].numel() == 1:
        return None  # one element is not normalized
    return F.group_norm(x, x.shape[1], scale, bias, a.get("epsilon", 1e-5))


@saidBy("LayerNormalization")
def layerNorm(a, opset, shape, x, scale, bias=None):
    own = x.shape[a.get("axis", -1) % x.ndim :]
    return F.layer_norm(x, own, scale, bias, a.get("epsilon", 1e-5))


@saidBy("LRN")
def localResponse(a, opset, shape, x):
    size, alpha = a["size"], a.get("alpha", 1e-4)
    return F.local_response_norm(x, size, alpha, a.get("beta", 0.75), a.get("bias", 1.0))


@saidBy("LpNormalization")
def normalizeLp(a, opset, shape, x):
    return F.normalize(x, a.get("p", 2), a.get("axis", -1), 0)


@saidBy("GridSample")
def gridSample(a, opset, shape, x, grid):
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(a.get("mode", "linear"), a.get("mode"))
    return F.grid_sample(x, grid, mode, a.get("padding_mode", "zeros"), bool(a.get("align_corners", 0)))


@saidBy("AffineGrid")
def affineGrid(a, opset, shape, theta, size):
    return F.affine_grid(theta, size.tolist(), bool(a.get("align_corners", 0)))


def said(name, attributes, opset, shape, inputs):
    """The first output of an operator; None where PyTorch has none for these attributes."""
    function = TORCH[name]
    code = getattr(function, "__code__", None)
    named = {"name": name} if "name" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] else {}
    return function(attributes, opset, tuple(shape), *inputs, **named)
