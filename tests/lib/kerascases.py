"""Layers of Keras by name: settings, what they are here, shapes of inputs, and how the weights go over."""

from typing import NamedTuple

import numpy as np

from puregraph import block
from puregraph import modules as m
from puregraph.graph import Graph, Input, Sequential
from puregraph.graph.pointwise import Pointwise

FIRST = {"data_format": "channels_first"}


class Case(NamedTuple):
    """A setting: options of Keras' layer, the module here, shapes of inputs."""

    options: dict
    ours: object
    shapes: tuple


def sizes(rank):
    """Odd spatial sizes."""
    return (9, 7, 8)[:rank]


def kernel(w):
    """A kernel (..., in, out) as W (out, in, ...)."""
    return w.transpose(-1, -2, *range(w.ndim - 2)) if w.ndim > 2 else w


def depthwise(w):
    """A kernel (..., in, times) as W (in times, 1, ...)."""
    return np.moveaxis(w, (-2, -1), (0, 1)).reshape(-1, 1, *w.shape[:-2])


def gates(order, w):
    """Columns of gates in another order."""
    parts = np.split(w, len(order), axis=-1)
    return np.concatenate([parts[i] for i in order], axis=-1)


def gru(w, u, b):
    """Keras' z, r, h with two biases as r, z, g with one and that of g inside."""
    order, size = (1, 0, 2), u.shape[0]
    both = gates(order, b[0])
    inner = gates(order, b[1])
    both[: 2 * size] += inner[: 2 * size]
    return [gates(order, w), gates(order, u), both, inner[2 * size :]]


def flat(w):
    """Heads and their sizes as one axis: kernels (d, heads, size), biases (heads, size)."""
    return w.reshape(w.shape[0], -1) if w.ndim == 3 else w.reshape(-1)


def attention(*weights):
    """Kernels and biases of q, k, v, with heads joined, and those of the output."""
    *inner, kernelOut, biasOut = weights
    return [*map(flat, inner), kernelOut.reshape(-1, kernelOut.shape[-1]), biasOut]


COPIES = {  # lists of Keras' weights as those of params and states, in their order; without an entry as they are
    **dict.fromkeys(("Conv1D", "Conv2D", "Conv3D"), lambda w, *b: [kernel(w), *b]),
    **dict.fromkeys(("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"), lambda w, *b: [kernel(w), *b]),
    **dict.fromkeys(("DepthwiseConv1D", "DepthwiseConv2D"), lambda w, *b: [depthwise(w), *b]),
    **dict.fromkeys(("SeparableConv1D", "SeparableConv2D"), lambda d, p, b: [depthwise(d), kernel(p), b]),
    **dict.fromkeys(("GRU", "GRUCell"), gru),
    **dict.fromkeys(("MultiHeadAttention", "GroupQueryAttention"), attention),
    **dict.fromkeys(("ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"), lambda w, u, b: [kernel(w), b, kernel(u)]),
    "AdditiveAttention": lambda scale: [scale[:, None]],
    "Normalization": lambda mean, var, count: [mean, var],
    "PReLU": lambda slope: [slope.reshape(-1)],
    "Bidirectional": lambda *w: [np.concatenate(pair, axis=-1) for pair in zip(w[:3], w[3:])],
}


def windows(rank, kind):
    """Settings of pools: sizes, strides, padding."""
    make = getattr(m, f"{kind}Pool{rank}D")
    side = sizes(rank)
    yield Case({"pool_size": 2, **FIRST}, make(2), ((2, 3, *side),))
    yield Case({"pool_size": 3, "strides": 2, **FIRST}, make(3, 2), ((2, 1, *side),))
    more = {"includePad": False} if kind == "Avg" else {}
    yield Case({"pool_size": 3, "strides": 1, "padding": "same", **FIRST}, make(3, 1, "same", **more), ((1, 2, *side),))


def convolutions(rank):
    make = getattr(m, f"Conv{rank}D")
    side = sizes(rank)
    yield Case({"filters": 4, "kernel_size": 3, **FIRST}, make(3, 4, 3), ((2, 3, *side),))
    yield Case(
        {"filters": 5, "kernel_size": 2, "strides": 3, "use_bias": False, **FIRST},
        make(2, 5, 2, 3, useBias=False),
        ((2, 2, *side),),
    )
    yield Case(
        {"filters": 4, "kernel_size": 2, "dilation_rate": 2, "groups": 2, **FIRST},
        make(6, 4, 2, dilation=2, groups=2),
        ((2, 6, *side),),
    )
    yield Case(
        {"filters": 2, "kernel_size": 3, "strides": 2, "padding": "same", **FIRST},
        make(3, 2, 3, 2, "same"),
        ((1, 3, *side),),
    )


