"""OnnxTorchBlocks: signals, windows, attention, norms and losses of ONNX said in PyTorch, as in onnxtorch."""

import numpy as np
import torch
import torch.nn.functional as F
from onnxtorch import TORCH, saidBy

TORCH["SwiGLU"] = lambda a, opset, shape, x, y: x * torch.sigmoid(a.get("alpha", 1.0) * x) * y
TORCH["CastLike"] = lambda a, opset, shape, *xs: castLike(*xs)
TORCH["OneHot"] = lambda a, opset, shape, index, depth, ends: ends[torch.tensor(oneHot(a, index, depth))]


def castLike(x, like):
    return x.to(torch.as_tensor(like).dtype) * 1 if isinstance(x, torch.Tensor) else None


def oneHot(a, index, depth):
    """1 where the class is the position along a new axis, else 0; classes outside are nowhere."""
    depth, axis = int(np.ravel(depth)[0]), a.get("axis", -1)
    axis %= index.ndim + 1
    index = np.where(index < 0, index + depth, index)
    return np.moveaxis((index[..., None] == np.arange(depth)).astype(int), -1, axis)


@saidBy("DequantizeLinear")
def dequantized(a, opset, shape, x, scale, zero=None):
    axis, block = a.get("axis", 1), a.get("block_size", 0)

    def each(v):
        if v.ndim == 0 or v.size == 1 and v.ndim == 1 and not block and x.shape[axis] != 1:
            return v
        if v.ndim == 1 and not block:
            return v.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
        repeats = torch if isinstance(v, torch.Tensor) else np
        wide = v.repeat_interleave(block, axis) if repeats is torch else v.repeat(block, axis)
        return wide[tuple(slice(n) for n in x.shape)]

    moved = x.astype(np.float64) - (0 if zero is None else each(zero).astype(np.float64))
    return torch.tensor(moved) * each(scale)


# Signals and windows -------------------------------------------------------------------------------------------------


