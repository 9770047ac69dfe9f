"""Stages: a graph in parts that follow each other, for a pipeline of processes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.arguments import Count, takes
from puregraph.core.errors import ArgumentError, show
from puregraph.core.shape import symbols
from puregraph.graph import Graph
from puregraph.graph.analysis.footprint import Footprint
from puregraph.graph.analysis.stagecuts import StageCuts
from puregraph.graph.analysis.summary import bytesText, countText
from puregraph.graph.graphsegment import Crossings, GraphSegment, segmentFrom

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


class StageLine(NamedTuple):
    """One stage: its first and last node, the number of nodes, trained elements,
    their bytes, bytes of its values, operations of a forward pass, and received bytes."""

    first: str
    last: str
    nodes: int
    params: int
    paramBytes: int
    valueBytes: int
    flops: int
    received: int


class Stages(Sequence[Graph]):
    """A chain of graphs: each takes the outputs of the previous one; `stages(net, 4, shape)` makes them.

    `lines`  the cost of each stage, at the shapes that the graph was cut for

    They share the net's modules and paths. A value for a later stage passes through the stages between. Run one after
    the other they give the net's results to the last bit, and so does `backward`.
    """

    def __init__(self, segments: list[GraphSegment], lines: list[StageLine]):
        self.segments, self.lines = segments, lines
        self.graphs = [segment.graph for segment in segments]

    def __getitem__(self, index: Any) -> Any:
        return self.graphs[index]

    def __len__(self) -> int:
        return len(self.graphs)

    def __call__(self, *data: Any) -> list[AnyArray]:
        """Run all stages on the inputs of the first: arrays, or one list of them."""
        values: Any = list(data[0]) if len(data) == 1 and isinstance(data[0], (list, tuple)) else list(data)
        for graph in self.graphs:
            values = graph(values if isinstance(values, list) else [values])
        return values

    def backward(self, grad: Sequence[AnyArray] | None = None, updGrad: bool = True) -> Any:
        """Back-propagate through the last pass, from the last stage to the first: the gradient of the inputs.

        That of each parameter is then in its `grad`, as after `net.backward`.
        """
        for graph in self.graphs:
            for param in graph.params.values():
                param.grad = None
        for graph in reversed(self.graphs):  # momentum=1.0 adds the gradients of a parameter in two stages
            graph.backward(grad, updGrad=updGrad or graph is not self.graphs[0], momentum=1.0)
            grad = graph.grad
        return grad

    def table(self) -> str:
        """A line for each stage."""
        total = max(sum(line.flops for line in self.lines), 1)
        names = ("stage", "from", "to", "nodes", "params", "bytes", "values", "flops", "share", "is sent")
        rows = [names]
        for number, line in enumerate(self.lines, 1):
            sizes = f"{line.params:,}", bytesText(line.paramBytes), bytesText(line.valueBytes), countText(line.flops)
            share, sent = f"{100 * line.flops / total:.0f} %", bytesText(line.received)
            rows.append((str(number), line.first, line.last, f"{line.nodes:,}", *sizes, share, sent))
        wide = [max(map(len, column)) for column in zip(*rows)]
        isName = [name in ("from", "to") for name in names]
        cells = [[c.ljust(w) if left else c.rjust(w) for c, w, left in zip(row, wide, isName)] for row in rows]
        return "\n".join("  ".join(row).rstrip() for row in cells)

    def __repr__(self) -> str:
        return f"<Stages: {', '.join(f'{line.first} to {line.last}' for line in self.lines)}>"


@takes(k=Count)
def stages(net: Graph, k: int, *shapes: Any) -> Stages:
    """Cut a net into a chain of `k` graphs with about equal operations and bytes.

    `shapes`  the input shapes of one microbatch, without symbols

    Nothing is allocated. All uses of a state stay in one stage. So do all uses of a parameter with several readers,
    except one: embeddings and scores may share an array.

    Raises    ShapeError if the shapes do not fit; GraphError if there are too few cuts; ArgumentError for symbols
    """
    inputShapes = shapes[0] if len(shapes) == 1 and isinstance(shapes[0], list) else list(shapes)
    if any(symbols(shape) for shape in inputShapes):
        raise ArgumentError(f"stages: wanted a number for each symbol, got {', '.join(map(show, inputShapes))}")
    net.dataShapeFrom(inputShapes)
    footprint = Footprint(net, *inputShapes)
    crossings = Crossings(footprint.steps)
    return stagesAt(footprint, crossings, StageCuts(footprint, crossings).best(k))


def stagesAt(footprint: Footprint, crossings: Crossings, cuts: list[int]) -> Stages:
    """The stages between these cuts; the last cut is the end."""
    pairs = list(pairwise(cuts))
    segments = [segmentFrom(crossings, *pair, f"stage{number}") for number, pair in enumerate(pairs, 1)]
    return Stages(segments, [lineFrom(footprint, segment, *pair) for segment, pair in zip(segments, pairs)])


def lineFrom(footprint: Footprint, segment: GraphSegment, begin: int, end: int) -> StageLine:
    """The cost of the steps from `begin` to before `end`."""
    lines, params = footprint.lines[begin:end], segment.graph.params.values()
    sizes = [footprint.sizes[number] for number in {crossing.number for crossing in segment.taken}]
    paths = [line.path for line in lines] or [""]
    return StageLine(
        paths[0],
        paths[-1],
        len(lines),
        sum(param.size for param in params),
        sum(param.nbytes for param in params),
        sum(int(line.nbytes) for line in lines),
        sum(int(line.flops) for line in lines),
        sum(map(int, sizes)),
    )
