"""IntegerGraph: the nodes of a network of integers, made step by step from those of the float network."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.node import Node
from puregraph.graph.pointwise import Pointwise
from puregraph.modules import (
    Add,
    Cast,
    Constant,
    Flatten,
    Max,
    Min,
    Mul,
    Reshape,
    Squeeze,
    Transpose,
    Unsqueeze,
)
from puregraph.modules.integerlayers import IntegerConvolve, IntegerMatMul
from puregraph.modules.quantization import Dequantize, Quantize
from puregraph.modules.quantizedlayers import QuantizedConvolve, QuantizedMatMul
from puregraph.train.quantising.integerweights import along
from puregraph.train.quantising.layers import Layer
from puregraph.train.quantising.wideweights import rowsOf, widened

if TYPE_CHECKING:
    from puregraph.graph.module import Module
    from puregraph.graph.steps import GraphStep
    from puregraph.train.quantising.quantiser import Quantiser

SEPARATORS = re.compile(r"[./]+")
SHAPING = (Flatten, Reshape, Squeeze, Transpose, Unsqueeze)  # modules that move elements, integers as well as floats
LOW, HIGH = "minimum(low, 0)", "maximum(high, 0)"
SCALE = f"where({HIGH} > {LOW}, ({HIGH} - {LOW}) / 255, 1)"
ZERO = f"round(clip(0 - {LOW} / scale, 0, 255))"


class IntegerGraph:
    """A graph under construction: `floats` and `integers` are the edges that hold a value of the float network.

    An integer value is (edge, scale, zero point), all of them edges.
    """

    def __init__(self, plan: Quantiser):
        self.plan, self.steps = plan, plan.steps
        self.names: dict[str, int] = {}
        self.path = ""
        self.floats: dict[int, Any] = {}
        self.integers: dict[int, tuple[Any, Any, Any]] = {}
        self.constants: dict[Any, Node] = {}
        self.layers = {layer.path: layer for layer in plan.quantised}
        self.joined = {step.path for layer in plan.quantised for step in layer.steps[1:]}

    def graph(self) -> Graph:
        """The finished graph."""
        inputs = [self.input(n) for n in self.steps.inputs]
        self.readers = self.readersOf()
        self.outputs = {self.plan.sources[n] for n in self.steps.outputs}
        for n in self.steps.inputs:
            self.path = self.steps.names[n]
            self.round(n)
        for step in self.steps.items:
            self.path = step.path
            if step.path in self.layers:
                self.addLayer(self.layers[step.path])
            elif step.path not in self.joined:
                self.addStep(step)
        outputs = [self.floatOf(n) for n in self.steps.outputs]
        return Graph(inputs, [node if slot is None else (node, slot) for node, slot in outputs]).evalMode()

    def readersOf(self) -> dict[int, list[GraphStep]]:
        """The steps that read a value, by its source."""
        readers: dict[int, list[GraphStep]] = {}
        for step in self.steps.items:
            for n in dict.fromkeys((*step.args[: step.inputs], *step.computed)):
                readers.setdefault(self.plan.sources[n], []).append(step)
        return readers

    # Nodes ------------------------------------------------------------------------------------------------------------

    def add(self, module: Module, *edges: Any, name: str = "", handed: Any = ()) -> tuple[Node, None]:
        """A node that reads these edges, None where an input is left out."""
        node = Node(module)
        isSkipped = False
        for i, edge in enumerate(edges):
            isSkipped = isSkipped or edge is None
            if edge is not None:
                self.link(node, edge, module.arguments[i] if isSkipped else None)
        for argument, edge in handed:
            self.link(node, edge, argument)
        node.rename = self.fresh(f"{self.path}:{name}" if name else self.path)
        return node, None

    def link(self, node: Node, edge: Any, argument: str | None) -> None:
        """Add a parent."""
        parent, slot = edge
        node.addBackwards(parent if slot is None else (parent, slot), argument)

    def fresh(self, path: str) -> str:
        """An unused name without separators."""
        base = SEPARATORS.sub("_", path)
        count = self.names[base] = self.names.get(base, 0) + 1
        return base if count == 1 else self.fresh(f"{base}:{count}")

    def constant(self, key: Any, array: Any, name: str) -> tuple[Node, None]:
        """A constant, made once for each key."""
        if key not in self.constants:
            self.constants[key] = self.add(Constant(np.asarray(array)), name=name)[0]
        return self.constants[key], None

    def input(self, n: int) -> Node:
        """An input of the graph, as the float network declares it."""
        declared = next((step.module for step in self.steps.declared if n in step.args), None)
        node = Node(Input(declared and declared.shape, declared and declared.dtype))
        node.rename = self.fresh(self.steps.names[n])
        self.floats[n] = node, None
        return node

    # Values -----------------------------------------------------------------------------------------------------------

    def floatOf(self, n: int) -> Any:
        """The edge of a value as floats."""
        n = self.plan.sources[n]
        if n not in self.floats:
            edge, scale, zero = self.integers[n]
            self.floats[n] = self.add(Dequantize(), edge, scale, zero, name="floats")
        return self.floats[n]

    def integersOf(self, n: int) -> tuple[Any, Any, Any]:
        """The edges of a value as integers, with scale and zero point."""
        n = self.plan.sources[n]
        if n not in self.integers:
            x = self.floats[n]
            scale, zero = self.scaling(n) if self.plan.mode == "static" else self.ranged(x)
            dtype = self.plan.activations if self.plan.mode == "static" else "uint8"
            self.integers[n] = self.add(Quantize(dtype), x, scale, zero, name="integers"), scale, zero
        return self.integers[n]

    def scaling(self, n: int) -> tuple[Any, Any]:
        """The measured scale and zero point of a value."""
        scale, zero = self.plan.scales[n]
        return self.constant((n, "scale"), scale, "scale"), self.constant((n, "zero"), zero, "zero")

    def ranged(self, x: Any) -> tuple[Any, Any]:
        """Scale and zero point of the values of this run, as DynamicQuantizeLinear has them; 1 and 0 for zeros."""
        low, high = self.add(Min(), x, name="low"), self.add(Max(), x, name="high")
        scale = self.add(Pointwise(formula=SCALE), *self.ordered(SCALE, low=low, high=high), name="scale")
        zero = self.add(Pointwise(formula=ZERO), *self.ordered(ZERO, low=low, scale=scale), name="zero")
        return scale, self.add(Cast("uint8"), zero, name="zero")

    def ordered(self, formula: str, **edges: Any) -> list[Any]:
        """Edges in the order in which a formula names them."""
        return [edges[name] for name in dict.fromkeys(re.findall(r"low|high|scale", formula))]

    def round(self, n: int) -> None:
        """Let all readers of a float value read its integers, if a layer reads them: its floats need no memory."""
        n = self.plan.sources[n]
        isRead = any(step.path in self.layers for step in self.readers.get(n, ()))
        if self.plan.mode == "static" and isRead and n in self.plan.scales and n not in self.outputs:
            _ = self.integersOf(n)
            if len(self.readers[n]) > 1:
                del self.floats[n]

    # Steps ------------------------------------------------------------------------------------------------------------

    def addStep(self, step: GraphStep) -> None:
        """A step that stays as it is: on integers where it only moves them, else on floats."""
        numbers = list(step.args[: step.inputs])
        if step.outs[0] != self.plan.sources[step.outs[0]]:
            return
        if (
            type(step.module) in SHAPING
            and self.plan.sources[numbers[0]] in self.integers
            and self.plan.mode == "static"
        ):
            edge, scale, zero = self.integersOf(numbers[0])
            others = [self.floatOf(n) if n else None for n in numbers[1:]]
            self.integers[step.outs[0]] = self.add(deepcopy(step.module), edge, *others), scale, zero
            return
        edges = [self.floatOf(n) if n else None for n in numbers]
        node, _ = self.add(step.module, *edges, handed=[(name, self.floatOf(n)) for name, n in step.handed])
        for slot, n in enumerate(step.visible):
            self.floats[n] = node, None if len(step.visible) == 1 else slot
        for n in step.visible:
            self.round(n)

    def addLayer(self, layer: Layer) -> None:
        """A layer of integers, with what follows it."""
        if layer.isTable:
            self.floats[layer.y] = rowsOf(self, layer)
        elif self.plan.mode == "weights":
            self.floats[layer.y] = widened(self, layer)
        elif self.plan.mode == "static" and self.isRounded(layer):
            self.integers[layer.end] = self.roundedLayer(layer)
            return
        else:
            self.floats[layer.y] = self.sums(layer)
        for step in layer.steps[1:]:
            if step.outs[0] not in self.floats:
                self.path = step.path
                self.floats[step.outs[0]] = self.add(step.module, self.floats[step.args[0]])
        self.round(layer.end)

    def isRounded(self, layer: Layer) -> bool:
        """True if the output becomes integers at once: layers read it, or, of a convolution, any layer follows."""
        waiting, seen = [layer.end], set()
        while waiting:
            for step in self.readers.get(waiting.pop(), ()):
                if step.path in self.layers:
                    return layer.end not in self.outputs
                isOpen = layer.isConvolution or type(step.module) in SHAPING
                if isOpen and step.path not in seen:
                    seen.add(step.path)
                    waiting += step.visible
        return False

    def key(self, layer: Layer) -> tuple[int, ...]:
        """Identifies the arrays of a layer, which several nodes may share."""
        return tuple(layer.owners)

    def integerWeights(self, layer: Layer) -> Any:
        """The integer weights as a constant."""
        return self.constant((*self.key(layer), "W"), self.plan.weights[layer.path].integers, "W")

    def scaleOf(self, layer: Layer) -> Any:
        """The scales of the weights as a constant."""
        return self.constant((*self.key(layer), "scale"), self.plan.weights[layer.path].scale, "WScale")

    def bias(self, layer: Layer) -> Any:
        """The bias as a constant, None if there is none."""
        return None if layer.b is None else self.constant((*self.key(layer), "b"), layer.b, "b")

    def roundedLayer(self, layer: Layer) -> tuple[Any, Any, Any]:
        """The layer with integers as output."""
        x, xScale, xZero = self.integersOf(layer.x)
        W, wScale, b = self.integerWeights(layer), self.scaleOf(layer), self.bias(layer)
        scales = self.plan.weights[layer.path].scale
        wZero = self.constant((*self.key(layer), "zero"), np.zeros(scales.shape, np.int8), "WZero")
        yScale, yZero = self.scaling(layer.end)
        isRectified = layer.activation == "relu"
        if layer.isConvolution:
            module: Module = layer.windowed(QuantizedConvolve)
            module.isRectified = isRectified
        else:
            module = QuantizedMatMul(isRectified)
        return self.add(module, x, xScale, xZero, W, wScale, wZero, yScale, yZero, b), yScale, yZero

    def sums(self, layer: Layer) -> Any:
        """The layer with floats as output: integer sums, scaled."""
        x, xScale, xZero = self.integersOf(layer.x)
        W, scale = self.integerWeights(layer), self.plan.weights[layer.path].scale
        module = layer.windowed(IntegerConvolve) if layer.isConvolution else IntegerMatMul()
        y = self.add(Cast("float32"), self.add(module, x, W, xZero, name="sums"), name="cast")
        wScale = self.constant((*self.key(layer), "factor"), self.perOutput(layer, scale), "WScale")
        y = self.add(Mul(), y, self.add(Mul(), xScale, wScale, name="factor"), name="" if layer.b is None else "scaled")
        return self.biased(layer, y)

    def perOutput(self, layer: Layer, values: np.ndarray) -> np.ndarray:
        """Values for each output, to broadcast with it."""
        return along(values, 0, layer.W.ndim - 1) if layer.isConvolution else values

    def biased(self, layer: Layer, y: Any) -> Any:
        """The output with its bias."""
        if layer.b is None:
            return y
        return self.add(Add(), y, self.constant((*self.key(layer), "added"), self.perOutput(layer, layer.b), "b"))