@saidBy("DFT")
def dft(a, opset, shape, x, length=None, axis=None):
    axis = int(a.get("axis", 1) if opset < 20 else -2 if axis is None else axis) % x.ndim
    x = torch.view_as_complex(x.contiguous()) if x.shape[-1] == 2 else x[..., 0].to(torch.complex128)
    n = x.shape[axis] if length is None else int(length)
    y = torch.fft.ifft(x, n, axis) if a.get("inverse") else torch.fft.fft(x, n, axis)
    return torch.view_as_real(y.narrow(axis, 0, n // 2 + 1) if a.get("onesided") else y)


@saidBy("STFT")
def stft(a, opset, shape, x, step, window=None, length=None):
    x = torch.view_as_complex(x.contiguous()) if x.shape[-1] == 2 else x[..., 0].to(torch.complex128)
    frames = x.unfold(1, int(length), int(step))
    y = torch.fft.fft(frames if window is None else frames * window, dim=-1)
    return torch.view_as_real(y[..., : int(length) // 2 + 1] if a.get("onesided", 1) else y)


@saidBy("Col2Im")
def windowsBack(a, opset, shape, x, lengths, size):
    (h, w), (top, left, bottom, right) = lengths.tolist(), a["pads"]
    y = F.fold(x, (h + top + bottom, w + left + right), size.tolist(), a["dilations"], 0, a["strides"])
    return y[..., top : top + h, left : left + w]


@saidBy("MaxUnpool")
def unpool(a, opset, shape, x, index, lengths=None):
    flat = torch.zeros(int(np.prod(shape)), dtype=x.dtype)
    return flat.scatter(0, torch.tensor(index.ravel()), x.reshape(-1)).reshape(shape)


@saidBy("DeformConv")
def deformed(a, opset, shape, x, W, offset, b=None, mask=None):
    """Each position of a window is read by itself, between four elements."""
    (n, c, h, w), (kh, kw), parts, groups = x.shape, W.shape[2:], a["offset_group"], a["group"]
    strides, out = a.get("strides", [1, 1]), shape[2:]
    offset = offset.reshape(n, parts, kh * kw, 2, *out)
    columns = []
    for i, (p, q) in enumerate(np.ndindex(kh, kw)):
        y = torch.arange(out[0]) * strides[0] - a["pads"][0] + p * a["dilations"][0]
        z = torch.arange(out[1]) * strides[1] - a["pads"][1] + q * a["dilations"][1]
        y, z = offset[:, :, i, 0] + y[:, None], offset[:, :, i, 1] + z
        read = between(x.reshape(n, parts, c // parts, h, w), y, z)
        weight = 1 if mask is None else mask.reshape(n, parts, kh * kw, 1, *out)[:, :, i]
        columns.append((read * weight).reshape(n, groups, c // groups, *out))
    kernel = W.reshape(groups, -1, c // groups, kh * kw)
    found = torch.einsum("ngckhw,gmck->ngmhw", torch.stack(columns, 3), kernel).reshape(shape)
    return found if b is None else found + b.reshape(-1, 1, 1)


def between(x, y, z):
    """Elements of x (n, g, c, h, w) at positions (n, g, ...) between four of them, zero outside."""
    total = 0
    for p in (y.detach().floor(), y.detach().floor() + 1):
        for q in (z.detach().floor(), z.detach().floor() + 1):
            isInside = (p >= 0) & (p < x.shape[3]) & (q >= 0) & (q < x.shape[4])
            at = (p.clamp(0, x.shape[3] - 1) * x.shape[4] + q.clamp(0, x.shape[4] - 1)).long()
            flat = x.flatten(3).gather(3, at.flatten(2)[:, :, None].expand(-1, -1, x.shape[2], -1))
            weight = (1 - (y - p).abs()) * (1 - (z - q).abs()) * isInside
            total = total + flat.reshape(*x.shape[:3], *y.shape[2:]) * weight[:, :, None]
    return total


# Attention -----------------------------------------------------------------------------------------------------------


@saidBy("Attention")
def attention(a, opset, shape, q, k, v, mask=None, pastK=None, pastV=None):
    if q.ndim == 3:
        heads = [a["q_num_heads"], a["kv_num_heads"], a["kv_num_heads"]]
        q, k, v = (x.unflatten(2, (h, -1)).transpose(1, 2) for x, h in zip((q, k, v), heads))
    k, v = k if pastK is None else torch.cat([pastK, k], 2), v if pastV is None else torch.cat([pastV, v], 2)
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * (a.get("scale") or q.shape[-1] ** -0.5)
    isHidden = torch.zeros(scores.shape, dtype=torch.bool)
    if a.get("is_causal"):
        past = 0 if pastK is None else pastK.shape[2]
        isHidden |= torch.ones(scores.shape[-2:], dtype=torch.bool).triu(past + 1)
    cap = a.get("softcap", 0)
    if mask is not None and opset < 24 and cap:
        return None  # whether the mask is added before or after the cap
    scores = cap * torch.tanh(scores / cap) if cap else scores
    if isinstance(mask, np.ndarray):
        isHidden |= ~torch.tensor(mask)
    elif mask is not None:
        scores = scores + mask
    y = torch.softmax(scores.masked_fill(isHidden, -torch.inf), -1) @ v
    return y if len(shape) == 4 else y.transpose(1, 2).flatten(2)


@saidBy("RotaryEmbedding")
def rotary(a, opset, shape, x, cos, sin, positions=None):
    isFlat = x.ndim == 3
    x = x.unflatten(2, (a["num_heads"], -1)) if isFlat else x.transpose(1, 2)
    cos, sin = (c if positions is None else c[torch.tensor(positions)] for c in (cos, sin))
    cos, sin, used = cos[:, :, None], sin[:, :, None], a.get("rotary_embedding_dim") or x.shape[-1]
    turned, rest = x[..., :used], x[..., used:]
    isMixed = a.get("interleaved", 0)
    first, second = (turned[..., ::2], turned[..., 1::2]) if isMixed else turned.chunk(2, -1)
    real, imag = cos * first - sin * second, sin * first + cos * second
    turned = torch.stack([real, imag], -1).flatten(-2) if isMixed else torch.cat([real, imag], -1)
    y = torch.cat([turned, rest], -1)
    return y.flatten(2) if isFlat else y.transpose(1, 2)


@saidBy("LinearAttention")
def linearAttention(a, opset, shape, q, k, v, past=None, decay=None, beta=None):
    heads, own = a["q_num_heads"], a["kv_num_heads"]
    q, k, v = (x.unflatten(2, (h, -1)) for x, h in ((q, heads), (k, own), (v, own)))
    state = torch.zeros(len(q), own, k.shape[-1], v.shape[-1], dtype=q.dtype) if past is None else past
    rows, scale = [], a.get("scale") or q.shape[-1] ** -0.5
    for t in range(q.shape[1]):
        state = state if decay is None else state * decay[:, t].exp()[..., None, None]
        new = v[:, t]
        if beta is not None:
            new = beta[:, t, :, None] * (new - torch.einsum("nhde,nhd->nhe", state, k[:, t]))
        state = state + k[:, t, :, :, None] * new[:, :, None]
        rows.append(scale * torch.einsum("nhde,nhd->nhe", state.repeat_interleave(heads // own, 1), q[:, t]))
    return torch.stack(rows, 1).flatten(2)


# Norms and losses ----------------------------------------------------------------------------------------------------


@saidBy("RMSNormalization")
def rmsNorm(a, opset, shape, x, scale):
    return F.rms_norm(x, x.shape[a.get("axis", -1) % x.ndim :], None, a.get("epsilon", 1e-5)) * scale


@saidBy("GroupNormalization")
def groupNorm(a, opset, shape, x, scale, bias):
    if x[0, : x.shape[1] // a["num_groups"]].numel() == 1:
        return None  # one element is not normalized
    return F.group_norm(x, a["num_groups"], scale, bias, a.get("epsilon", 1e-5))


@saidBy("MeanVarianceNormalization")
def centred(a, opset, shape, x):
    axes = a.get("axes", [0, 2, 3])
    return (x - x.mean(axes, True)) / (x.var(axes, unbiased=False, keepdim=True).sqrt() + 1e-9)


@saidBy("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(a, opset, shape, x, labels, weight=None, name="SoftmaxCrossEntropyLoss"):
    ignored, labels = a.get("ignore_index"), torch.tensor(labels)
    isSeen = torch.ones(labels.shape, dtype=torch.bool) if ignored is None else labels != ignored
    at = labels.clamp(0, x.shape[1] - 1)
    each = -(x.log_softmax(1) if name[0] == "S" else x).gather(1, at[:, None])[:, 0]
    factor = torch.ones(labels.shape, dtype=x.dtype) if weight is None else weight[at]
    each, factor, way = each * factor * isSeen, factor * isSeen, a.get("reduction", "mean")
    return each if way == "none" else each.sum() if way == "sum" else each.sum() / factor.sum()


@saidBy("Scatter")
def scatter(a, opset, shape, x, index, updates):
    return x.scatter(a.get("axis", 0), torch.tensor(index), updates)


@saidBy("TensorScatter")
def tensorScatter(a, opset, shape, x, updates, at=None):
    axis, rows = a.get("axis", -2) % x.ndim, []
    for i, (own, new) in enumerate(zip(x, updates)):
        first, n = 0 if at is None else int(at[i]), new.shape[axis - 1]
        index = (first + torch.arange(n)) % x.shape[axis]
        rows.append(own.index_copy(axis - 1, index, new))
    return torch.stack(rows)
