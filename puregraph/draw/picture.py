"""Picture: boxes, groups around them and edges between them, without coordinates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any


class PictureEdge(NamedTuple):
    """A value that one box passes to another.

    `value`     distinguishes values: edges of one value have one label
    `label`     its shape, and its dtype if it differs from the graph's
    `slot`      the name of the output, if its source has several; `argument`: the name of the input at its target
    `kind`      "" for a value, "kept" for one that the backward pass also reads, "state" for one of the next step
    """

    source: str
    target: str
    value: str
    label: str = ""
    slot: str = ""
    argument: str = ""
    kind: str = ""


@dataclass(frozen=True)
class PictureBox:
    """One box: a node, an input, an output, or a collapsed group.

    `kind`      "input", "output", "module", "state" (has running statistics), "cost", "gradient", "update", "fault",
                "unknown" (after a fault), "group": each has a different shape
    `lines`     the text below the name; `story` (name, text): the details that a page shows on a click
    `params`, `nbytes`, `flops`   the total cost of its `count` nodes, if known
    `slots`, `arguments`          the names of its outputs and inputs, if they are drawn
    `matches`   the name of the corresponding box in another picture
    `heat`      from 0 to 1
    """

    name: str
    title: str
    kind: str = "module"
    lines: tuple[str, ...] = ()
    group: str = ""
    story: tuple[tuple[str, str], ...] = ()
    params: int = 0
    nbytes: int | None = None
    flops: int | None = None
    count: int = 1
    repeats: int = 1
    slots: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    matches: str = ""
    heat: float | None = None


@dataclass(frozen=True)
class PictureGroup:
    """A frame around the boxes of a nested graph; `repeats`: the number of consecutive equal graphs it stands for."""

    name: str
    title: str
    parent: str = ""
    module: str = ""
    repeats: int = 1


@dataclass
class Picture:
    """The boxes to draw, in the order of computation; `notes` are lines below the title."""

    title: str
    boxes: list[PictureBox] = field(default_factory=list)
    groups: dict[str, PictureGroup] = field(default_factory=dict)
    edges: list[PictureEdge] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    def depthOf(self, group: str) -> int:
        """Return the number of frames around the nodes of a group, including the group's frame."""
        depth = 0
        while group:
            depth, group = depth + 1, self.groups[group].parent
        return depth

    @property
    def depth(self) -> int:
        """The deepest nesting of frames."""
        return max(map(self.depthOf, self.groups), default=0)

    def without(self, gone: Iterable[str]) -> dict[str, PictureGroup]:
        """The groups except some."""
        dropped = set(gone)
        return {name: group for name, group in self.groups.items() if name not in dropped}

    def labelled(self, names: dict[str, str]) -> list[PictureEdge]:
        """The edges after boxes are replaced by others in `names`: without duplicates and edges inside one box."""
        moved = [
            edge._replace(source=names.get(edge.source, edge.source), target=names.get(edge.target, edge.target))
            for edge in self.edges
        ]
        return list({(e.source, e.target, e.value, e.argument): e for e in moved if e.source != e.target}.values())


def replaced(box: PictureBox, **changes: Any) -> PictureBox:
    """A copy of a box with some fields changed."""
    return replace(box, **changes)
