"""summary: the table of a graph: every node with its shapes and costs, every fault, and the cost of a training step."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core import arguments
from puregraph.core.arguments import Count, takes
from puregraph.core.dim import Size
from puregraph.core.errors import ArgumentError, show
from puregraph.core.late import Late
from puregraph.core.shape import bind
from puregraph.graph import Graph, Input
from puregraph.graph.analysis.collapsedlines import collapsedLines
from puregraph.graph.analysis.footprint import Footprint, FootprintLine

if TYPE_CHECKING:
    from puregraph.core.shape import Shape
    from puregraph.graph.module import Module

BATCHES = (1, 32, 256)  # batch sizes of the totals if the batch is a symbol
EVALUATES = "In evalMode, as after training. After net.trainMode() this reports the memory of a training step."
ONTOP = "Optimizer state is not included."
BOLD, DIM, RED = "1", "2", "1;31"
LEFT = ("node", "module", "from", "data shape", "gradient shape")
RIGHT = ("params", "bytes", "flops")
DROPPED = ("gradient shape", "arguments", "flops", "bytes", "module", "from")  # the order of leaving columns out


class SummaryText(str):
    """The table of a graph, which a notebook shows as it is printed."""

    __slots__ = ()

    _repr_html_ = Late("puregraph.draw.escape", "preformatted")


class StyledText(NamedTuple):
    """A line, and its style on a terminal."""

    text: str
    style: str = ""


@takes(width=Count | None, depth=arguments.Size | None)
def summary(graph: Graph, *shapes: Any, width: int | None = None, depth: int | None = None) -> str:
    """Return the table of a graph at given input shapes: `print(summary(net, ("N", 1, 28, 28)))`. Allocates nothing.

    The default shapes are those that the inputs declare. A graph with faults also has a table, with every faulty node
    marked. Columns are left out to fit into `width`. Graphs nested deeper than `depth`, blocks such as
    `MultiHeadAttention` among them, become one line each, with their totals: with 0 every nested graph.

    Raises    ArgumentError without shapes if an input declares none
    """
    return SummaryText(render(Footprint(graph, *(shapes or declaredShapes(graph))), width, depth=depth))


def declaredShapes(graph: Graph) -> list[Any]:
    """The shapes that the inputs of a graph declare."""
    nodes = graph.inputs if isinstance(graph, Graph) else []
    shapes = [node.module.shape if isinstance(node.module, Input) else None for node in nodes]
    if None in shapes:
        names = ", ".join(graph.arguments)
        example = "summary(net, ('N', 3))"
        raise ArgumentError(f"summary: wanted a shape for each input ({names}), such as {example}, got none")
    return shapes


def render(footprint: Footprint, width: int | None = None, color: bool = False, depth: int | None = None) -> str:
    """The table of a footprint as text, optionally with terminal color codes."""
    nodes = collapsedLines(footprint, depth)
    lines = [
        *tableLines(footprint, nodes, width),
        StyledText(""),
        *totalLines(footprint, width),
        *faultLines(footprint, width),
    ]
    if width is not None:
        lines = [line._replace(text=cut(line.text, width)) for line in lines]
    return "\n".join(f"\x1b[{s}m{t}\x1b[0m" if color and s and t else t for t, s in lines)


# The nodes ------------------------------------------------------------------------------------------------------------


def tableLines(footprint: Footprint, nodes: list[FootprintLine], width: int | None) -> Iterator[StyledText]:
    """One line per node, with as many columns as fit."""
    dropped: list[str] = []
    while True:
        names = [n for n in (*LEFT, *RIGHT) if n not in dropped]
        rows = [rowOf(line, footprint, "arguments" not in dropped) for line in nodes]
        cells = [[row[name] for name in names] for row in rows]
        wide = [max(map(len, column)) for column in zip(names, *cells)]
        total = sum(wide) + 2 * len(wide) - 2
        if width is None or total <= width or len(dropped) == len(DROPPED):
            break
        dropped.append(DROPPED[len(dropped)])

    def joined(row: list[str]) -> str:
        padded = [c.rjust(w) if n in RIGHT else c.ljust(w) for n, c, w in zip(names, row, wide)]
        return "  ".join(padded).rstrip()

    yield StyledText(joined(names), BOLD)
    yield StyledText("-" * total, DIM)
    for line, row in zip(nodes, cells):
        yield StyledText(joined(row), RED if line.fault else DIM if line.shapes is None else "")
    yield StyledText("-" * total, DIM)
    if dropped:
        yield from wrapped(f"not shown in {width} columns: {', '.join(dropped)}", width)


def rowOf(line: FootprintLine, footprint: Footprint, withArguments: bool) -> dict[str, str]:
    """The cells of a node, by column."""
    cells = {
        "node": line.path,
        "module": brief(line.module) if withArguments or line.module.isGraph else type(line.module).__name__,
        "from": ", ".join(near(name, line.path) for name in line.source),
        "data shape": several(line.shapes) + dtypesOf(line, footprint) if line.shapes is not None else "unknown",
        "gradient shape": several([s for s in line.gradShapes if s is not None]),
        "params": f"{line.params:,}" if line.params else "",
        "bytes": "",
        "flops": "",
    }
    if line.fault:
        cells["data shape"] = "DOES NOT FIT"
    elif line.shapes is not None:
        cells["bytes"] = cell(line.nbytes, footprint, bytesText)
        cells["flops"] = cell(line.flops, footprint, countText)
    return cells


def dtypesOf(line: FootprintLine, footprint: Footprint) -> str:
    """The dtypes of a node's outputs, if they differ from the graph's dtype."""
    names = dict.fromkeys(str(d) for d in line.dtypes if d is not None)
    return "" if set(names) <= {str(footprint.dtype)} else f" {', '.join(names)}"


def brief(module: Module) -> str:
    """A module in the space of a cell."""
    return cut(module.brief(), 50)


def near(name: str, path: str) -> str:
    """The name of a source as seen from a node: a neighbour without the path that they share."""
    if name.startswith(f"{path}."):
        return "(input)"
    parent = path.rpartition(".")[0]
    return name.removeprefix(f"{parent}.") if parent else name


# Under the table ------------------------------------------------------------------------------------------------------


def totalLines(footprint: Footprint, width: int | None) -> Iterator[StyledText]:
    """The totals of the graph; if the batch is a symbol, for several batch sizes."""
    outputs = "unknown" if footprint.faults else several(footprint.outshapes)
    states = f", and {bytesText(footprint.stateBytes)} of running statistics" if footprint.stateBytes else ""
    yield StyledText(f"{several(footprint.inshapes)} -> {outputs}")
    yield StyledText(f"{footprint.params:,} parameters, {bytesText(footprint.paramBytes)} of {footprint.dtype}{states}")
    if footprint.faults:
        return
    if footprint.symbols and not footprint.batch:
        yield from wrapped(f"Give {', '.join(footprint.symbols)} sizes to see what a training step takes.", width)
        return
    columns = [{footprint.batch: n} for n in BATCHES] if footprint.batch else [{}]
    rows = [["", *(f"{k} = {v}" for sizes in columns for k, v in sizes.items())]] if footprint.batch else []
    rows.append(["flops forward", *(countText(at(footprint.flops, sizes)) for sizes in columns)])
    if footprint.liveness is not None and not footprint.wantsTrainMode:
        rows.append(["kept for backward", *(bytesText(footprint.kept(**sizes)) for sizes in columns)])
        rows.append(["training step, peak", *(bytesText(footprint.peak(**sizes)) for sizes in columns)])
        rows.append(["training step, nothing freed", *(bytesText(footprint.eager(**sizes)) for sizes in columns)])
        workspaces = [workspace for sizes in columns if (workspace := footprint.attention(**sizes)) is not None]
        if workspaces:
            rows.append(["attention on a GPU, workspace", *(bytesText(workspace[1]) for workspace in workspaces)])
            rows.append(["... where it is deterministic", *(bytesText(workspace[0]) for workspace in workspaces)])
    wide = [max(map(len, column)) for column in zip(*rows)]
    while width is not None and len(wide) > 2 and sum(wide) + 3 * len(wide) - 3 > width:
        wide.pop()
    yield StyledText("")
    for row in rows:
        cells = [cell.rjust(w) for cell, w in zip(row[1:], wide[1:], strict=False)]
        yield StyledText("   ".join([row[0].ljust(wide[0]), *cells]), BOLD if not row[0] else "")
    yield StyledText("")
    if footprint.batch:
        yield from wrapped(f"In the table, bytes and flops are for {footprint.batch} = 1.", width)
    yield from wrapped(EVALUATES if footprint.wantsTrainMode else ONTOP, width)


def wrapped(text: str, width: int | None) -> Iterator[StyledText]:
    """A remark, in as many lines as it takes."""
    for line in textwrap.wrap(text, width) if width else [text]:
        yield StyledText(line, DIM)


def faultLines(footprint: Footprint, width: int | None) -> Iterator[StyledText]:
    """List every fault in full."""
    if not footprint.faults:
        return
    count = len(footprint.faults)
    yield StyledText("")
    yield StyledText(
        "1 node does not fit its inputs:" if count == 1 else f"{count} nodes do not fit their inputs:", RED
    )
    for fault in footprint.faults:
        yield StyledText("")
        yield StyledText(f"  {fault.path} ({fault.module})", RED)
        source = f" from {fault.source}" if fault.source else ""
        for what, text in (("wanted", fault.wanted), ("got", f"{fault.given}{source}"), ("try", fault.hint)):
            lines = textwrap.wrap(text, (width or 400) - 12, break_long_words=False)
            yield from (StyledText(f"    {'' if i else what:8}{line}") for i, line in enumerate(lines))


# Cells ----------------------------------------------------------------------------------------------------------------


def cell(size: Size, footprint: Footprint, text: Callable[[Size], str]) -> str:
    """A size as text, for one sample if the batch is a symbol; long expressions of several symbols are cut to "..."."""
    shown = text(at(size, {footprint.batch: 1}) if footprint.batch else size)
    return "" if size == 0 else shown if len(shown) <= 20 else "..."


def at(size: Size, sizes: dict[str, int]) -> Size:
    """A size with numbers for symbols."""
    return bind((size,), sizes)[0]


def several(shapes: list[Shape]) -> str:
    """Shapes separated by commas, equal ones as `2 x (3, 4)`."""
    if len(shapes) > 1 and all(s == shapes[0] for s in shapes):
        return f"{len(shapes)} x {show(shapes[0])}"
    return ", ".join(map(show, shapes))


def countText(number: Size) -> str:
    """A count in three digits: 852 k; an expression of symbols as it is."""
    return scaled(number, 1000, ("", " k", " M", " G", " T", " P", " E"))


def bytesText(number: Size) -> str:
    """Bytes in three digits: 41.6 KiB; an expression of symbols as it is."""
    return scaled(number, 1024, (" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"))


def scaled(number: Size, base: int, units: tuple[str, ...]) -> str:
    """A number in the unit in which it is below 1000."""
    if isinstance(number, str):
        return f"{number}{units[0]}"
    value, power = float(number), 0
    while value >= 999.5 and power < len(units) - 1:
        value, power = value / base, power + 1
    digits = 0 if power == 0 or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f}{units[power]}"


def secondsText(seconds: float) -> str:
    """Seconds in three digits: 1.23 ms."""
    return scaled(seconds * 1e6, 1000, (" us", " ms", " s")) if seconds < 999 else f"{seconds:,.0f} s"


def cut(text: str, width: int) -> str:
    """The text, ending in ... where it is too long."""
    return text if len(text) <= width else f"{text[: width - 3]}..."
