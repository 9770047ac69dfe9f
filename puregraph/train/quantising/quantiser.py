"""Quantiser: the plan of a network of integers, with the error of each layer before anything is built."""

from __future__ import annotations

from copy import deepcopy
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.arguments import Count, Flag, GraphLike, Number, choice, takes
from puregraph.core.device import toHost
from puregraph.core.errors import ArgumentError, DataError
from puregraph.data.batches import Names, batchesFrom
from puregraph.train.quantising.integergraph import IntegerGraph
from puregraph.train.quantising.integerweights import BITS, IntegerWeights, byChannel, byGroup
from puregraph.train.quantising.layers import Layer, layersOf, sourcesOf, trainedScales
from puregraph.train.quantising.valuerange import ENDS, METHODS, ValueRange, rounded, scaleOf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from puregraph.graph import Graph

MODES = ("static", "dynamic", "weights")
MOST_DECIBELS = 200.0  # of an error of 0


class Quantiser:
    """Layers of `net` as integers of 8 bits (weights also of 4): `table()` shows each layer's bytes and error, and
    `graph()` makes the network. `net` itself is not changed.

    `mode`         "static": activations have scales measured on `samples`; "dynamic": each run computes them;
                   "weights": activations stay floats, weights and tables are widened where they are used
    `weights`      "int8" with a scale for each output (one for all unless `perChannel`), or "int4" with a scale for
                   `group` terms of each output, for mode="weights"
    `activations`  "uint8" or "int8", both with a zero point
    `calibration`  "minmax"; "percentile": the middle `percentile` percent of values; "entropy": least KL divergence
    `keep`         paths of layers that stay in floats, or patterns such as "block1.*"

    Samples are an array, a list or a dict of arrays for several inputs, or an iterable of batches.

    Source    Jacob and others 2018, arXiv:1712.05877; Migacz 2017, 8-bit Inference with TensorRT
    Raises    DataError for no samples and for nan or infinity in them; ArgumentError for a path that is no layer

    >>> from puregraph import Linear, Relu, Sequential
    >>> net = Sequential(Linear(8, 16, name="a"), Relu(), Linear(16, 4, name="b"))
    >>> plan = Quantiser(net, np.ones((10, 8), np.float32))
    >>> plan.bytes
    (848, 352)
    """

    @takes(
        net=GraphLike,
        mode=choice(*MODES),
        weights=choice(*BITS),
        activations=choice(*ENDS),
        calibration=choice(*METHODS),
        percentile=Number,
        perChannel=Flag,
        group=Count,
        batchsize=Count,
    )
    def __init__(
        self,
        net: Graph,
        samples: Any = None,
        mode: str = "static",
        weights: str = "int8",
        activations: str = "uint8",
        calibration: str = "minmax",
        percentile: float = 99.99,
        perChannel: bool = True,
        group: int = 32,
        keep: Any = (),
        batchsize: int = 32,
    ):
        if weights == "int4" and mode != "weights":
            raise ArgumentError(f'quantise: weights="int4" are for mode="weights", got mode={mode!r}')
        if not 50 < percentile <= 100:
            raise ArgumentError(f"quantise: wanted a percentile above 50, at most 100, got {percentile}")
        if samples is None and mode == "static":
            raise DataError('quantise: mode="static" measures activations: give samples, or another mode')
        self.mode, self.activations = mode, activations
        self.calibration, self.percentile = calibration, percentile
        net = deepcopy(net).evalMode()
        trained = trainedScales(net)
        self.net = net.bake()
        self.steps = net.steps()
        self.sources = sourcesOf(self.steps)
        self.layers = layersOf(self.steps, self.sources, trained, mode)
        self.keep(keep)
        self.weights = {layer.path: self.weightsOf(layer, weights, group, perChannel) for layer in self.quantised}
        self.scales: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.decibels: dict[str, float] = {}
        if samples is not None:
            self.measure([batch.data for batch in self.batches(samples, batchsize)])

    @property
    def quantised(self) -> list[Layer]:
        """The layers that become integers."""
        return [layer for layer in self.layers if not layer.reason]

    def keep(self, paths: Any) -> None:
        """Leave the layers of these paths or patterns in floats."""
        for pattern in [paths] if isinstance(paths, str) else list(paths):
            kept = [layer for layer in self.layers if fnmatchcase(layer.path, pattern)]
            if not kept:
                layers = ", ".join(layer.path for layer in self.layers)
                raise ArgumentError(f"quantise: keep={pattern!r} is no layer with weights; layers: {layers:.300}")
            for layer in kept:
                layer.reason = layer.reason or "kept"

    def weightsOf(self, layer: Layer, kind: str, group: int, perChannel: bool) -> IntegerWeights:
        """The integer weights of a layer."""
        W = layer.W
        if not np.isfinite(W).all():
            raise DataError(f"quantise: weights of {layer.path} are nan or infinite")
        if BITS[kind] == 8 or layer.isTable:
            return byChannel(W, layer.outAxis, 8, layer.trained, perChannel or layer.isTable)
        return byGroup(W.reshape(W.shape[0], -1), 1 - layer.outAxis, group, layer.trained, layer.outAxis)

    def batches(self, samples: Any, batchsize: int) -> Iterator[Any]:
        """Batches of samples, checked."""
        names = Names(self.net.arguments, ())
        count = 0
        for batch in batchesFrom(samples, None, batchsize, False, names).batches():
            for name, x in zip(self.net.arguments, batch.data):
                if x.dtype.kind == "f" and not np.isfinite(x).all():
                    raise DataError(f"quantise: samples of input {name!r} have nan or infinity")
            count += batch.size
            yield batch
        if not count:
            raise DataError("quantise: there are no samples")

    def measure(self, batches: list[Any]) -> None:
        """Measure ranges, then the error of each layer."""
        isStatic = self.mode == "static"
        ranges = {n: ValueRange(f"the output of {self.steps.producer[n]}") for n in self.measured} if isStatic else {}
        for counts in (False, True) if self.calibration != "minmax" and isStatic else (False,):
            for data in batches:
                values = self.steps.run(data)
                for n, seen in ranges.items():
                    x = toHost(values[n])
                    if counts:
                        seen.count(x, self.calibration)
                    else:
                        seen.observe(x)
        for n, seen in ranges.items():
            self.scales[n] = scaleOf(seen.limits(self.calibration, self.percentile), self.activations)
        powers = {layer.path: np.zeros(2) for layer in self.quantised}
        for data in batches:
            values = self.steps.run(data)
            for layer in self.quantised:
                powers[layer.path] += self.powersOf(layer, toHost(values[layer.x]))
        self.decibels = {path: decibelsOf(*pair) for path, pair in powers.items()}

    @property
    def measured(self) -> list[int]:
        """The activations that have a scale: inputs and outputs of layers."""
        return list(dict.fromkeys(n for layer in self.quantised for n in (layer.x, layer.end) if not layer.isTable))

    def powersOf(self, layer: Layer, x: Any) -> np.ndarray:
        """Sums of squares of a layer's output, and of what integer inputs and weights change of it."""
        y = layer.applied(x, layer.W).astype(np.float64)
        if layer.x in self.scales:
            x = rounded(x, *self.scales[layer.x])
        elif self.mode == "dynamic" and x.size:
            x = rounded(x, *scaleOf((min(0.0, float(x.min())), max(0.0, float(x.max()))), "uint8"))
        error = layer.applied(x, self.weights[layer.path].floats.reshape(layer.W.shape)) - y
        return np.array([np.sum(y * y), np.sum(error * error)])

    @property
    def bytes(self) -> tuple[int, int]:
        """Bytes of all layers before and after."""
        return sum(layer.floatBytes for layer in self.layers if hasattr(layer, "W")), sum(
            map(self.bytesOf, self.layers)
        )

    def bytesOf(self, layer: Layer) -> int:
        """Bytes of a layer's weights and bias afterwards."""
        if layer.reason:
            return getattr(layer, "floatBytes", 0)
        return self.weights[layer.path].nbytes + (0 if layer.b is None else layer.b.nbytes)

    def table(self) -> str:
        """A line for each layer: its dtype, bytes, scales, and the ratio of its output to the error in decibels, alone
        and with exact inputs. 40 dB are an error of 1 %; without samples the ratio is that of the weights."""
        width = max([len(layer.path) for layer in self.layers] + [5])
        head = f"{'layer':{width}}  {'dtype':>7} {'before':>11} {'after':>11} {'scales of W':>23} {'dB':>6}"
        lines = [head, "-" * len(head)]
        for layer in self.layers:
            before = getattr(layer, "floatBytes", 0)
            if layer.reason:
                lines.append(f"{layer.path:{width}}  {'float':>7} {before:11,} {before:11,}  {layer.reason}")
                continue
            made = self.weights[layer.path]
            scales = f"{made.scale.min():.3g} to {made.scale.max():.3g}"
            alone = decibelsOf(*(np.sum(np.square(v)) for v in (layer.W, layer.W - made.floats.reshape(layer.W.shape))))
            noise = self.decibels.get(layer.path, alone)
            kind = "int4" if made.block else "int8"
            row = f"{layer.path:{width}}  {kind:>7} {before:11,} {self.bytesOf(layer):11,} {scales:>23} {noise:6.1f}"
            lines.append(row)
        before, after = self.bytes
        lines += ["-" * len(head), f"{'total':{width}}  {'':>7} {before:11,} {after:11,}"]
        return "\n".join(lines)

    def graph(self) -> Graph:
        """The network of integers."""
        return IntegerGraph(self).graph()


def decibelsOf(signal: float, noise: float) -> float:
    """Signal to noise in decibels."""
    return min(MOST_DECIBELS, 10 * float(np.log10(signal / noise))) if signal > 0 and noise > 0 else MOST_DECIBELS


def quantise(net: Graph, samples: Any = None, **options: Any) -> Graph:
    """Make a network whose linear layers and convolutions multiply integers of 8 bits.

    The new graph is for inference; `net` is not changed. Options are those of `Quantiser`, whose `table()` shows the
    error of each layer: mode, weights, activations, calibration, percentile, perChannel, group, keep, batchsize.

    Raises    as Quantiser

    >>> from puregraph import Linear, Relu, Sequential
    >>> net = Sequential(Linear(8, 16, name="a"), Relu(), Linear(16, 4, name="b"))
    >>> x = np.linspace(-1, 1, 80, dtype=np.float32).reshape(10, 8)
    >>> small = quantise(net, x)
    >>> bool(np.abs(small(x) - net(x)).max() < 0.05)
    True
    """
    return Quantiser(net, samples, **options).graph()
