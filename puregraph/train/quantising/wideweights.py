"""WideWeights: layers whose weights are stored as integers and widened to floats where they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.modules import Cast, Concat, MatMul, Mul, Reshape, Slice
from puregraph.modules.bits import BitShift, Bitwise
from puregraph.modules.gathering import Gather
from puregraph.modules.quantization import Dequantize
from puregraph.train.quantising.integerweights import ZERO4, packed

if TYPE_CHECKING:
    from puregraph.train.quantising.integergraph import IntegerGraph
    from puregraph.train.quantising.layers import Layer


def widened(graph: IntegerGraph, layer: Layer) -> Any:
    """The layer with weights that are stored as integers and multiplied as floats."""
    W = wide(graph, layer)
    x = graph.floatOf(layer.x)
    if not layer.isConvolution:
        return graph.biased(layer, graph.add(MatMul(), x, W, name="" if layer.b is None else "product"))
    return graph.add(layer.windowed(), x, W, graph.bias(layer))


def wide(graph: IntegerGraph, layer: Layer) -> Any:
    """The weights of a layer as floats: a node for each array."""
    made, key = graph.plan.weights[layer.path], (*graph.key(layer), "wide")
    if key not in graph.constants:
        y = (
            unpacked(graph, layer)
            if made.block
            else graph.add(Dequantize(made.axis), graph.integerWeights(layer), graph.scaleOf(layer), name="wide")
        )
        graph.constants[key] = y[0]
    return graph.constants[key], None


def unpacked(graph: IntegerGraph, layer: Layer) -> Any:
    """4-bit weights from pairs in bytes."""
    made, scale = graph.plan.weights[layer.path], graph.scaleOf(layer)
    pairs = graph.constant((*graph.key(layer), "pairs"), packed(made), "W")
    low = graph.add(Bitwise("and"), pairs, graph.constant("low", np.uint8(15), "mask"), name="low")
    high = graph.add(BitShift("right"), pairs, graph.constant("high", np.uint8(4), "shift"), name="high")
    y = graph.add(Concat(made.axis), low, high, name="pairs")
    size = made.integers.shape[made.axis]
    if size % 2:
        y = graph.add(Slice((slice(None),) * made.axis + (slice(size),)), y, name="terms")
    zero = graph.constant((*graph.key(layer), "zero"), np.full(made.scale.shape, ZERO4, np.uint8), "WZero")
    y = graph.add(Dequantize(made.axis, made.block), y, scale, zero, name="wide")
    return y if made.integers.shape == layer.W.shape else graph.add(Reshape(layer.W.shape), y, name="W")


def rowsOf(graph: IntegerGraph, layer: Layer) -> Any:
    """Rows of an embedding, widened once they are looked up."""
    made, x = graph.plan.weights[layer.path], graph.floatOf(layer.x)
    rows = graph.add(Gather(), graph.integerWeights(layer), x, name="rows")
    scales = graph.add(
        Gather(), graph.constant((*graph.key(layer), "rows"), made.scale[:, None], "WScale"), x, name="scales"
    )
    return graph.add(Mul(), graph.add(Cast("float32"), rows, name="cast"), scales)
