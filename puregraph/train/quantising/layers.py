"""Layers: the layers of a network that integers can compute, with the BatchNorm and ReLU that follow them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.base.dtype import isFloating
from puregraph.modules import BatchNorm, Clip, ConvNd, Dropout, Embedder, Identity, Linear, Relu, Relu6
from puregraph.modules.convolution import Convolve
from puregraph.modules.parametrizations import FakeQuantise, outputAxis
from puregraph.modules.quantizedlayers import MOST_TERMS

if TYPE_CHECKING:
    from puregraph.graph.graph import Graph
    from puregraph.graph.steps import GraphStep, Steps


class Layer:
    """A layer with weights: the values that it reads and makes, by number, and its arrays.

    `y` is the output with BatchNorm, `end` the output with the activation as well, `steps` are the steps that the layer
    stands for, `owners` the modules whose arrays it has. `reason` says why it stays in floats, "" if it does not.
    """

    def __init__(self, step: GraphStep):
        self.step, self.path = step, step.path
        self.module: Any = step.module
        self.steps, self.owners = [step], [id(step.module)]
        self.x, self.y = step.args[0], step.outs[0]
        self.end, self.activation = self.y, ""
        self.trained: np.ndarray | None = None
        self.reason = ""
        self.isConvolution = isinstance(self.module, ConvNd)
        self.isTable = isinstance(self.module, Embedder)
        if type(self.module) is Embedder or isinstance(self.module, (Linear, ConvNd)):
            W = self.module.W.materialize()
            isTransposed = getattr(self.module, "transpose", False)
            self.W = np.ascontiguousarray(W.T) if isTransposed else np.array(W)
            b = getattr(self.module, "b", None)
            self.b = None if b is None else np.array(b.materialize())
            self.floatBytes = self.W.nbytes + (0 if self.b is None else self.b.nbytes)

    @property
    def outAxis(self) -> int:
        """The axis of W with an index for each output; of a table, for each row."""
        return 0 if self.isConvolution or self.isTable else 1

    @property
    def terms(self) -> int:
        """Products in a sum."""
        return self.W.size // max(1, self.W.shape[self.outAxis])

    def takeNorm(self, step: GraphStep) -> None:
        """Multiply a BatchNorm in evalMode into the weights: W' = W f, b' = (b - mean) f + bias, f = scale / sqrt(var +
        epsilon) for each output."""
        norm = step.module
        arrays: list[Any] = [None if p is None else p.materialize().astype(np.float64) for p in norm.ruleParams()]
        scale, bias, mean, var = arrays[:4]
        factor = (1 if scale is None else scale) / np.sqrt(var + norm.epsilon)
        b = (0 if self.b is None else self.b) - mean
        self.b = (b * factor + (0 if bias is None else bias)).astype(np.float32)
        shape = (-1, *(1,) * (self.W.ndim - 1)) if self.isConvolution else (-1,)
        self.W = (self.W * factor.reshape(shape)).astype(np.float32)
        if self.trained is not None:
            self.trained = np.where(factor == 0, 1, self.trained * np.abs(factor)).astype(np.float32)
        self.y = self.end = step.outs[0]
        self.steps.append(step)
        self.owners.append(id(norm))

    def applied(self, x: Any, W: np.ndarray) -> Any:
        """The float output for these inputs and weights."""
        if self.isTable:
            return W[x] * (x >= 0)[..., None]
        if self.isConvolution:
            return self.windowed().updateData(x, W, self.b)
        y = x @ W
        return y if self.b is None else y + self.b

    def windowed(self, kind: Any = Convolve) -> Any:
        """A module of this geometry whose weights are inputs."""
        of = self.module
        return kind(of.stride, of.pad, of.dilation, of.groups)


def trainedScales(net: Graph) -> dict[str, np.ndarray]:
    """The scales and bits of FakeQuantise, by the path of the parameter; net is baked afterwards."""
    scales = {}
    for path, module in net.modules().items():
        derived = getattr(module, "W", None)
        if isinstance(derived, FakeQuantise):
            axis = outputAxis(derived.shape, derived.settings["axis"])
            V = np.abs(derived.V.materialize())
            most = V.max(axis=tuple([i for i in range(V.ndim) if i != axis]))
            levels = 2 ** (derived.settings["bits"] - 1) - 1
            if axis == (0 if V.ndim > 2 or getattr(module, "transpose", False) else 1) and levels <= 127:
                scales[path] = (np.where(most > 0, most, 1) / levels).astype(np.float32)
    return scales


def layersOf(steps: Steps, sources: dict[int, int], trained: dict[str, np.ndarray], mode: str) -> list[Layer]:
    """All layers with weights, in the order of the steps; `reason` names those that stay in floats."""
    readers: Counter[int] = Counter(n for step in steps.items for n in step.args[: step.inputs] + step.computed)
    readers.update(steps.outputs)
    only = {n: step for step in steps.items for n in step.args[: step.inputs] if readers[n] == 1}
    layers = []
    for step in steps.items:
        if not any(p.ndim > 1 for p in map(shapeOf, step.module.params.values())):
            continue
        layer = Layer(step)
        layer.x = sources[layer.x]
        layer.reason = reasonOf(layer, mode)
        layer.trained = trained.get(layer.path)
        if not layer.reason and not layer.isTable:
            follow(layer, only)
        layers.append(layer)
    return layers


def shapeOf(param: Any) -> np.ndarray:
    """A stand-in of the parameter's shape."""
    return np.broadcast_to(np.zeros(()), param.shape)


def follow(layer: Layer, only: dict[int, GraphStep]) -> None:
    """Take the BatchNorm and the activation that alone read the output."""
    step = only.get(layer.y)
    if step is not None and type(step.module) is BatchNorm and not step.computed:
        layer.takeNorm(step)
        step = only.get(layer.y)
    if step is None:
        return
    kind = type(step.module)
    isClip = kind is Relu6 or kind is Clip and step.module.updateData(np.array([-1], np.float32))[0] == 0
    if kind is Relu or isClip:
        layer.activation = "clip" if isClip else "relu"
        layer.end = step.outs[0]
        layer.steps.append(step)


def reasonOf(layer: Layer, mode: str) -> str:
    """Why a layer stays in floats; "" if it does not."""
    module: Any = layer.module
    if layer.isTable and type(module) is Embedder:
        return "" if mode == "weights" else 'tables of vectors are for mode="weights"'
    if not isinstance(module, (Linear, ConvNd)):
        return f"{module.label} has no integer form"
    if layer.step.computed:
        return "W or b is computed by another node"
    if not isFloating(layer.W.dtype) or layer.W.dtype.itemsize != 4:
        return f"weights of {layer.W.dtype}, not float32"
    if layer.isConvolution and min(map(min, layer.module.pad), default=0) < 0:
        return "negative padding"
    if not layer.W.size:
        return "no weights"
    if mode != "weights" and layer.terms > MOST_TERMS:
        return f"sums of {layer.terms} products may exceed 32 bits"
    return ""


def sourcesOf(steps: Steps) -> dict[int, int]:
    """The value that each value is equal to in evalMode: outputs of Dropout and Identity are their inputs."""
    sources = {n: n for n in range(steps.count)}
    for step in steps.items:
        if isinstance(step.module, (Dropout, Identity)) and step.inputs == 1:
            sources[step.outs[0]] = sources[step.args[0]]
    return sources
