"""PyTorch's cases of its modules, by module_db, run through modules of puregraph with the same weights."""

import inspect
from dataclasses import dataclass, field

import numpy as np
import torch

import puregraph as pg
from puregraph.weights import readyMap

CLOSE = 1e-10  # of the largest value


@dataclass
class Twin:
    """A module here: `weights` maps its parameters to functions of torch's; `rank` is the least rank of a batch."""

    module: object
    weights: dict = field(default_factory=dict)
    rank: int = 0
    enter: object = list  # torch's inputs as those of the module
    leave: object = list  # the module's outputs as torch's
    seeds: object = list  # gradients of torch's outputs as those of the module's


def named(p):
    """A parameter as it is."""
    return lambda of: of[p]


def transposed(p):
    """A matrix, transposed."""
    return lambda of: of[p].T


# Makers: of a module of torch, and the inputs of a case ---------------------------------------------------------------

MAKERS = {}


def twins(*names):
    """Register the maker of a Twin for names in torch.nn; the first name is passed on."""

    def register(make):
        MAKERS.update(dict.fromkeys(names, make))
        return make

    return register


def scaleAndBias(m):
    """The map of scale and bias, as many as the module has."""
    both = {"scale": "weight", "bias": "bias"}
    return {ours: named(theirs) for ours, theirs in both.items() if getattr(m, theirs, None) is not None}


def layerWeights(m, turned=False):
    """The map of W and b."""
    return {"W": (transposed if turned else named)("weight"), **({} if m.bias is None else {"b": named("bias")})}


@twins("Linear")
def linear(m, *inputs):
    return Twin(pg.Linear(m.in_features, m.out_features, m.bias is not None), layerWeights(m, True))


@twins("Conv1d", "Conv2d", "Conv3d", "LazyConv1d", "LazyConv2d", "LazyConv3d")
def conv(m, *inputs):
    options = {"groups": m.groups, "useBias": m.bias is not None, "dilation": m.dilation}
    module = pg.ConvNd(m.in_channels, m.out_channels, m.kernel_size, m.stride, m.padding, **options)
    return Twin(module, layerWeights(m), 2 + len(m.kernel_size))


@twins(*(f"{lazy}ConvTranspose{rank}d" for lazy in ("", "Lazy") for rank in (1, 2, 3)))
def deconv(m, *inputs):
    options = {"postpad": m.output_padding, "groups": m.groups, "useBias": m.bias is not None, "dilation": m.dilation}
    module = pg.DeconvNd(m.in_channels, m.out_channels, m.kernel_size, m.stride, m.padding, **options)
    return Twin(module, layerWeights(m), 2 + len(m.kernel_size))


