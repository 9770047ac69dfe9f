"""Lines: figures and times in words, and the line of an epoch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LEFTOUT = ("epoch", "step", "rate", "seconds")  # columns of the history that are not shown among the figures


def number(value: Any) -> str:
    """Format a figure with about four digits; integers in full."""
    if isinstance(value, int) or not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size and not 1e-3 <= size < 1e5:
        return f"{value:.3e}"
    return f"{value:.4f}" if size < 10 else f"{value:.2f}"


def rate(value: float) -> str:
    """Format a learning rate with three digits."""
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """Format a duration: 0.8 ms, 42 ms, 2.1 s, 2 min 05 s, 1 h 02 min."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.{int(seconds < 0.00995)}f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def clock(seconds: float) -> str:
    """Format a duration as a clock: 0:42, 12:05, 1:02:33."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def speed(perSecond: float) -> str:
    """Format samples per second: 840/s, 12.4k/s."""
    if perSecond < 1000:
        return f"{perSecond:.0f}/s"
    return f"{perSecond / 1000:.1f}k/s" if perSecond < 1e6 else f"{perSecond / 1e6:.1f}M/s"


def figures(row: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the names and values of a row's figures, without epoch, step, rate and time."""
    return [(name, number(value)) for name, value in row.items() if name not in LEFTOUT]


def epochLine(row: dict[str, Any], last: int) -> list[tuple[str, str]]:
    """Return the (name, value) pairs of an epoch's line; `last` is the number of the run's last epoch."""
    epoch = f"{row['epoch']:{len(str(last))}}/{last}"
    return [("epoch", epoch), *figures(row), ("rate", rate(row["rate"])), ("", duration(row["seconds"]))]


def inRows(pairs: list[tuple[str, str]], width: int) -> list[list[tuple[str, str]]]:
    """Arrange the pairs of an epoch's line on one row if they fit, else on several, with separate validation rows."""
    sizes = [len(shown(pair)) + 2 for pair in pairs]
    if sum(sizes) - 2 <= width:
        return [pairs]
    rows: list[list[tuple[str, str]]] = [[]]
    used, before = 0, ""
    for pair, size in zip(pairs, sizes):
        isFirst = pair[0].startswith("val ") and not before.startswith("val ")
        if rows[-1] and (isFirst or used + size - 2 > width):
            rows.append([])
            used = sizes[0]
        rows[-1].append(pair)
        used, before = used + size, pair[0]
    return rows


def shown(pair: tuple[str, str]) -> str:
    """Format a pair: a name and its value, or a value alone."""
    return " ".join(pair).strip()
