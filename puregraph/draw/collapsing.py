"""Collapsing: groups below a depth become boxes, and equal groups in a row become one that says how many they are."""

from __future__ import annotations

from collections import defaultdict

from puregraph.draw.graphpicture import costLine, totals
from puregraph.draw.picture import Picture, PictureBox, PictureEdge, PictureGroup, replaced
from puregraph.errors import plural

MOST = 120  # boxes that are drawn where nobody says a depth


def fitting(picture: Picture, most: int = MOST) -> int:
    """The greatest depth at which at most `most` boxes are left."""
    depth = 0
    for deeper in range(1, picture.depth + 1):
        if countAt(picture, deeper) > most:
            break
        depth = deeper
    return depth


def countAt(picture: Picture, depth: int) -> int:
    """How many boxes there are at a depth."""
    return len({collapsedInto(picture, box.group, depth) or box.name for box in picture.boxes})


def collapsedInto(picture: Picture, group: str, depth: int) -> str:
    """The group whose box stands for what is in a group; "" where it is not collapsed."""
    found, level = "", picture.depthOf(group)
    while group and level > depth:
        found, group, level = group, picture.groups[group].parent, level - 1
    return found


def collapsed(picture: Picture, depth: int) -> Picture:
    """The picture with every group inside of `depth` others as one box."""
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
    """Edges without the names of arguments and outputs that are inside of a collapsed group."""
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
    """Values of one shape between the same boxes as one edge: `3 x (N, 10)`."""
    first, count = edges[0], len(edges)
    if count == 1:
        return first
    label = f"{count} \N{MULTIPLICATION SIGN} {first.label}" if first.label else ""
    return first._replace(value=" and ".join(edge.value for edge in edges), label=label)


def groupBox(picture: Picture, name: str, inside: list[PictureBox]) -> PictureBox:
    """The box of a collapsed group: what its nodes cost together, and their fault if one has one."""
    group = picture.groups[name]
    box = PictureBox(f"group {name}", group.title, "group", (), group.parent, repeats=group.repeats, **totals(inside))
    each = " each" if group.repeats > 1 else ""
    lines = [f"{group.module}, {plural(box.count, 'node')}", *([costLine(box) + each] if costLine(box) else [])]
    faults = [b for b in inside if b.kind == "fault"]
    for fault in faults[:3]:
        lines += [f"{fault.title}:", *fault.lines[1:]]
    story = (("group", name), ("module", group.module), ("nodes", str(box.count)), ("costs", costLine(box)))
    kind = "fault" if faults else "group"
    return replaced(box, kind=kind, lines=tuple(lines), story=(*story, *(s for b in faults for s in b.story)))


# Equal groups in a row ------------------------------------------------------------------------------------------------


def withoutRepeats(picture: Picture) -> Picture:
    """The picture with runs of equal groups, each reading the one before it, drawn once: `x 12`."""
    while True:
        run = nextRun(picture)
        if run is None:
            return picture
        picture = merged(picture, run)


def nextRun(picture: Picture) -> list[str] | None:
    """The first run of at least two equal groups, the outer ones before what is inside of them."""
    contents: dict[str, list[PictureBox]] = defaultdict(list)
    for box in picture.boxes:
        group = box.group
        while group:
            contents[group].append(box)
            group = picture.groups[group].parent
    into: dict[str, list[PictureEdge]] = defaultdict(list)
    outof: dict[str, list[PictureEdge]] = defaultdict(list)
    for edge in picture.edges:
        into[edge.target].append(edge)
        outof[edge.source].append(edge)
    siblings: dict[str, list[str]] = defaultdict(list)
    order = {box.name: i for i, box in enumerate(picture.boxes)}
    for name in sorted(
        picture.groups, key=lambda g: (picture.depthOf(g), order[contents[g][0].name] if contents[g] else 0)
    ):
        if contents[name] and picture.groups[name].repeats == 1:
            siblings[picture.groups[name].parent].append(name)
    for names in siblings.values():
        forms = {name: formOf(picture, name, contents[name], into, outof) for name in names}
        run = [names[0]]
        for name in [*names[1:], ""]:
            if name and follows(run[-1], name, forms):
                run.append(name)
                continue
            if len(run) > 1:
                return run
            run = [name]
    return None


class GroupForm:
    """What a group is like: its inside, what it takes from outside, and what others take from it."""

    def __init__(self, inside: tuple, taken: list[tuple[str, str, str]], given: set[tuple[str, str]]):
        self.inside, self.taken, self.given = inside, taken, given


def formOf(
    picture: Picture,
    name: str,
    boxes: list[PictureBox],
    into: dict[str, list[PictureEdge]],
    outof: dict[str, list[PictureEdge]],
) -> GroupForm:
    """The form of a group, with names as they are seen from inside."""
    cut = len(name) + 1
    own = {box.name for box in boxes}
    inside, taken = [], []
    for box in boxes:
        edges = []
        for edge in into[box.name]:
            isInner = edge.source in own
            edges.append((edge.source[cut:] if isInner else "", edge.label, edge.slot, edge.argument, edge.kind))
            taken += [] if isInner else [(edge.source, edge.value, box.name[cut:])]
        looks = (box.title, box.kind, box.lines, box.params, box.nbytes, box.flops, box.repeats)
        inside.append((box.name[cut:], looks, tuple(edges)))
    given = {(e.source[cut:], e.target) for box in boxes for e in outof[box.name] if e.target not in own}
    return GroupForm((picture.groups[name].module, tuple(inside)), taken, given)


def follows(name: str, after: str, forms: dict[str, GroupForm]) -> bool:
    """Whether a group is equal to the one before it and reads nothing but that one, or what both read."""
    one, other = forms[name], forms[after]
    if one.inside != other.inside or len(one.taken) != len(other.taken):
        return False
    prefix = f"{name}."
    chained = [source.startswith(prefix) for source, _, _ in other.taken]
    same = all(isChained or a == b for isChained, a, b in zip(chained, one.taken, other.taken))
    return same and any(chained) and all(target.startswith(f"{after}.") for _, target in one.given)


def merged(picture: Picture, run: list[str]) -> Picture:
    """The picture with a run of groups as its first one."""
    first, last = run[0], run[-1]
    names: dict[str, str] = {}
    gone: set[str] = set()
    for name in run[1:]:
        gone.update(g for g in picture.groups if g == name or g.startswith(f"{name}."))
    for box in picture.boxes:
        for name in run[1:]:
            if box.name.startswith(f"{name}."):
                names[box.name] = first + box.name[len(name) :]
    owner = {old: old.removesuffix(new[len(first) :]) for old, new in names.items()}
    edges = []
    for edge in picture.edges:
        isInner = edge.target in names
        isFrom = edge.source in names
        if isInner:
            continue  # what a later one reads is what the first one reads, or the one before
        edges.append(edge._replace(source=names[edge.source]) if isFrom and owner[edge.source] == last else edge)
    groups = picture.without(gone)
    count = len(run)
    groups[first] = PictureGroup(
        first, f"{groups[first].title} \N{HORIZONTAL ELLIPSIS} {picture.groups[last].title}",
        groups[first].parent, groups[first].module, count,
    )  # fmt: skip
    boxes = [box for box in picture.boxes if box.name not in names]
    return Picture(picture.title, boxes, groups, edges, picture.notes)
