"""Step table: the steps of a plan in columns."""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from puregraph.compile.gradientbuckets import BucketStart
from puregraph.compile.ir.external import GradientOf
from puregraph.compile.memory.outputs import StepOutput
from puregraph.compile.report.describe import Describer, StepText, by
from puregraph.compile.report.flops import flopsOf, layoutOf
from puregraph.compile.trace.abstract import isLast
from puregraph.ops.ir.value import Call, Value

if TYPE_CHECKING:
    from typing import Any

    from puregraph.compile.memory.planner import MemoryPlan

HEAD = ("", "node", "step", "by", "makes", "bytes", "offset", "flops", "graph", "time", "share", "GFLOP/s")
RIGHT = ("", "bytes", "offset", "flops", "time", "share", "GFLOP/s")
MEASURED = ("time", "share", "GFLOP/s")
MIN_STEP_COLUMNS = 26  # minimum width of the steps column
MAX_NODE_WIDTH = 26  # maximum width of the nodes column
MAX_STEP_LINES = 3  # most lines for a step
LAST = {4: "nhwc", 5: "ndhwc"}  # feature maps stored channels last
UNITS = ("", "k", "M", "G", "T", "P")


class StepRow(NamedTuple):
    """One line of a table, with the columns of HEAD."""

    number: str = ""
    node: str = ""
    step: str = ""
    by: str = ""
    makes: str = ""
    bytes: str = ""
    offset: str = ""
    flops: str = ""
    graph: str = ""
    time: str = ""
    share: str = ""
    rate: str = ""


class CapturedGraphs(NamedTuple):
    """The captured CUDA graph of each call, by call number, and a summary."""

    numbers: dict[int, str]
    note: str


def table(
    plan: MemoryPlan,
    width: int = 120,
    graphs: CapturedGraphs | None = None,
    measured: dict[int, tuple[str, ...]] | None = None,
) -> str:
    """The results of every step, in lines of at most `width` letters if possible; then the totals.

    `measured` has the cells of MEASURED by call number; these columns replace the memory columns.
    """
    rows, describer, node = [], Describer(plan.schedule), ""
    calls = [(i, call) for i, call in enumerate(plan.schedule.calls) if not call.kind.isView]
    for number, (i, call) in enumerate(calls, 1):
        stepRows, node = rowsOf(call, describer.lines(call), plan, i, node)
        flops = flopsOf(call)
        graph = "" if graphs is None else graphs.numbers.get(i, "-")
        operations = short(flops) if flops else ""
        stepRows[0] = stepRows[0]._replace(number=str(number), by=by(call), flops=operations, graph=graph)
        if measured is not None:
            stepRows = [
                StepRow(*stepRows[0][:-3], *measured[i]),
                *[row for row in stepRows[1:] if row.step not in ("", "scratch")],
            ]
        rows += stepRows
    unwanted = {*(["graph"] if graphs is None else []), *(MEASURED if measured is None else ("bytes", "offset"))}
    columns = [k for k, name in enumerate(HEAD) if name not in unwanted]
    wide = {k: max(len(row[k]) for row in [HEAD, *rows]) for k in columns}
    wide[2] = max(MIN_STEP_COLUMNS, min(wide[2], width - sum(wide.values()) + wide[2] - 2 * (len(wide) - 1)))
    rows = [StepRow(*HEAD), *(piece for row in rows for piece in wrapped(row, wide[2]))]
    lines = [written(row, wide) for row in rows]
    rule = "-" * max(map(len, lines))
    notes = [line for note in describer.notes() for line in textwrap.wrap(note, width, subsequent_indent="    ")]
    memory = f"{plan.bytes:,} bytes of memory in {len(plan.buffers)} buffers"
    total = f"{len(calls)} steps, {memory}, {sum(flopsOf(call) for _, call in calls):,} operations"
    notes += bucketNotes([call for _, call in calls])
    notes += textwrap.wrap(pythonNote([call for _, call in calls]), width, subsequent_indent="    ")
    notes += [] if graphs is None else textwrap.wrap(graphs.note, width, subsequent_indent="    ")
    return "\n".join([lines[0], rule, *lines[1:], rule, *notes, total])


def pythonNote(calls: list[Call]) -> str:
    """A note that lists the nodes whose rules are not compiled; "" if there are none."""
    nodes = dict.fromkeys((c.origin.path, c.origin.label) for c in calls if c.kind.isOpaque)
    names = [path if path.startswith("grad:") else f"{path} ({label})" for path, label in nodes]
    return f"plain Python, not compiled: {', '.join(names)}" if names else ""


