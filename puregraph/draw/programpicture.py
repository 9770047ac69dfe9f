"""The picture of a program: a box for each step with its formula, its kernel and its cost."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

from puregraph.compile.report.describe import Describer, by
from puregraph.compile.report.flops import flopsOf
from puregraph.compile.report.stepprofile import StepProfile
from puregraph.core.arguments import Argument, FilePath, Flag, Size, takes
from puregraph.core.errors import ArgumentError, show
from puregraph.draw.arenapicture import arenaSvg
from puregraph.draw.collapsing import MAX_DEFAULT_BOXES
from puregraph.draw.drawing import Drawing, write
from puregraph.draw.graphpicture import MAX_LINE_CHARACTERS, flopText
from puregraph.draw.picture import Picture, PictureBox, PictureEdge, PictureGroup, replaced
from puregraph.graph.analysis.summary import bytesText, secondsText

if TYPE_CHECKING:
    from puregraph.compile.program import Program
    from puregraph.core.protocols import StrPath
    from puregraph.ops.ir.value import Call, Value

MAX_LINES = 4  # maximum lines of a box for the step's formula
KINDS = {"grad": "gradient", "update": "update", "cost": "cost"}


def programPicture(program: Program, heat: Any = None) -> Picture:
    """The picture of the steps of a compiled program; `heat` as in `drawProgram`.

    Raises    PuregraphError if it is not compiled, with the reason; ArgumentError for another program's profile
    """
    plan = program.plan
    schedule = plan.schedule
    picture = Picture(repr(program)[1:-1])
    describer = Describer(schedule)
    source: dict[int, str] = {}
    calls = [call for call in schedule.calls if not call.kind.isView]
    paths = [call.origin.path for call in calls if kindOf(call) != "update"]
    frames = framesOf(paths) if len(calls) > MAX_DEFAULT_BOXES else {}  # frames add crossings, so only to collapse them
    times = heat.seconds if isinstance(heat, StepProfile) else [None] * len(calls)
    if len(times) != len(calls):
        raise ArgumentError(
            f"heat: a profile of {len(times)} steps, but {program!r} has {len(calls)}: profile it again"
        )
    amounts: dict[str, float] = {}
    for i, (call, seconds) in enumerate(zip(calls, times), 1):
        name = f"{i} {call.origin.path}"
        for value in dict.fromkeys(v.root for v in call.values()):
            if value.role == "input" and value.number not in source:
                source[value.number] = f"input {value.name}"
                picture.boxes.append(PictureBox(f"input {value.name}", value.name or "input", "input"))
            if value.number in source:
                edge = PictureEdge(source[value.number], name, str(value.number), valueText(value))
                picture.edges.append(edge)
        box = stepBox(name, i, call, describer, frames.get(call.origin.path, ""), seconds)
        amounts[name] = (box.nbytes if heat == "bytes" else box.flops if heat == "flops" else seconds) or 0
        picture.boxes.append(box)
        source.update((y.number, name) for y in call.outs if y is not None)
    for i, value in enumerate(schedule.outputs):
        if value is not None and value.root.number in source:
            picture.boxes.append(PictureBox(f"output {i}", value.name or f"output {i}", "output"))
            edge = PictureEdge(source[value.root.number], f"output {i}", str(value.root.number), valueText(value))
            picture.edges.append(edge)
    for name in dict.fromkeys(box.group for box in picture.boxes if box.group):
        picture.groups[name] = PictureGroup(name, name)
    total = sum(map(flopsOf, calls))
    memory = f"{bytesText(plan.bytes)} of memory in {len(plan.buffers)} buffers"
    picture.notes = (f"{len(calls)} steps, {memory}, {flopText(total)}",)
    if heat is not None:
        picture.notes += (f"bars: {heat if isinstance(heat, str) else 'time'}",)
        most = max(amounts.values(), default=0) or 1
        picture.boxes = [replaced(box, heat=amounts.get(box.name, 0) / most or None) for box in picture.boxes]
    return picture


def stepBox(
    name: str, i: int, call: Call, describer: Describer, group: str, seconds: float | None = None
) -> PictureBox:
    """Return the box of one call, with its measured time."""
    described = describer.lines(call)
    flops, nbytes = flopsOf(call), sum(y.nbytes for y in call.outs if y is not None)
    lines = [
        part for line in described for part in textwrap.wrap(line.text, MAX_LINE_CHARACTERS, subsequent_indent="  ")
    ]
    shown = (
        lines
        if len(lines) <= MAX_LINES
        else [*lines[: MAX_LINES - 1], f"{lines[MAX_LINES - 1][: MAX_LINE_CHARACTERS - 4]} ..."]
    )
    last = [by(call), *([bytesText(nbytes)] if nbytes else []), *([flopText(flops)] if flops else [])]
    last += [] if seconds is None else [secondsText(seconds)]
    path = call.origin.path
    story = (
        ("step", str(i)),
        ("node", ", ".join(dict.fromkeys(line.path for line in described))),
        ("does", "\n".join(line.text for line in described)),
        ("by", by(call)),
        ("makes", "\n".join(valueText(y) for y in call.outs if y is not None)),
        ("operations", f"{flops:,}"),
        *([] if seconds is None else [("time", secondsText(seconds))]),
    )
    matches = path.partition(":")[2] or path
    return PictureBox(
        name,
        f"{i}  {path}",
        kindOf(call),
        (*shown, ", ".join(last)),
        group,
        story,
        nbytes=nbytes,
        flops=flops,
        matches=matches,
    )


def kindOf(call: Call) -> str:
    """Return the kind of a step's box, which is that of its last operation."""
    return KINDS.get(call.origin.phase) or KINDS.get(call.origin.path.partition(":")[0], "module")


def framesOf(paths: list[str]) -> dict[str, str]:
    """The frame of each step: the nested graph of its node, if several steps share it."""
    groups = {path: path.rpartition(".")[0] for path in paths}
    common = Counter(groups[path] for path in paths)
    return {path: group for path, group in groups.items() if group and common[group] > 1}


def valueText(value: Value) -> str:
    """The shape of a value, and its dtype unless it is float32."""
    kind = "" if value.dtype.name == "float32" else f" {value.dtype}"
    return f"{show(value.shape)}{kind}"


Heat = Argument(
    "'bytes', 'flops' or a StepProfile",
    lambda value: value in ("bytes", "flops") if isinstance(value, str) else isinstance(value, StepProfile),
    hint="times are measured first: heat=program.profile(*inputs)",
)


@takes(path=FilePath | None, heat=Heat | None, depth=Size | None, repeats=Flag)
def drawProgram(
    program: Program, path: StrPath | None = None, heat: Any = None, depth: int | None = None, repeats: bool = True
) -> Any:
    """Draw the steps: `program.draw("step.svg")`, or .html, .png, .dot; without a path, the text of the last.

    `heat` adds a bar to each step for its share of the greatest one's "bytes" or "flops", or of its time in a profile,
    `heat=program.profile(x, y)`; the rest as in `Graph.draw`.

    Raises    PuregraphError if the program is not compiled, with the reason; ArgumentError for another heat
    """
    drawing = Drawing(programPicture(program, heat), depth, repeats)
    if path is None:
        return drawing.dot()
    drawing.save(path)
    return drawing


@takes(path=FilePath)
def plotArena(program: Program, path: StrPath) -> None:
    """Plot the memory in use at each step: `program.plot("arena.svg")` or .png.

    Raises    PuregraphError if the program is not compiled, with the reason
    """
    write(path, {".svg": lambda: arenaSvg(program.plan, repr(program)[1:-1])})
