"""The picture of a graph of callables, and of the nodes that operations on Variables left on the tape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from puregraph.core.arguments import FilePath, takes
from puregraph.core.errors import plural
from puregraph.draw.drawing import Drawing
from puregraph.draw.picture import Picture, PictureBox, PictureEdge

if TYPE_CHECKING:
    from typing import Any

    from puregraph.autodiff.tape.tapenode import TapeNode
    from puregraph.compat.analog.structure.acyclic import AcyclicDirectedGraph
    from puregraph.core.protocols import StrPath


def callablePicture(graph: AcyclicDirectedGraph) -> Picture:
    """The picture of a graph of callables: a box for each node, an edge for each argument that is passed on."""
    names = graph.names
    picture = Picture(type(graph).__name__)
    for node, name in names.items():
        kind = "input" if node is graph.START else "output" if node is graph.END else "module"
        kinds = () if kind != "module" or type(node).__name__ in ("function", "ufunc") else (type(node).__name__,)
        story = (("node", name), ("type", type(node).__name__))
        picture.boxes.append(PictureBox(name, name, kind, kinds, story=story))
    for edges in graph.outgoing.values():
        for i, edge in enumerate(edges):
            isLabelled = graph.taken_label(edge) or graph.given_label(edge)
            source, target = names[edge.source], names[edge.target]
            picture.edges.append(PictureEdge(source, target, f"{target} {i}", edge.label if isLabelled else ""))
    picture.notes = (f"{plural(len(picture.boxes), 'node')}, {plural(len(picture.edges), 'edge')}",)
    return picture


def tapePicture(node: Any) -> Picture:
    """The picture of the tape from a node on: all nodes that its gradient passes, down to those that accumulate it."""
    picture = Picture(f"the tape of {node.name()}")
    names = {id(node): f"1 {node.name()}"}
    waiting = [node]
    while waiting:
        one = waiting.pop(0)
        ends = [edge for edge in one.next_functions if edge[0] is not None]
        kind = "gradient" if ends else "output"
        picture.boxes.append(PictureBox(names[id(one)], one.name(), kind))
        for i, (after, slot) in enumerate(ends):
            if id(after) not in names:
                names[id(after)] = f"{len(names) + 1} {after.name()}"
                waiting.append(after)
            label = f"output {slot}" if after.num_outputs > 1 else ""
            picture.edges.append(PictureEdge(names[id(one)], names[id(after)], f"{names[id(one)]} {i}", label))
    picture.notes = (plural(len(picture.boxes), "node"),)
    return picture


@takes(path=FilePath | None)
def drawCallables(graph: AcyclicDirectedGraph, path: StrPath | None = None) -> Drawing:
    """Draw this graph: `graph.draw("net.svg")`, or .html, .dot, .png, or without a file in a notebook."""
    return drawn(callablePicture(graph), path)


@takes(path=FilePath | None)
def drawTape(node: TapeNode, path: StrPath | None = None) -> Drawing:
    """Draw the tape from this node on: `y.grad_fn.draw("tape.svg")`, or .html, .dot, .png, or no file in a notebook."""
    return drawn(tapePicture(node), path)


def drawn(picture: Picture, path: StrPath | None) -> Drawing:
    """The Drawing of a picture, saved if there is a path."""
    drawing = Drawing(picture)
    if path is not None:
        drawing.save(path)
    return drawing