def transposed(rank):
    def make(*args, **options):
        return m.DeconvNd(*args[:2], size=(args[2],) * rank, **options)

    side = (4, 3, 5)[:rank]
    yield Case({"filters": 4, "kernel_size": 3, **FIRST}, make(3, 4, 3), ((2, 3, *side),))
    yield Case(
        {"filters": 2, "kernel_size": 3, "strides": 2, "use_bias": False, **FIRST},
        make(3, 2, 3, stride=2, useBias=False),
        ((1, 3, *side),),
    )
    yield Case(
        {"filters": 2, "kernel_size": 3, "strides": 2, "padding": "same", **FIRST},
        make(3, 2, 3, stride=2, pad="same"),
        ((2, 3, *side),),
    )


def depths(rank):
    make = getattr(m, f"Conv{rank}D")
    side = sizes(rank)
    yield Case({"kernel_size": 3, **FIRST}, make(3, 3, 3, groups=3), ((2, 3, *side),))
    yield Case(
        {"kernel_size": 2, "depth_multiplier": 2, "strides": 2, **FIRST}, make(3, 6, 2, 2, groups=3), ((2, 3, *side),)
    )


def separable(rank):
    side = sizes(rank)
    for options, depth, stride in (({}, 1, 1), ({"depth_multiplier": 2, "strides": 2}, 2, 2)):
        ours = m.SeparableConv(3, 4, (3,) * rank, stride, multiplier=depth)
        yield Case({"filters": 4, "kernel_size": 3, **options, **FIRST}, ours, ((2, 3, *side),))


def ofWhole(rank, kind):
    side = sizes(rank)
    ours = m.GlobalAvgPool() if kind == "Average" else m.GlobalMaxPool()
    yield Case(FIRST, ours, ((2, 3, *side),))
    yield Case(FIRST, ours, ((1, 1, *[1] * rank),))


def adaptive(rank, kind):
    make = m.AdaptiveAvgPool if kind == "Average" else m.AdaptiveMaxPool
    for output in (1, 3, 5):
        yield Case({"output_size": output, **FIRST}, make(output), ((2, 3, *sizes(rank)),))


def around(rank, sign):
    """Settings of padding (1) and cropping (-1)."""
    side, word = sizes(rank), "padding" if sign > 0 else "cropping"
    first = FIRST if rank > 1 else {}

    def both(pads):
        """Keras' 1D layers have channels last."""
        inner = [(0, 0), (0, 0), *pads] if rank > 1 else [(0, 0), *pads, (0, 0)]
        return m.Pad([(sign * a, sign * b) for a, b in inner][1:])

    for pads in ([(1, 1)] * rank, [(2, 0), (1, 3), (0, 2)][:rank]):
        shape = (2, 3, *side) if rank > 1 else (2, *side, 3)
        yield Case({word: pads[0] if rank == 1 else tuple(pads), **first}, both(pads), (shape,))


def merged(make, counts=(2, 3)):
    for count in counts:
        yield Case({}, make(count), ((2, 3, 4),) * count)
        yield Case({}, make(count), ((5,),) * count)


def elementwise(ours):
    for shape in ((3,), (2, 5), (2, 3, 4, 2)):
        yield Case({}, ours, (shape,))


def recurrent(make, **options):
    for insize, hsize, outputs in ((3, 4, "y"), (2, 5, "h"), (1, 1, "y")):
        given = {"units": hsize, "return_sequences": outputs == "y", **options}
        yield Case(given, make(insize, hsize, outputs=outputs), ((2, 6, insize),))


def convRecurrent(rank):
    side = sizes(rank)
    for size, outputs in ((3, "y"), (2, "h")):
        given = {"filters": 4, "kernel_size": size, "return_sequences": outputs == "y", **FIRST}
        yield Case(
            {**given, "padding": "same"} if size == 3 else given, convLstm(size, rank, outputs), ((2, 3, 2, *side),)
        )


def convLstm(size, rank, outputs):
    return block.ConvLSTM(2, 4, (size,) * rank, pad="same" if size == 3 else 0, outputs=outputs)


def lastFirst(ours):
    """A module of images whose channels come last."""
    return Sequential(m.Transpose((0, 3, 1, 2)), ours, m.Transpose((0, 2, 3, 1)))