def per(value, rank):
    """A value for each axis."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank


@twins("MaxPool1d", "MaxPool2d", "MaxPool3d")
def maxPool(m, *inputs):
    rank = int(type(m).__name__[-2])
    windows = (per(v, rank) for v in (m.kernel_size, m.stride or m.kernel_size, m.padding))
    useMask = m.return_indices

    def first(made):
        return [made[0], made[1] % inputs[0][0, 0].numel()] if useMask else made

    module = pg.MaxPoolNd(*windows, dilation=per(m.dilation, rank), ceil=m.ceil_mode, useMask=useMask)
    return Twin(module, rank=rank + 2, leave=first)


@twins("AvgPool1d", "AvgPool2d", "AvgPool3d")
def avgPool(m, *inputs):
    rank = int(type(m).__name__[-2])
    windows = (per(v, rank) for v in (m.kernel_size, m.stride or m.kernel_size, m.padding))
    options = {"ceil": m.ceil_mode, "divisor": getattr(m, "divisor_override", None)}
    return Twin(pg.AvgPoolNd(*windows, m.count_include_pad, **options), rank=rank + 2)


@twins("LPPool1d", "LPPool2d", "LPPool3d")
def lpPool(m, *inputs):
    rank = int(type(m).__name__[-2])
    windows = (per(v, rank) for v in (m.kernel_size, m.stride or m.kernel_size))
    return Twin(pg.LpPoolNd(m.norm_type, *windows, ceil=m.ceil_mode), rank=rank + 2)


@twins(*(f"Adaptive{kind}Pool{rank}d" for kind in ("Avg", "Max") for rank in (1, 2, 3)))
def adaptivePool(m, *inputs):
    make = pg.AdaptiveMaxPool if isinstance(m, torch.nn.modules.pooling._AdaptiveMaxPoolNd) else pg.AdaptiveAvgPool
    return Twin(make(m.output_size), rank=2 + int(type(m).__name__[-2]))


@twins("FractionalMaxPool2d", "FractionalMaxPool3d")
def fractionalMaxPool(m, *inputs):
    options = {"outsize": m.output_size, "ratio": None if m.output_ratio is None else m.output_ratio[0]}
    x, samples = pg.Input(name="x").node(), m._random_samples.numpy()
    if samples.shape[-1] == 2:  # the width first there
        samples = np.flip(samples, -1)
    samples = samples[: 1 if inputs[0].ndim == samples.shape[-1] + 1 else len(inputs[0])]
    module = pg.FractionalMaxPool(per(m.kernel_size, samples.shape[-1]), **options)
    node = module.node(x, pg.Constant(samples.copy()).node())
    return Twin(pg.Graph(x, [node, (node, "indices")] if m.return_indices else node), rank=2 + samples.shape[-1])


@twins("Bilinear")
def bilinear(m, *inputs):
    module = pg.Bilinear(m.in1_features, m.in2_features, m.out_features, m.bias is not None)
    return Twin(module, layerWeights(m))


@twins("BatchNorm1d", "BatchNorm2d", "BatchNorm3d")
def batchNorm(m, *inputs):
    if m.running_mean is None:
        m.train()  # which takes the statistics of the batch, as it does in both modes
    module = pg.BatchNorm(m.num_features, m.eps, m.momentum, m.affine, useBias=m.bias is not None)
    return Twin(module, scaleAndBias(m))


@twins("LayerNorm")
def layerNorm(m, *inputs):
    return Twin(
        pg.LayerNorm(m.normalized_shape, m.eps, m.elementwise_affine, useBias=m.bias is not None), scaleAndBias(m)
    )


@twins("RMSNorm")
def rmsNorm(m, *inputs):
    return Twin(pg.RmsNorm(m.normalized_shape, m.eps, m.elementwise_affine), scaleAndBias(m))


@twins("GroupNorm")
def groupNorm(m, *inputs):
    return Twin(
        pg.GroupNorm(m.num_groups, m.num_channels, m.eps, m.affine, useBias=m.bias is not None), scaleAndBias(m)
    )


@twins("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d")
def instanceNorm(m, *inputs):
    module = pg.InstanceNorm(m.num_features, m.eps, m.affine, useBias=m.bias is not None)
    return Twin(module, scaleAndBias(m), 2 + int(type(m).__name__[-2]))


@twins("LocalResponseNorm")
def localResponseNorm(m, *inputs):
    size = m.size  # an even window: torch's has one more channel before, ours one more after
    return Twin(pg.LocalResponseNorm(size, m.alpha, m.beta, m.k))


def padSides(m):
    """(before, after) of each axis, the first one first."""
    sides = list(zip(m.padding[::2], m.padding[1::2]))
    return tuple(sides[::-1])


MODES = {"Reflection": "reflect", "Replication": "edge", "Circular": "wrap", "Zero": "constant", "Constant": "constant"}


@twins(*(f"{kind}Pad{rank}d" for kind in MODES for rank in (1, 2, 3)))
def pad(m, *inputs):
    return Twin(pg.Pad(padSides(m), MODES[type(m).__name__[:-5]], fillValue=getattr(m, "value", 0.0)))


@twins("Embedding")
def embedding(m, *inputs):
    return Twin(pg.Embedder(m.num_embeddings, m.embedding_dim), {"W": named("weight")})


SIMPLE = {
    "CELU": lambda m: pg.Celu(m.alpha),
    "GLU": lambda m: pg.GLU(m.dim),
    "Hardshrink": lambda m: pg.HardShrink(m.lambd),
    "LogSigmoid": lambda m: pg.LogSigmoid(),
    "Mish": lambda m: pg.Mish(),
    "ReLU": lambda m: pg.Relu(),
    "ReLU6": lambda m: pg.Relu6(),
    "SELU": lambda m: pg.Selu(),
    "Softmin": lambda m: pg.SoftMin(m.dim),
    "Softplus": lambda m: pg.SoftPlus(m.beta),
    "Softshrink": lambda m: pg.SoftShrink(m.lambd),
    "Softsign": lambda m: pg.SoftSign(),
    "Tanhshrink": lambda m: pg.TanhShrink(),
    "Threshold": lambda m: pg.Threshold(m.threshold, m.value),
    "LeakyReLU": lambda m: pg.LeakyRelu(m.negative_slope),
    "ELU": lambda m: pg.Elu(m.alpha),
    "GELU": lambda m: pg.Gelu(m.approximate == "tanh"),
    "SiLU": lambda m: pg.Swish(),
    "Hardswish": lambda m: pg.HardSwish(),
    "Hardtanh": lambda m: pg.Clip(m.min_val, m.max_val),
    "Sigmoid": lambda m: pg.Sigmoid(),
    "Tanh": lambda m: pg.Tanh(),
    "Softmax": lambda m: pg.SoftMax(m.dim),
    "LogSoftmax": lambda m: pg.LogSoftMax(m.dim),
}


@twins(*SIMPLE)
def simple(m, *inputs):
    return Twin(SIMPLE[type(m).__name__](m))


@twins("PReLU")
def pRelu(m, *inputs):
    return Twin(pg.PRelu(None if m.num_parameters == 1 else m.num_parameters), {"slope": named("weight")})


@twins("Softmax2d")
def softmax2d(m, *inputs):
    return Twin(pg.SoftMax(1), rank=4)


# Recurrent layers: one module for each layer, its states side by side -------------------------------------------------


def sideBySide(names, ends, transform):
    """The parameters of both directions, along the last axis."""
    return lambda of: np.concatenate([transform(*[of[n + end] for n in names]) for end in ends], -1)


def recurrentWeights(kind, prefix, layer, ends, useBias):
    """The map of one layer's W, U, b and d; the gradient of b, a sum of two, is that of either."""
    w, u, b, d = (f"{n}{layer}" for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    weights = {"W": sideBySide([w], ends, np.transpose), "U": sideBySide([u], ends, np.transpose)}
    if useBias:
        kept = 2 / 3 if kind == "GRU" else 1
        both = lambda a, c: a + np.where(np.arange(len(a)) < kept * len(a) - 0.5, c, 0)  # noqa: E731
        weights["b"] = sideBySide([b, d], ends, both), sideBySide([b], ends, np.asarray)
    if useBias and kind == "GRU":
        weights["d"] = sideBySide([d], ends, lambda c: c[2 * len(c) // 3 :])
    return {f"{prefix}{name}": value for name, value in weights.items()}


@twins("RNN", "GRU", "LSTM")
def recurrent(m, *inputs):
    kind, sides, states = type(m).__name__, 1 + m.bidirectional, "hc"[: 1 + isinstance(m, torch.nn.LSTM)]
    options = {"direction": "bi" if m.bidirectional else "uni", "useBias": m.bias, "starts": len(inputs) > 1}
    options |= {"mode": m.nonlinearity} if kind == "RNN" else {}
    net = pg.RecurrentLayers(kind, m.input_size, m.hidden_size, m.num_layers, states=True, **options)
    weights = {}
    for i in range(m.num_layers):
        weights |= recurrentWeights(kind, f"l{i}.", f"_l{i}", ("", "_reverse")[:sides], m.bias)
    isBatch = inputs[0].ndim == 3

    def enter(values):
        """The sequences, samples first; each layer's states, both directions side by side."""
        x, *rest = flat(values)
        x = x[None] if not isBatch else x if m.batch_first else np.swapaxes(x, 0, 1)
        wide = [s.reshape(m.num_layers, sides, -1, m.hidden_size) for s in rest]
        return [x, *(np.concatenate(list(s[i]), -1) for i in range(m.num_layers) for s in wide)]

    def leave(made):
        y, *rest = made
        y = y[0] if not isBatch else y if m.batch_first else np.swapaxes(y, 0, 1)
        stacked = [np.concatenate([np.split(s, sides, -1) for s in rest[k :: len(states)]]) for k in range(len(states))]
        return [y, *(s if isBatch else s[:, 0] for s in stacked)]

    return Twin(net, weights, enter=enter, leave=leave, seeds=enter)


@twins("RNNCell", "GRUCell", "LSTMCell")
def recurrentCell(m, *inputs):
    kind = type(m).__name__[:-4]
    options = {"mode": m.nonlinearity} if kind == "RNN" else {}
    states = ("h", "c")[: 1 + (kind == "LSTM")]
    module = getattr(pg, kind)(m.input_size, m.hidden_size, useBias=m.bias, outputs=states, **options)

    def enter(values):
        x, *rest = flat(values)
        return [x[None, None], *(s[None] for s in rest)]

    weights = recurrentWeights(kind, "", "", ("",), m.bias)
    return Twin(
        module, weights, enter=enter, leave=lambda made: [s[0] for s in made], seeds=lambda gs: [g[None] for g in gs]
    )


# Transformers: names of weights as a file of torch has them, masks inside of the graph's inputs --------------------------


def weightsByName(net, m):
    """The map of all parameters by the ready map of torch's names."""
    names = dict(m.named_parameters())
    weights = {}
    for link in readyMap("torch", net).links(net, set(names)):
        shapes = [net.params[path].shape for path in link.paths]
        for i, path in enumerate(link.paths):
            weights[path] = lambda of, link=link, shapes=shapes, i=i: link.how.toGraph(
                [of[name] for name in link.files], shapes
            )[i]
    return weights


def seen(heads, mask, padding):
    """The mask here, True where a query sees a key, of a mask and a mask of keys there, which are True where hidden."""
    ours = np.ones((1, 1, 1, 1), bool)
    if mask is not None:
        ours = ours & ~mask.numpy().reshape(-1, heads if mask.ndim == 3 else 1, *mask.shape[-2:])
    return ours if padding is None else ours & ~padding.numpy().reshape(-1, 1, 1, padding.shape[-1])


def sequences(net, m, inputs, count, isFirst, masks):
    """The Twin of a block whose first `count` inputs are sequences, followed by masks."""
    isBatch = inputs[0].ndim == 3

    def turned(x):
        return x[None] if not isBatch else x if isFirst else np.swapaxes(x, 0, 1)

    def leave(made):
        return [y[0] if not isBatch else y if isFirst else np.swapaxes(y, 0, 1) for y in made]

    def enter(values):
        return [*map(turned, values[:count]), *masks]

    return Twin(net, weightsByName(net, m), enter=enter, leave=leave, seeds=lambda gs: [turned(g) for g in gs])


@twins("MultiheadAttention")
def multiHeadAttention(m, query, key, value, padding, needsWeights, mask, *others):
    size, bias = m.embed_dim, m.in_proj_bias is not None
    net = pg.MultiHeadAttention(size, m.num_heads, cross=True, masked=True, useBias=bias, keysize=size, valuesize=size)
    return sequences(net, m, [query], 3, m.batch_first, [seen(m.num_heads, mask, padding)])


def layerOptions(layer):
    """The sizes of a layer, and its options."""
    options = {"normFirst": layer.norm_first, "useBias": layer.linear1.bias is not None, "masked": True}
    options["activation"] = layer.activation.__name__
    return (layer.self_attn.embed_dim, layer.self_attn.num_heads), options | {"inner": layer.linear1.out_features}


@twins("TransformerEncoderLayer", "TransformerEncoder")
def encoder(m, x, mask, padding, *others):
    isStack = isinstance(m, torch.nn.TransformerEncoder)
    layer = m.layers[0] if isStack else m
    sizes, options = layerOptions(layer)
    net = (
        pg.TransformerEncoder(len(m.layers), *sizes, norm=m.norm is not None, **options)
        if isStack
        else pg.TransformerEncoderLayer(*sizes, **options)
    )
    return sequences(net, m, [x], 1, layer.self_attn.batch_first, [seen(sizes[1], mask, padding)])


@twins("TransformerDecoderLayer")
def decoderLayer(m, x, memory, mask, memoryMask, padding, memoryPadding, *others):
    sizes, options = layerOptions(m)
    net = pg.TransformerDecoderLayer(*sizes, memoryMasked=True, **options)
    masks = [seen(sizes[1], mask, padding), seen(sizes[1], memoryMask, memoryPadding)]
    return sequences(net, m, [x], 2, m.self_attn.batch_first, masks)


@twins("Transformer")
def transformer(m, x, y, xMask, yMask, memoryMask, xPadding, yPadding, memoryPadding, *others):
    (size, heads), options = layerOptions(m.encoder.layers[0])
    layers = len(m.encoder.layers), len(m.decoder.layers)
    net = pg.Transformer(size, heads, *layers, causal=False, sourceMasked=True, memoryMasked=True, **options)
    pairs = ((xMask, xPadding), (yMask, yPadding), (memoryMask, memoryPadding))
    return sequences(net, m, [x], 2, m.batch_first, [seen(heads, *pair) for pair in pairs])


# Costs ----------------------------------------------------------------------------------------------------------------


def classWeights(m):
    """The weights of classes; the cases have negative ones, which are refused here."""
    return None if m.weight is None else m.weight.abs_().numpy()


@twins("CrossEntropyLoss")
def crossEntropy(m, x, target):
    options = {"smoothing": m.label_smoothing, "reduction": m.reduction, "weights": classWeights(m)}
    if target.is_floating_point():
        return Twin(pg.SoftCrossEntropy(**options), rank=max(2, x.ndim + (x.ndim < 2)))
    return Twin(pg.CrossEntropy(ignoreIndex=m.ignore_index, **options), rank=2 if x.ndim < 2 else 0)


@twins("NLLLoss")
def nll(m, x, target):
    return Twin(pg.NLL(classWeights(m), m.ignore_index, reduction=m.reduction), rank=2 if x.ndim < 2 else 0)


@twins("LinearCrossEntropyLoss")
def linearCrossEntropy(m, x, target):
    options = {"reduction": m.reduction, "smoothing": m.label_smoothing, "ignoreIndex": m.ignore_index}
    cost = pg.LinearCrossEntropy(
        x.shape[-1], m.num_classes, m.linear.bias is not None, weights=classWeights(m), **options
    )
    weights = {"W": transposed("linear.weight")} | ({"b": named("linear.bias")} if m.linear.bias is not None else {})
    return Twin(cost, weights, rank=2)


COSTS = {
    "L1Loss": lambda m: pg.Abs(),
    "MSELoss": lambda m: pg.MSE(),
    "SmoothL1Loss": lambda m: pg.SmoothL1(m.beta),
    "HuberLoss": lambda m: pg.Huber(m.delta),
    "KLDivLoss": lambda m: pg.KLDivergence(logs=m.log_target, reduction=m.reduction),
    "BCEWithLogitsLoss": lambda m: pg.BCE(),
    "PoissonNLLLoss": lambda m: pg.Poisson(m.log_input, m.full, m.eps),
    "HingeEmbeddingLoss": lambda m: pg.HingeEmbedding(m.margin),
    "CosineEmbeddingLoss": lambda m: pg.CosineEmbedding(m.margin),
    "MarginRankingLoss": lambda m: pg.MarginRanking(m.margin),
    "MultiLabelMarginLoss": lambda m: pg.MultiLabelMargin(),
    "MultiLabelSoftMarginLoss": lambda m: pg.MultiLabelSoftMargin(classWeights(m)),
    "MultiMarginLoss": lambda m: pg.MultiMargin(m.p, m.margin, classWeights(m)),
    "SoftMarginLoss": lambda m: pg.SoftMargin(),
}


@twins(*COSTS)
def cost(m, *inputs):
    made = COSTS[type(m).__name__](m)
    if m.reduction != "batchmean":
        made.reduction = m.reduction
    return Twin(made, rank=2 if isinstance(m, torch.nn.MultiLabelMarginLoss) else 0)


@twins("GaussianNLLLoss")
def gaussianNll(m, x, target, variance):
    nodes = [pg.Input(name=name).node() for name in ("x", "target", "variance")]
    cost = pg.GaussianNLL(m.full, m.eps, reduction=m.reduction)
    return Twin(pg.Graph(nodes, cost(nodes[0], pg.Expand(tuple(x.shape))(nodes[2]), nodes[1])))


@twins("BCELoss")
def bce(m, x, target):
    formula = "-target * maximum(log(x), -100) - (1 - target) * maximum(log(1 - x), -100)"
    return Twin(pg.PointwiseCost(formula=formula, reduction=m.reduction))


@twins("CTCLoss")
def ctc(m, logs, labels, lengths, sizes):
    cost = pg.CTC(m.blank, m.zero_infinity, reduction=m.reduction)
    isBatch = logs.ndim == 3

    def enter(values):
        logs, labels, lengths, sizes = values
        lengths, sizes = np.ravel(lengths), np.ravel(sizes)
        if np.ndim(labels) == 1:  # one after the other
            ends = np.cumsum(sizes)
            rows = [labels[end - size : end] for end, size in zip(ends, sizes)]
            labels = np.stack([np.pad(row, (0, sizes.max(initial=1) - len(row)), constant_values=-1) for row in rows])
        return [np.swapaxes(logs, 0, 1) if isBatch else logs[None], labels, lengths, sizes]

    leave = list if isBatch or m.reduction != "none" else lambda made: [made[0][0]]
    return Twin(
        cost, enter=enter, leave=leave, seeds=list if isBatch or m.reduction != "none" else lambda gs: [gs[0][None]]
    )


# What is left out -----------------------------------------------------------------------------------------------------

LEFT = {  # names in torch.nn: whether a case is left out, None for all of them; and why
    "MultiheadAttention": (lambda m, *x: m.bias_k is not None or m.add_zero_attn, "no key and value beside the data"),
    **dict.fromkeys(
        ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"),
        (lambda m, x: m.training and len(x) == 0, "statistics of an empty batch are refused"),
    ),
    **dict.fromkeys(
        ("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"),
        (lambda m, x: m.track_running_stats and not m.training, "no running statistics of single samples"),
    ),
    **dict.fromkeys(
        ("LPPool1d", "LPPool2d", "LPPool3d"),
        (lambda m, x: m.norm_type % 1 != 0, "of negative numbers to odd powers, not of their size"),
    ),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Softmin"), (lambda m, x: x.ndim == 0, "a number has no axis")),
    "KLDivLoss": (lambda m, x, t: x.ndim == 0, "a number has no axis of samples"),
    "BCELoss": (lambda m, x, t: m.weight is not None, "no weights of elements, only of samples"),
    "BCEWithLogitsLoss": (lambda m, x, t: m.weight is not None or m.pos_weight is not None, "no weights of elements"),
    "CrossEntropyLoss": (lambda m, x, t: not t.is_floating_point() and bool((t == m.ignore_index).all()), "a mean of no labels is 0 here, nan there"),
    "LinearCrossEntropyLoss": (lambda m, x, t: m.out_features or t.is_floating_point(), "labels of one axis"),
    "LocalResponseNorm": (lambda m, x: m.size % 2 == 0, "an even window begins one channel later, as ONNX's"),
    "Softplus": (lambda m, x: m.threshold < 0, "no threshold beyond which y is x"),
    "LSTM": (lambda m, *x: m.proj_size > 0, "no projection of the state"),
}  # fmt: skip

TRANSFORMERS = {
    "MultiheadAttention",
    "Transformer",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
}

# Running a case -------------------------------------------------------------------------------------------------------


def casesOf(info, training):
    """(module of torch, its inputs) of each case, in float64."""
    takesDtype = "dtype" in inspect.signature(info.module_cls.__init__).parameters
    for case in info.module_inputs_func(info, "cpu", torch.float64, True, training):
        a, f = case.constructor_input, case.forward_input
        m = info.module_cls(*a.args, **{**({"dtype": torch.float64} if takesDtype else {}), **a.kwargs}).double()
        inputs = [*f.args, *f.kwargs.values()]
        if info.module_cls.__name__ in TRANSFORMERS:  # whose masks are keywords
            bound = inspect.signature(m.forward).bind(*f.args, **f.kwargs)
            bound.apply_defaults()
            inputs = [False if name == "need_weights" else value for name, value in bound.arguments.items()]
        if info.module_cls.__name__.startswith("Lazy"):
            m(*inputs)
        yield m.train(training), inputs


def flat(values):
    """The values of nested tuples and lists, in order."""
    return [a for v in values for a in (flat(v) if isinstance(v, (tuple, list)) else [v])]


def nested(values, parts):
    """The parts in the structure of the values."""
    return [tuple(next(parts) for _ in v) if isinstance(v, (tuple, list)) else next(parts) for v in values]


def floating(x):
    return torch.is_tensor(x) and x.is_floating_point()


def theirs(m, inputs, rng):
    """Outputs and their seeds; gradients of inputs, None for integers, and of parameters by name."""
    made = [y for y in flat([m(*inputs)]) if y is not None]
    seeds = [torch.tensor(rng.standard_normal(tuple(y.shape))) if floating(y) else None for y in made]
    names, params = zip(*m.named_parameters()) if dict(m.named_parameters()) else ((), ())
    leaves = [x if floating(x) and x.requires_grad else None for x in flat(inputs)]
    wanted = [x for x in (*leaves, *params) if x is not None]
    rooted = [(y, s) for y, s in zip(made, seeds) if y.requires_grad]
    roots, pushed = zip(*rooted)
    grads = torch.autograd.grad(roots, wanted, pushed, allow_unused=True, materialize_grads=True)
    found = iter([g.numpy() for g in grads])
    of = [None if x is None else next(found) for x in leaves]
    return (
        [y.detach().numpy() for y in made],
        [None if s is None else s.numpy() for s in seeds],
        of,
        dict(zip(names, found)),
    )


def agree(a, b, what):
    """Raise unless two arrays are close; how far they are, relative to the largest value."""
    assert a is not None and np.shape(a) == np.shape(b), f"{what}: {np.shape(a)} here, {np.shape(b)} there"
    with np.errstate(invalid="ignore"):
        far = np.abs(np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, a - b)).max(initial=0.0)
    size = max(1.0, np.abs(b[np.isfinite(b)]).max(initial=0.0))
    assert far <= CLOSE * size, f"{what}: differs by {far:.2g} of {size:.2g}"
    return far / size


def compare(m, inputs, twin, rng):
    """Compare the values and all gradients of a module with those of torch's."""
    values, seeds, slopes, paramSlopes = theirs(m, inputs, rng)
    arrays = [x.detach().numpy() if torch.is_tensor(x) else x for x in flat(inputs)]
    if twin.rank > inputs[0].ndim:  # an axis of one sample
        twin.enter = twin.seeds = lambda xs: [x if x is None else x[None] for x in xs]
        twin.leave = lambda ys: [y[0] if np.ndim(y) else y for y in ys]
        if hasattr(twin.module, "reduction") and twin.module.reduction != "none":
            twin.seeds = list
    module = twin.module.calcMode(np.float64)
    (module.trainMode if m.training else module.evalMode)()
    of = {name: p.detach().numpy() for name, p in m.named_parameters()}
    maps = {path: w if isinstance(w, tuple) else (w, w) for path, w in twin.weights.items()}
    assert set(maps) == set(module.params), (set(maps), set(module.params))
    for path, (weight, _) in maps.items():
        module.params[path].data = np.ascontiguousarray(weight(of))
    entered = list(twin.enter(nested(inputs, iter(arrays))))
    result = module(entered) if isinstance(module, pg.Graph) and len(entered) > 1 else module(*entered)
    made = twin.leave(list(result) if isinstance(result, (tuple, list)) else [result])
    worst = [agree(a, b, f"output {i}") for i, (a, b) in enumerate(zip(made, values, strict=True))]
    back = list(twin.seeds(nested(values, iter(seeds))))
    module.backward(back if len(back) > 1 else back[0])
    grads = module.grad if isinstance(module.grad, list) else [module.grad]
    there = twin.enter(nested(inputs, iter([np.zeros_like(a) if s is None else s for a, s in zip(arrays, slopes)])))
    asked = twin.enter(nested(inputs, iter([np.full(np.shape(a), s is not None) for a, s in zip(arrays, slopes)])))
    for i, (grad, slope, isAsked) in enumerate(zip(grads, there, asked)):
        if entered[i].dtype.kind == "f" and np.all(isAsked):
            worst.append(agree(grad, slope, f"gradient of input {i}"))
    for path, (_, slope) in maps.items() if m.training else ():  # there are none in evalMode
        worst.append(agree(module.params[path].grad, slope(paramSlopes), f"gradient of {path}"))
    return max(worst)
