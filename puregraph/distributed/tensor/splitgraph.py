"""SplitGraph: one rank's share of a tensor parallel graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from puregraph.core.base.align import aligned
from puregraph.core.initial import SEED
from puregraph.core.linkednode import Edge
from puregraph.core.param import Param
from puregraph.distributed.sharding.shardedweights import ShardedWeights
from puregraph.distributed.sharding.sharding import ElementOrder, Sharding, ShardRow
from puregraph.distributed.tensor.partembedder import PartEmbedder
from puregraph.distributed.tensor.partexchange import PartJoin, PartSum, Spread, TensorGroup
from puregraph.distributed.tensor.partrules import partModule, passed
from puregraph.distributed.tensor.tensorlayout import (
    COLUMNS,
    JOINED,
    ROWS,
    TABLE,
    WITHIN,
    ParamCut,
    PartOrder,
    TensorLayout,
)
from puregraph.distributed.worlds.world import World
from puregraph.graph import Graph
from puregraph.graph.graphsegment import nodeOf
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.node import Node
from puregraph.graph.pointwise import Pointwise
from puregraph.graph.steps import GraphStep
from puregraph.modules import Linear


class ParamPart(Param):
    """The elements of a parameter that belong to one part, as a parameter of its own."""

    def __init__(self, whole: Param, cut: ParamCut, part: int, parts: int):
        self.whole, self.cut, self.part = whole, cut, part
        self.indices = cut.indices(part, parts)
        shape = list(whole.shape)
        shape[cut.axis] = len(self.indices)
        super().__init__(tuple(shape), self.starting, whole.dtype)
        self.follow()

    def starting(self, rng: Any, shape: Any) -> Any:
        """Return the part's elements of the current parameter."""
        return aligned(np.ascontiguousarray(np.take(self.whole.values(), self.indices, axis=self.cut.axis)))

    def follow(self) -> None:
        """Copy the settings of the undivided parameter."""
        for name in ("rate", "decay", "trainable"):
            if getattr(self, name) != getattr(self.whole, name):
                setattr(self, name, getattr(self.whole, name))