def ofOneHead(attention):
    """Attention without an axis of heads."""
    nodes = [Input(name=name).node() for name in "qkv"]
    return Graph(nodes, m.Squeeze((1,))(attention.node(*[m.Unsqueeze((1,))(node) for node in nodes])))


CASES: dict = {
    **{
        f"{kind}Pooling{rank}D": [*windows(rank, kind.replace("Average", "Avg"))]
        for kind in ("Average", "Max")
        for rank in (1, 2, 3)
    },
    **{f"Conv{rank}D": [*convolutions(rank)] for rank in (1, 2, 3)},
    **{f"Conv{rank}DTranspose": [*transposed(rank)] for rank in (1, 2, 3)},
    **{f"DepthwiseConv{rank}D": [*depths(rank)] for rank in (1, 2)},
    **{f"SeparableConv{rank}D": [*separable(rank)] for rank in (1, 2)},
    **{f"Global{kind}Pooling{rank}D": [*ofWhole(rank, kind)] for kind in ("Average", "Max") for rank in (1, 2, 3)},
    **{f"Adaptive{kind}Pooling{rank}D": [*adaptive(rank, kind)] for kind in ("Average", "Max") for rank in (1, 2, 3)},
    **{f"ZeroPadding{rank}D": [*around(rank, 1)] for rank in (1, 2, 3)},
    **{f"Cropping{rank}D": [*around(rank, -1)] for rank in (1, 2, 3)},
    **{f"ConvLSTM{rank}D": [*convRecurrent(rank)] for rank in (1, 2, 3)},
    **{n: [*merged(lambda _, f=f: f())] for n, f in {"Add": m.Add, "Multiply": m.Mul}.items()},
    "Subtract": [*merged(lambda _: m.Sub(), (2,))],
    **{name: [*merged(getattr(m, name))] for name in ("Average", "Maximum", "Minimum")},
    "Concatenate": [
        Case({}, m.Concat(-1), ((2, 3), (2, 4))),
        Case({"axis": 1}, m.Concat(1), ((2, 3, 5), (2, 1, 5))),
    ],
    "Dot": [
        Case({"axes": 1}, Sequential(m.Einsum("ni,ni->n"), m.Unsqueeze((1,))), ((3, 4), (3, 4))),
        Case({"axes": (2, 1)}, m.Einsum("nij,njk->nik"), ((3, 2, 4), (3, 4, 5))),
    ],
    "Dense": [
        Case({"units": 4}, m.Linear(3, 4), ((5, 3),)),
        Case({"units": 2, "use_bias": False}, m.Linear(3, 2, useBias=False), ((2, 7, 3),)),
        Case({"units": 1}, m.Linear(1, 1), ((1, 1),)),
    ],
    "EinsumDense": [
        Case({"equation": "abc,cd->abd", "output_shape": (None, 4)}, m.Linear(3, 4, useBias=False), ((2, 5, 3),)),
    ],
    "Embedding": [Case({"input_dim": 7, "output_dim": 3}, m.Embedder(7, 3), (s,)) for s in ((4,), (2, 5))],
    "ReversibleEmbedding": [Case({"input_dim": 7, "output_dim": 3}, m.Embedder(7, 3), ((2, 5),))],
    "CategoryEncoding": [Case({"num_tokens": 5, "output_mode": "one_hot"}, m.OneHot(5, "float64"), ((6,),))],
    "BatchNormalization": [
        Case({"axis": 1, "epsilon": 1e-5}, m.BatchNorm(3), (shape,)) for shape in ((4, 3), (2, 3, 5), (2, 3, 4, 2))
    ],
    "LayerNormalization": [Case({"epsilon": 1e-5}, m.LayerNorm(4), (s,)) for s in ((3, 4), (2, 3, 4))],
    "RMSNormalization": [Case({"epsilon": 1e-5}, m.RmsNorm(4), (s,)) for s in ((3, 4), (2, 3, 4))],
    "GroupNormalization": [
        Case({"groups": k, "axis": 1, "epsilon": 1e-5}, m.GroupNorm(k, 6), ((2, 6, *s),))
        for k, s in ((2, (5,)), (3, (4, 2)))
    ],
    "UnitNormalization": [
        Case({}, m.LpNormalize(), ((3, 4),)),
        Case({"axis": 1}, m.LpNormalize(axis=1), ((2, 3, 4),)),
    ],
    "Normalization": [Case({"axis": 1}, m.BatchNorm(3, affine=False, epsilon=0), ((4, 3),))],
    "LSTM": [*recurrent(m.LSTM)],
    "GRU": [*recurrent(m.GRU)],
    "SimpleRNN": [*recurrent(m.RNN)],
    "LSTMCell": [Case({"units": 4}, block.LSTMCell(3, 4), ((2, 3), (2, 4), (2, 4)))],
    "GRUCell": [Case({"units": 4}, block.GRUCell(3, 4), ((2, 3), (2, 4)))],
    "SimpleRNNCell": [Case({"units": 4}, block.RNNCell(3, 4), ((2, 3), (2, 4)))],
    "Bidirectional": [
        Case({"layer": ("LSTM", {"units": 4, "return_sequences": True})}, m.LSTM(3, 4, direction="bi"), ((2, 5, 3),))
    ],
    "TimeDistributed": [
        Case({"layer": ("Dense", {"units": 4})}, block.TimeDistributed(m.Linear(3, 4)), ((2, 5, 3),)),
        Case(
            {"layer": ("AveragePooling2D", {"pool_size": 2, **FIRST})},
            block.TimeDistributed(m.AvgPool2D()),
            ((2, 3, 2, 5, 4),),
        ),
    ],
    "Attention": [
        Case({}, ofOneHead(m.Attention(scale=1.0)), ((2, 3, 4), (2, 5, 4))),
        Case({}, ofOneHead(m.Attention(scale=1.0)), ((1, 1, 2), (1, 7, 2))),
    ],
    "AdditiveAttention": [
        Case({"use_scale": isScaled}, m.AdditiveAttention(c, isScaled), ((n, 3, c), (n, s, c)))
        for n, s, c, isScaled in ((2, 5, 4, True), (1, 2, 3, False), (3, 7, 1, True))
    ],
    "MultiHeadAttention": [
        Case(
            {"num_heads": 2, "key_dim": 3},
            block.MultiHeadAttention(8, 2, packed=False, cross=True, valuesize=8, width=3),
            ((2, 5, 8), (2, 4, 8)),
        )
    ],
    "GroupQueryAttention": [
        Case(
            {"head_dim": 2, "num_query_heads": 4, "num_key_value_heads": 2},
            block.MultiHeadAttention(8, 4, packed=False, groups=2, cross=True, valuesize=8),
            ((2, 5, 8), (2, 4, 8)),
        )
    ],
    "Activation": [
        Case({"activation": name}, ours, ((3, 5),))
        for name, ours in {
            "relu": m.Relu(),
            "sigmoid": m.Sigmoid(),
            "tanh": m.Tanh(),
            "softplus": m.SoftPlus(),
            "selu": m.Selu(),
            "silu": m.Swish(),
            "gelu": m.Gelu(),
            "mish": m.Mish(),
            "elu": m.Elu(),
            "softsign": m.SoftSign(),
            "softmax": m.SoftMax(),
            "log_softmax": m.LogSoftMax(),
            "relu6": m.Relu6(),
            "celu": m.Celu(),
            "hard_sigmoid": m.HardSigmoid(),
            "hard_silu": m.HardSwish(),
            "log_sigmoid": m.LogSigmoid(),
            "tanh_shrink": m.TanhShrink(),
            "hard_shrink": m.HardShrink(),
            "soft_shrink": m.SoftShrink(),
        }.items()
    ],
    "ReLU": [*elementwise(m.Relu())],
    "LeakyReLU": [Case({"negative_slope": a}, m.LeakyRelu(a), ((2, 5),)) for a in (0.3, 0.01)],
    "ELU": [Case({"alpha": a}, m.Elu(a), ((2, 5),)) for a in (1.0, 0.3)],
    "PReLU": [
        Case({}, m.PRelu(5), ((2, 5),)),
        Case({"shared_axes": (2, 3)}, m.PRelu(3), ((2, 3, 4, 5),)),
    ],
    "Softmax": [Case({"axis": axis}, m.SoftMax(axis), ((2, 3, 4),)) for axis in (-1, 1)],
    "Flatten": [Case({}, m.Flatten(), (s,)) for s in ((2, 3), (2, 3, 4), (1, 2, 1, 5))],
    "Reshape": [Case({"target_shape": t}, m.Reshape((0, *t)), ((2, 3, 4),)) for t in ((12,), (-1, 2), (2, 3, 2))],
    "Permute": [Case({"dims": d}, m.Transpose((0, *d)), ((2, 3, 4, 5)[: len(d) + 1],)) for d in ((2, 1), (3, 1, 2))],
    "RepeatVector": [Case({"n": n}, m.RepeatVector(n), ((2, 3),)) for n in (1, 3)],
    "Identity": [*elementwise(m.Identity())],
    "Lambda": [Case({"function": lambda x: x * x}, Pointwise(formula="x * x"), ((2, 3),))],
    "UpSampling2D": [
        Case({"size": 2, **FIRST}, m.Upsample2D(2), ((2, 3, 4, 5),)),
        Case({"size": (3, 1), **FIRST}, m.Upsample2D((3, 1)), ((1, 1, 2, 3),)),
    ],
    "UpSampling3D": [Case({"size": (2, 1, 3), **FIRST}, m.Upsample3D((2, 1, 3)), ((1, 2, 3, 2, 2),))],
    "UpSampling1D": [
        Case({"size": k}, Sequential(m.Transpose((0, 2, 1)), m.Upsample1D(k), m.Transpose((0, 2, 1))), ((2, 5, 3),))
        for k in (1, 3)
    ],
    "Resizing": [
        Case(
            {"height": h, "width": w, "interpolation": "bilinear", **FIRST},
            m.Resize((2, 3), by="sizes", factors=(h, w), mode="linear"),
            ((2, 3, 6, 4),),
        )
        for h, w in ((9, 7), (12, 8), (3, 4))
    ],
    "Rescaling": [Case({"scale": 0.3, "offset": -1.0}, m.MulAddConst(0.3, -1.0), ((2, 3),))],
    "CenterCrop": [Case({"height": 4, "width": 2, **FIRST}, m.Pad([(0, 0), (-1, -1), (-2, -2)]), ((2, 3, 6, 6),))],
    "ActivityRegularization": [Case({"l1": 0.01}, m.Penalty(0.01), ((2, 3),))],
    **{
        f"SpatialDropout{rank}D": [
            Case({"rate": 0.5} | (FIRST if rank > 1 else {}), m.Dropout2D(), ((2, 3, *sizes(rank)),))
        ]
        for rank in (1, 2, 3)
    },
    "Dropout": [Case({"rate": 0.3}, m.Dropout(0.3), (s,)) for s in ((3,), (2, 3, 4))],
    "AlphaDropout": [Case({"rate": 0.3}, m.AlphaDropout(0.3), ((2, 3),))],
    "GaussianNoise": [Case({"stddev": 0.1}, m.NoiseInjector("add", "gaussian", (0, 0.1)), ((2, 3),))],
    "GaussianDropout": [Case({"rate": 0.2}, m.NoiseInjector("mul", "gaussian", (1, 0.5)), ((2, 3),))],
    "AutoContrast": [Case({"value_range": (0, 1)}, lastFirst(m.AutoContrast()), ((2, 5, 4, 3),))],
    **{
        name: [Case({**options, **FIRST}, getattr(m, name)(), (shape,)) for shape in ((2, 3, 5, 4), (1, 3, 1, 6))]
        for name, options in {
            **dict.fromkeys(("RandomBrightness", "RandomContrast", "RandomGrayscale"), {"factor": 0.3}),
            **dict.fromkeys(("RandomRotation", "RandomSaturation", "RandomHue", "RandomSharpness"), {"factor": 0.3}),
            **dict.fromkeys(("RandomErasing", "RandomPerspective", "RandomInvert", "RandomGaussianBlur"), {}),
            **dict.fromkeys(("RandomColorDegeneration", "RandomElasticTransform"), {"factor": 0.3}),
            "RandomZoom": {"height_factor": 0.2},
            "RandomTranslation": {"height_factor": 0.2, "width_factor": 0.1},
            "RandomShear": {"x_factor": 0.2, "y_factor": 0.1},
            "RandomFlip": {},
            "RandomPosterization": {"factor": (4, 8)},
        }.items()
    },
}
LEFT = {  # names with something here that no values are compared of
    "Input": "no layer of its own: where a graph begins",
    "InputLayer": "no layer of its own: where a graph begins",
    "InputSpec": "no layer of its own: where a graph begins",
    "Layer": "a base class",
    "Pipeline": "a list of layers",
    "RNN": "runs a cell of one's own; LSTM, GRU and SimpleRNN are compared",
    "StackedRNNCells": "cells one after another; each of them is compared",
    "SpectralNormalization": "its first vector is random",
    "IntegerLookup": "numbers categories ahead of a network",
    "StringLookup": "numbers categories ahead of a network",
    "RandomCrop": "is a reader of batches here",
    "Solarization": "its threshold is random there, a number here",
    "RandomColorJitter": "is four modules here, each compared",
    "CutMix": "takes a dict of images and labels there",
    "MixUp": "takes a dict of images and labels there",
}
