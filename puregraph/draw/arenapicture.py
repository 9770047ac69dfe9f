"""The arena over time: each buffer as a rectangle, from the first to the last step that uses it, at its offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.draw.escape import markup
from puregraph.draw.layout.textwidth import shortened, textWidth
from puregraph.draw.svg import STYLE
from puregraph.graph.analysis.summary import bytesText

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.compile.memory.planner import MemoryPlan

PLANE_WIDTH, PLANE_HEIGHT = 900.0, 520.0  # size of the plane
LEFT_GAP, TOP_GAP, BOTTOM_GAP = 78.0, 58.0, 44.0
TICKS = 8
COLOURS = ("#cfe0f5", "#d8efd9", "#f6e3c3", "#ecd9f2", "#f7d5d5", "#d5eef0")
GRID = """
.plane { fill: none; stroke: #5a6a85 }
.tick { stroke: #dfe4ec }
.buffer rect { stroke: #5a6a85; stroke-width: 0.6 }
"""


def arenaSvg(plan: MemoryPlan, title: str) -> str:
    """The SVG file of a memory plan."""
    calls = plan.schedule.calls
    shown = [i for i, call in enumerate(calls) if not call.kind.isView]
    step = {i: n for n, i in enumerate(shown)}
    for i in range(len(calls)):  # a view counts to the step before it
        step.setdefault(i, step.get(i - 1, 0))
    high, count = max(plan.bytes, 1), max(len(shown), 1)
    width, height = LEFT_GAP + PLANE_WIDTH + 24, TOP_GAP + PLANE_HEIGHT + BOTTOM_GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img">',
        f"<title>{markup(title)}: memory</title><style>{STYLE}{GRID}</style>",
        f'<rect class="sheet" width="{width:g}" height="{height:g}"/>',
        f'<text class="title" x="18" y="24">{markup(shortened(title, 15.0, width - 36, True))}</text>',
        f'<text class="note" x="18" y="41">{bytesText(plan.bytes)} in {len(plan.buffers)} buffers over '
        f"{len(shown)} steps: offset against step</text>",
        *ticks(high, count),
    ]
    for i, buffer in enumerate(sorted(plan.buffers, key=lambda b: (b.offset, b.birth))):
        lines.append(bufferSvg(buffer, i, step, high, count, calls))
    size = f'width="{PLANE_WIDTH:g}" height="{PLANE_HEIGHT:g}"'
    lines.append(f'<rect class="plane" x="{LEFT_GAP:g}" y="{TOP_GAP:g}" {size}/>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def ticks(high: int, count: int) -> list[str]:
    """The scales: bytes on the left, step numbers below."""
    lines = []
    for i in range(TICKS + 1):
        y = round(TOP_GAP + PLANE_HEIGHT * (1 - i / TICKS), 1)
        lines.append(f'<path class="tick" d="M{LEFT_GAP:g} {y:g}H{LEFT_GAP + PLANE_WIDTH:g}"/>')
        text = bytesText(high * i // TICKS)
        lines.append(f'<text class="line" x="{LEFT_GAP - 6:g}" y="{y + 3.5:g}" text-anchor="end">{text}</text>')
    for number in range(0, count, max(count // 12, 1)):
        x = round(LEFT_GAP + PLANE_WIDTH * (number + 0.5) / count, 1)
        lines.append(
            f'<text class="line" x="{x:g}" y="{TOP_GAP + PLANE_HEIGHT + 15:g}" text-anchor="middle">{number + 1}</text>'
        )
    right, below = LEFT_GAP + PLANE_WIDTH, TOP_GAP + PLANE_HEIGHT + 32
    lines.append(f'<text class="line" x="{right:g}" y="{below:g}" text-anchor="end">step</text>')
    return lines


def bufferSvg(buffer: Any, i: int, step: dict[int, int], high: int, count: int, calls: Sequence[object]) -> str:
    """Draw one buffer: its rectangle, and its name if there is room."""
    last = min(buffer.death, len(calls) - 1)
    x1, x2 = LEFT_GAP + PLANE_WIDTH * step[buffer.birth] / count, LEFT_GAP + PLANE_WIDTH * (step[last] + 1) / count
    y1 = TOP_GAP + PLANE_HEIGHT * (1 - (buffer.offset + buffer.size) / high)
    y2 = TOP_GAP + PLANE_HEIGHT * (1 - buffer.offset / high)
    names = list(dict.fromkeys(v.name or calls[buffer.birth].origin.path for v in buffer.values))
    name = ", ".join(names)
    said = f"{name}: {bytesText(buffer.size)} at {buffer.offset:,}, steps {step[buffer.birth] + 1} to {step[last] + 1}"
    text = ""
    if y2 - y1 >= 12 and x2 - x1 >= 24:
        short = shortened(name, 9.5, x2 - x1 - 6)
        if textWidth(short, 9.5) <= x2 - x1:
            x, y = round(x1 + 3, 1), round((y1 + y2) / 2 + 3, 1)
            text = f'<text class="port" x="{x:g}" y="{y:g}">{markup(short)}</text>'
    return (
        f'<g class="buffer"><title>{markup(said)}</title><rect x="{round(x1, 1):g}" y="{round(y1, 1):g}" '
        f'width="{round(x2 - x1, 1):g}" height="{round(y2 - y1, 1):g}" fill="{COLOURS[i % len(COLOURS)]}"/>{text}</g>'
    )