class SplitGraph:
    """One rank's share of a graph that is divided by a `TensorLayout`; `graph` has the same outputs as the original.

    `graph`   the modules under their original paths; parts of this rank's divided layers under `path.p`
    `layout`  the division
    `parts`   this rank's ParamParts, by the ids of divided parameters

    An undivided value is spread over the parts at its first divided reader; its gradient is all-reduced there. After
    row-parallel weights the outputs of all parts are all-reduced. So a pair of Linear layers, or attention, needs one
    all-reduce in the forward and one in the backward pass.
    """

    def __init__(self, layout: TensorLayout, world: World | None = None):
        self.layout = layout
        self.group = TensorGroup(world or World(), layout.parts)
        self.parts: dict[int, list[ParamPart]] = {}
        self.modules: dict[tuple[int, int], Module] = {}
        self.nodes: list[Node] = []
        self.whole: dict[int, Edge] = {}  # undivided values, by number
        self.apart: dict[int, list[Edge]] = {}  # the parts of divided and spread values, by number
        with SEED.undisturbed():
            self.graph = self.build()

    def sharding(self, params: list[Param]) -> Sharding:
        """Return the shards of parameters: the parts that a rank has, and copies of those that are not divided."""
        size, offsets, orders, rows = self.group.world.size, dict[int, int](), dict[int, ElementOrder](), []
        end = 0
        for param in params:
            offsets[id(param)], end = end, end + param.size
            cut, cuts = self.layout.cuts.get(id(param)), [0] + [param.size] * size
            if cut is not None:
                order = orders[id(param)] = PartOrder(cut, self.group.parts, param.shape)
                cuts = [order.bounds[part] for part in self.group.division.bounds]
            rows.append(ShardRow([param], cuts, range(size), size, cut is None))
        return Sharding(self.group.world, rows, offsets, end, orders)

    def shard(self, world: World, ranks: list[int]) -> ShardedWeights:
        """Return the divided weights as shards in memory that all ranks of `world` read; parts are views of them.

        `ranks`  by rank of the tensor parallel group its rank in `world`
        """
        divided = {id(p): p for p in self.layout.graph.params.values() if id(p) in self.parts}
        weights = ShardedWeights(world, self.sharding(list(divided.values())), ranks)
        for key, parts in self.parts.items():
            shard, begin = weights.shard(divided[key]), 0
            for part in parts:
                part.array = shard[begin : begin + part.size].reshape(part.shape)
                begin += part.size
            weights.views += parts
        weights.divide()
        return weights

    def build(self) -> Graph:
        """Link all nodes."""
        layout, inputs = self.layout, []
        for number, known in zip(layout.steps.inputs, layout.graph.inputs):
            isNamed = isinstance(known.module, Input) and "." not in layout.graph.paths[known]
            inputs.append(Input().node(name=layout.graph.paths[known] if isNamed else None))
            inputs[-1].noticed = True
            self.whole[number] = inputs[-1], 0
        for index, step in enumerate(layout.steps.items):
            role = layout.roles.get(index)
            if role is None:
                node = nodeOf(step, [self.whole.get(n) for n in step.args[: step.inputs]])
                self.nodes.append(node)
                self.whole.update({number: (node, slot) for slot, number in enumerate(step.outs)})
            elif role == WITHIN:
                self.addWithin(step)
            else:
                self.addLayer(index, step, role)
        graph = Graph(inputs, [self.whole[n] for n in layout.steps.outputs], layout.graph.name)
        order = {node: index for index, node in enumerate(self.nodes)}
        graph.nodes.sort(key=lambda node: order.get(node, -1))
        graph.paths = {node: graph.paths[node] for node in graph.nodes}
        return graph

    def add(self, module: Module, parents: list[Edge], path: str) -> Node:
        """Append a node with this path."""
        node = Node(module, parents)
        node.rename = path
        self.nodes.append(node)
        return node

    def addWithin(self, step: GraphStep) -> None:
        """Add a step that is computed part by part."""
        passage = self.layout.passage(step)
        module = partModule(passage, passed(passage) or [])
        numbers = [n for n in step.args[: step.inputs] if n in self.layout.shapes]
        inputs = [self.partsOf(n) for n in numbers]
        nodes = [
            self.add(module, [parts[k] for parts in inputs], f"{step.path}.{p}") for k, p in enumerate(self.group.own)
        ]
        for slot, number in enumerate(step.visible):
            self.apart[number] = [(node, slot) for node in nodes]

    def addLayer(self, index: int, step: GraphStep, role: str) -> None:
        """Add a layer with divided weights."""
        number, source = step.visible[0], step.args[0]
        edges = [self.whole[source]] * len(self.group.own) if role == TABLE else self.partsOf(source)
        made = []
        for edge, part in zip(edges, self.group.own):
            made.append((self.add(self.moduleOf(index, part), [edge], f"{step.path}.{part}"), 0))
        if role == COLUMNS:
            self.apart[number] = made
            return
        if role == JOINED:
            cut: Any = self.layout.cutOf(index, "W")
            node = self.add(PartJoin(self.group, cut.bounds(self.group.parts)), made, f"{step.path}.join")
        else:
            node = self.add(PartSum(self.group), made, f"{step.path}.sum")
        bias = getattr(step.module, "b", None)
        if role == ROWS and bias is not None:
            node = self.add(self.biasOf(step.module), [(node, 0)], f"{step.path}.bias")
        self.whole[number] = node, 0

    def partsOf(self, number: int) -> list[Edge]:
        """Return the parts of a value; an undivided one is spread at its first reader."""
        if number not in self.apart:
            path = self.layout.steps.names[number]
            node = self.add(Spread(self.group), [self.whole[number]], f"{path}.spread")
            self.apart[number] = [(node, slot) for slot in range(len(self.group.own))]
        return self.apart[number]

    def moduleOf(self, index: int, part: int) -> Module:
        """Return the module of one part of a layer."""
        whole: Any = self.layout.steps.items[index].module
        key = id(whole), part
        if key not in self.modules:
            self.modules[key] = self.makeModule(index, whole, part)
        return self.modules[key]

    def makeModule(self, index: int, whole: Any, part: int) -> Module:
        """Make the module of one part of a layer."""
        W: Any = self.paramOf(index, whole, "W", part)
        if not isinstance(whole, Linear):
            return PartEmbedder(W, int(W.indices[0]), whole.W.shape[0])
        insize, outsize = W.shape[::-1] if whole.transpose else W.shape
        hasBias = whole.b is not None and self.layout.roles[index] != ROWS
        linear: Any = Linear(insize, outsize, useBias=hasBias, transpose=whole.transpose)
        linear.W = W
        if hasBias:
            linear.b = self.paramOf(index, whole, "b", part)
        return linear

    def paramOf(self, index: int, whole: Any, name: str, part: int) -> ParamPart:
        """Return a part of a parameter, which several layers may share."""
        param = getattr(whole, name)
        paramParts = self.parts.setdefault(id(param), [])
        known = next((paramPart for paramPart in paramParts if paramPart.part == part), None)
        if known is None:
            known = ParamPart(param, self.layout.cuts[id(param)], part, self.group.parts)
            paramParts.append(known)
        return known

    def biasOf(self, whole: Any) -> Module:
        """Return the module that adds the bias of a Linear after the all-reduce."""
        key = id(whole), -1
        if key not in self.modules:
            adding: Any = Pointwise(formula="x + b")
            adding.b = whole.b
            self.modules[key] = adding
        return self.modules[key]


def splitTensors(graph: Graph, parts: int, *shapes: Any, world: World | None = None) -> SplitGraph:
    """Divide the layers of a graph into `parts`, shared by the ranks of `world`; a single process has all parts.

    `shapes`  the shapes of the inputs, in numbers

    Raises    DataError if it cannot be divided into that number of parts; ShapeError for shapes that do not fit
    """
    inshapes: Sequence[Any] = shapes[0] if len(shapes) == 1 and isinstance(shapes[0], list) else shapes
    return SplitGraph(TensorLayout(graph, parts, inshapes), world)
