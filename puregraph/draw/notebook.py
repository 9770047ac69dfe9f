"""Notebook representations of objects: pictures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from puregraph.core.errors import PuregraphError, plural, show
from puregraph.draw.charts.matrixchart import CORNER, written
from puregraph.draw.drawing import drawGraph
from puregraph.draw.escape import markup, preformatted
from puregraph.graph.analysis.summary import render

if TYPE_CHECKING:
    from puregraph.compile.program import Program
    from puregraph.compile.report.stepprofile import StepProfile
    from puregraph.graph.analysis.footprint import Footprint
    from puregraph.graph.graph import Graph
    from puregraph.graph.node import Node
    from puregraph.train.history import History
    from puregraph.train.metrics.confusion import Confusion
    from puregraph.train.trainer import Trainer

MAX_DRAWN_NODES = 500  # maximum number of nodes outside groups that are drawn, or lines that are listed


def graphHtml(graph: Graph) -> str:
    """A graph as a picture, or as a listing if a picture cannot be made or would be too large."""
    try:
        if len(graph.nodes) <= MAX_DRAWN_NODES:
            listing = f"<details><summary>listing</summary>{preformatted(str(graph))}</details>"
            return drawGraph(graph)._repr_html_() + listing
    except PuregraphError:
        pass
    lines = str(graph).split("\n")
    rest = len(lines) - MAX_DRAWN_NODES
    return preformatted(
        "\n".join([*lines[:MAX_DRAWN_NODES], *([f"and {plural(rest, 'node')} more"] if rest > 0 else [])])
    )


def tableHtml(rows: Sequence[tuple[str, ...]], head: tuple[str, ...] = ()) -> str:
    """Rows as a table."""
    titles = "".join(f"<th>{markup(text)}</th>" for text in head)
    lines = "".join(f"<tr>{''.join(f'<td>{markup(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"<table>{f'<tr>{titles}</tr>' if head else ''}{lines}</table>"


def nodeHtml(node: Node) -> str:
    """Return a node as a table: its module, its inputs, its readers and its arrays."""
    rows = [("node", node.name), ("module", repr(node.module))]
    rows += [("reads", ", ".join(link.node.name for link in node.bwds))] if node.bwds else []
    rows += [("is read by", ", ".join(link.node.name for link in node.fwds))] if node.fwds else []
    stored = {**node.module.params, **node.module.states}
    rows += [("stores", ", ".join(f"{name} {show(array.shape)}" for name, array in stored.items()))] if stored else []
    rows += [("shape", show(node.shape))] if node.shape is not None else []
    return tableHtml([(what, str(text)) for what, text in rows])


def historyHtml(history: History) -> str:
    """The epochs of a training as a table."""
    names, cells = history.cells() if history else ([], [])
    unbroken = [tuple(text.replace(" ", "\N{NO-BREAK SPACE}") for text in row) for row in cells]  # "35 ms"
    return tableHtml(unbroken, tuple(names))


def footprintHtml(footprint: Footprint) -> str:
    """Return a footprint as the summary of its graph."""
    return preformatted(render(footprint))


def confusionHtml(confusion: Confusion) -> str:
    """A confusion matrix as a table: actual classes in rows, predicted ones in columns."""
    names = confusion.names or list(map(str, range(confusion.classes)))
    rows = [(name, *map(written, row)) for name, row in zip(names, confusion.value().tolist(), strict=True)]
    return tableHtml(rows, (CORNER, *names))


def trainerHtml(trainer: Trainer) -> str:
    """A trainer as a table: network, cost, optimizer and progress; then its epochs."""
    rows = [
        ("network", f"{trainer.net.title()}, {sum(p.size for p in trainer.net.params.values()):,} parameters"),
        ("cost", repr(trainer.cost)),
        ("optimizer", repr(trainer.optimizer)),
        ("batchsize", str(trainer.batchsize)),
        ("epochs, steps", f"{trainer.epoch}, {trainer.step}"),
    ]
    return tableHtml(rows) + (historyHtml(trainer.history) if trainer.history else "")


def profileHtml(profile: StepProfile) -> str:
    """The measured steps of a program as their table."""
    return preformatted(profile.table())


def programHtml(program: Program) -> str:
    """A program as the table of its steps, or the reason why it is not compiled."""
    try:
        return preformatted(program.table())
    except PuregraphError as error:
        return preformatted(str(error))
