"""Partition table: the pieces of a step, and the calls of each program."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from puregraph.core.errors import plural, show

if TYPE_CHECKING:
    from typing import Any

HEAD = ("piece", "nodes", "runs as")
TABLE_COLUMNS = 120
MAX_PIECE_LINES = 2  # most lines for the nodes of a piece


def partitionTable(pieces: Sequence[Any], updaters: Sequence[Any]) -> str:
    """Every piece with its nodes and how it runs; then the table of every program."""
    rows = [
        (str(i), ", ".join(s.path for s in piece.partition.items), manner(piece)) for i, piece in enumerate(pieces, 1)
    ]
    rows += [(str(len(pieces) + 1), f"update by {type(u.optimizer).__name__}", "a program") for u in updaters]
    wide = max(map(len, [HEAD[2], *(row[2] for row in rows)]))
    middle = min(TABLE_COLUMNS - wide - len(HEAD[0]) - 4, max(map(len, [HEAD[1], *(row[1] for row in rows)])))
    lines = [f"{HEAD[0]}  {HEAD[1].ljust(middle)}  {HEAD[2]}"]
    lines += ["-" * (middle + wide + len(HEAD[0]) + 4)]
    for number, nodes, how in rows:
        first, *more = textwrap.wrap(nodes, middle, max_lines=MAX_PIECE_LINES, placeholder=" ...")
        lines.append(f"{number.rjust(5)}  {first.ljust(middle)}  {how}".rstrip())
        lines += [f"{'':5}  {line}" for line in more]
    parts = [(i, p) for i, piece in enumerate(pieces, 1) for p in piece.compiled]
    parts += [(len(pieces) + 1, p) for p in updaters if p.executable is not None]
    tables = [f"piece {i}, {', '.join(map(show, p.shapes)) or 'no inputs'}\n\n{p.table()}" for i, p in parts]
    return "\n\n".join(["\n".join(lines), *tables])


def manner(piece: Any) -> str:
    """A few words on how a piece runs: compiled for some sizes, or as Python."""
    sizes = ", ".join(piece.partition.sizes)
    if piece.partition.isOpen:
        return f"as it is: {sizes} depends on the data" if sizes else "as it is"
    count = len(piece.compiled)
    forSizes = f" for each {sizes}" if sizes else ""
    eager = f", {plural(piece.eager, 'run')} without" if piece.eager else ""
    return f"a program{forSizes}: {count} so far{eager}"