def bucketNotes(calls: list[Call]) -> list[str]:
    """A note for each gradient bucket: its bytes, how long its all-reduce takes, and the steps that hide it."""
    notes = []
    for i, call in enumerate(calls):
        if isinstance(call.function, BucketStart):
            buckets, number = call.function.buckets, call.function.number
            way, seconds = ("", 0.0) if buckets.predict is None else buckets.predict(buckets.nbytes(number))
            behind = [step for step in calls[i + 1 :] if not isinstance(step.function, BucketStart)]
            flops = short(sum(flopsOf(step) for step in behind))
            hidden = f"by the {len(behind)} steps behind it, {flops} operations" if behind else "by nothing"
            exchange = f"{way} in {1e6 * seconds:,.0f} us" if way else "not exchanged"
            notes.append(f"bucket {number + 1}: {buckets.nbytes(number):,} bytes, {exchange}, hidden {hidden}")
    return notes


def written(row: StepRow, wide: dict[int, int]) -> str:
    """A row as text; `wide` has the width of each column by number."""
    cells = [row[k].rjust(n) if HEAD[k] in RIGHT else row[k].ljust(n) for k, n in wide.items()]
    return "  ".join(cells).rstrip()


def wrapped(row: StepRow, width: int) -> list[StepRow]:
    """Split a row whose step is long into several."""
    first, *more = textwrap.wrap(
        row.step, width, subsequent_indent="  ", max_lines=MAX_STEP_LINES, placeholder=" ..."
    ) or [""]
    return [row._replace(step=first), *[StepRow(step=line) for line in more]]


def rowsOf(call: Call, lines: list[StepText], plan: MemoryPlan, i: int, node: str) -> tuple[list[StepRow], str]:
    """The rows of a step, and the node of the last row.

    Each line has a row; a result stored differently from the one before it has another.
    """
    held = {y.number for y in call.outs if y is not None}
    rows: list[StepRow] = []
    for line in lines:
        made = [y for y in line.values if y.number in held]
        lineRows = [
            StepRow(makes=makes, bytes=f"{sum(y.nbytes for y in ys):,}", offset=location)
            for (makes, location), ys in (
                (key, list(group)) for key, group in groupby(made, lambda y: cellsOf(y, plan, i))
            )
        ] or [StepRow()]
        rows += [lineRows[0]._replace(node="" if line.path == node else near(line.path), step=line.text), *lineRows[1:]]
        node = line.path
    scratch = [y for y in call.outs if y is not None and y.name == "scratch"]
    if scratch:
        size, (_, location) = sum(y.nbytes for y in scratch), cellsOf(scratch[0], plan, i)
        rows.append(StepRow(step="scratch", bytes=f"{size:,}", offset=location))
    return rows, node


def cellsOf(y: Value, plan: Any, i: int) -> tuple[str, str]:
    """The type of a result and its location: an offset in the arena, starred if the result overwrites an operand,
    or the name of its holder."""
    kind = "" if y.dtype.name == "float32" else f"{y.dtype} "
    location = plan.locations.get(y.number)
    order = layoutOf(y)
    layout = f" {LAST[y.ndim]}" if y.ndim in LAST and isLast(y) else order and f" as {order}"
    makes = f"{kind}{','.join(map(str, y.shape)) or 'number'}{layout}"
    if hasattr(location, "offset"):
        return makes, f"{location.offset:,}{'*' * (i in plan.overwritten)}"
    if isinstance(location, StepOutput):
        return makes, "result"
    return makes, "" if location is None else "gradient" if type(
        getattr(location, "target", location)
    ) is GradientOf else "in place"


def near(path: str) -> str:
    """The end of a path, cut to the width of its column."""
    kind, colon, name = path.rpartition(":")
    width, parts = MAX_NODE_WIDTH - len(kind + colon), name.split(".")
    while len(parts) > 1 and len(name) > width:
        parts = parts[1:]
        name = f"..{'.'.join(parts)}"
    return f"{kind}{colon}{name}"


def short(number: int) -> str:
    """A number with three digits."""
    value, unit = float(number), 0
    while value >= 999.5 and unit + 1 < len(UNITS):
        value, unit = value / 1000, unit + 1
    return f"{value:.3g}{UNITS[unit]}"
