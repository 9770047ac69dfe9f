"""Collapsing: groups below a depth become boxes, and consecutive equal groups become one with their number."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from puregraph.core.errors import plural
from puregraph.draw.graphpicture import costLine, totals
from puregraph.draw.picture import Picture, PictureBox, PictureEdge, replaced

MAX_DEFAULT_BOXES = 120  # maximum number of boxes at the default depth


def fitting(picture: Picture, most: int = MAX_DEFAULT_BOXES) -> int:
    """The greatest depth at which there are at most `most` boxes."""
    depth = 0
    for deeper in range(1, picture.depth + 1):
        if countAt(picture, deeper) > most:
            break
        depth = deeper
    return depth


def countAt(picture: Picture, depth: int) -> int:
    """Count the boxes at a depth."""
    return len({collapsedInto(picture, box.group, depth) or box.name for box in picture.boxes})


def collapsedInto(picture: Picture, group: str, depth: int) -> str:
    """Return the collapsed group that contains a group; "" if none does."""
    collapsed, level = "", picture.depthOf(group)
    while group and level > depth:
        collapsed, group, level = group, picture.groups[group].parent, level - 1
    return collapsed


def collapsed(picture: Picture, depth: int) -> Picture:
    """The picture in which every group nested in `depth` others is one box."""
    names: dict[str, str] = {}
    inside: dict[str, list[PictureBox]] = defaultdict(list)
    boxes: list[PictureBox | str] = []
    for box in picture.boxes:
        into = collapsedInto(picture, box.group, depth)
        if not into:
            boxes.append(box)
            continue
        names[box.name] = f"group {into}"
        if not inside[into]:
            boxes.append(into)
        inside[into].append(box)
    made = [box if isinstance(box, PictureBox) else groupBox(picture, box, inside[box]) for box in boxes]
    groups = {name: g for name, g in picture.groups.items() if picture.depthOf(name) <= depth}
    return Picture(picture.title, made, groups, unported(picture.labelled(names), names), picture.notes)


def unported(edges: list[PictureEdge], names: dict[str, str]) -> list[PictureEdge]:
    """Edges without the names of arguments and outputs inside collapsed groups; parallel ones become one edge."""
    hidden = set(names.values())
    slotless = [e._replace(slot="") if e.source in hidden else e for e in edges]
    plain = [e._replace(argument="") if e.target in hidden else e for e in slotless]
    single = {(e.source, e.target, e.value, e.argument): e for e in plain}.values()
    alike: dict[tuple, list[PictureEdge]] = defaultdict(list)
    for i, edge in enumerate(single):
        key = edge.source, edge.target, edge.label, edge.kind
        alike[(*key, "") if {edge.source, edge.target} & hidden else (*key, str(i))].append(edge)
    return [several(edges) for edges in alike.values()]


def several(edges: list[PictureEdge]) -> PictureEdge:
    """One edge for several values of the same shape between two boxes, labelled like `3 x (N, 10)`."""
    first, count = edges[0], len(edges)
    if count == 1:
        return first
    label = f"{count} \N{MULTIPLICATION SIGN} {first.label}" if first.label else ""
    return first._replace(value=" and ".join(edge.value for edge in edges), label=label)


def groupBox(picture: Picture, name: str, inside: list[PictureBox]) -> PictureBox:
    """Return the box of a collapsed group, with the total cost of its nodes, and their faults."""
    group = picture.groups[name]
    box = PictureBox(f"group {name}", group.title, "group", (), group.parent, repeats=group.repeats, **totals(inside))
    suffix = " each" if group.repeats > 1 else ""
    lines = [f"{group.module}, {plural(box.count, 'node')}", *([costLine(box) + suffix] if costLine(box) else [])]
    faults = [b for b in inside if b.kind == "fault"]
    for fault in faults[:3]:
        lines += [f"{fault.title}:", *fault.lines[1:]]
    story = (("group", name), ("module", group.module), ("nodes", str(box.count)), ("costs", costLine(box)))
    kind = "fault" if faults else "group"
    return replaced(box, kind=kind, lines=tuple(lines), story=(*story, *(s for b in faults for s in b.story)))


# Equal groups in a row ------------------------------------------------------------------------------------------------


def withoutRepeats(picture: Picture) -> Picture:
    """The picture with each run of equal groups, each of which reads the previous one, drawn once and marked `x 12`."""
    for depth in range(1, picture.depth + 1):  # outer groups first
        runs = runsAt(picture, depth)
        picture = merged(picture, runs) if runs else picture
    return picture


def runsAt(picture: Picture, depth: int) -> list[list[str]]:
    """Return the runs of at least two equal groups at a depth."""
    contents: dict[str, list[PictureBox]] = defaultdict(list)
    for box in picture.boxes:
        group, level = box.group, picture.depthOf(box.group)
        while level > depth:
            group, level = picture.groups[group].parent, level - 1
        if level == depth:
            contents[group].append(box)
    into: dict[str, list[PictureEdge]] = defaultdict(list)
    outof: dict[str, list[PictureEdge]] = defaultdict(list)
    for edge in picture.edges:
        into[edge.target].append(edge)
        outof[edge.source].append(edge)
    siblings: dict[str, list[str]] = defaultdict(list)
    for name in contents:  # in the order of their first boxes
        siblings[picture.groups[name].parent].append(name)
    runs = []
    for names in siblings.values():
        forms = {name: formOf(picture, name, contents[name], into, outof) for name in names}
        run, links = [names[0]], None
        for name in [*names[1:], ""]:
            link = linksOf(run[-1], name, forms) if name else None
            if link and links in (None, link):
                run.append(name)
                links = link
                continue
            runs += [run] if len(run) > 1 else []
            run, links = [name], None
    return runs


class GroupForm:
    """The form of a group: its content, its inputs from outside, and its outputs."""

    def __init__(self, inside: tuple, inputs: list[tuple[str, str, str]], outputs: set[tuple[str, str]]):
        self.inside, self.inputs, self.outputs = inside, inputs, outputs


def formOf(
    picture: Picture,
    name: str,
    boxes: list[PictureBox],
    into: dict[str, list[PictureEdge]],
    outof: dict[str, list[PictureEdge]],
) -> GroupForm:
    """Return the form of a group, with the names of its nodes relative to the group."""
    cut = len(name) + 1
    members = {box.name for box in boxes}
    inside, inputs = [], []
    for box in boxes:
        edges = []
        for edge in into[box.name]:
            isInner = edge.source in members
            edges.append((edge.source[cut:] if isInner else "", edge.label, edge.slot, edge.argument, edge.kind))
            inputs += [] if isInner else [(edge.source, edge.value, box.name[cut:])]
        appearance = (box.title, box.kind, box.lines, box.params, box.nbytes, box.flops, box.repeats)
        inside.append((box.name[cut:], appearance, tuple(edges)))
    outputs = {(e.source[cut:], e.target) for box in boxes for e in outof[box.name] if e.target not in members}
    return GroupForm((picture.groups[name].module, tuple(inside)), inputs, outputs)


def linksOf(name: str, after: str, forms: dict[str, GroupForm]) -> list[str] | None:
    """Return the values that a group `after` reads from the group before it, if both are equal and share all other
    inputs; otherwise None."""
    one, other = forms[name], forms[after]
    if one.inside != other.inside or len(one.inputs) != len(other.inputs):
        return None
    prefix = f"{name}."
    links = [source.removeprefix(prefix) if source.startswith(prefix) else "" for source, _, _ in other.inputs]
    isSame = all(link or a == b for link, a, b in zip(links, one.inputs, other.inputs))
    return links if isSame and any(links) and all(target.startswith(f"{after}.") for _, target in one.outputs) else None


def merged(picture: Picture, runs: list[list[str]]) -> Picture:
    """The picture with each run of groups replaced by its first group."""
    runOf = {name: run for run in runs for name in run[1:]}
    gone: dict[str, str] = {}  # by removed group, also nested: the group of a run that it is in
    for group in picture.groups:
        outer = group
        while outer and outer not in runOf:
            outer = picture.groups[outer].parent
        if outer:
            gone[group] = outer
    names: dict[str, str] = {}
    kept: dict[str, str] = {}  # boxes of the last group of each run, which other boxes read
    for box in picture.boxes:
        outer = gone.get(box.group, "")
        if outer:
            names[box.name] = runOf[outer][0] + box.name[len(outer) :]
            if outer == runOf[outer][-1]:
                kept[box.name] = names[box.name]
    # edges into later groups are dropped: they come from the previous group, or equal the first group's
    edges = [e._replace(source=kept.get(e.source, e.source)) for e in picture.edges if e.target not in names]
    groups = picture.without(gone)
    for run in runs:
        first, last = groups[run[0]], picture.groups[run[-1]]
        title = f"{first.title} \N{HORIZONTAL ELLIPSIS} {last.title}"
        groups[run[0]] = replace(first, title=title, repeats=len(run))
    boxes = [box for box in picture.boxes if box.name not in names]
    return Picture(picture.title, boxes, groups, edges, picture.notes)
