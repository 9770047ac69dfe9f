"""Page: pictures at every depth in one HTML file, with the details of each box, and a script to navigate and search."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from puregraph.draw.collapsing import collapsed, fitting
from puregraph.draw.escape import markup, visible
from puregraph.draw.layout.placement import PlacedPicture, placed
from puregraph.draw.picture import Picture
from puregraph.draw.svg import STYLE, body

MAX_PAGE_BOXES = 1200  # maximum number of boxes of the deepest picture on a page
FOLDER = Path(__file__).parent
HELP = (
    "drag to move, wheel or + and - to zoom, 0 to fit, 1 for 100 %; click for a node's story, shift-click for the path "
    "to a second one; [ and ] or a double click on a group for the depth; / to search, n for the next; d for dark"
)


def pageText(pictures: Sequence[Picture], depth: int | None = None) -> str:
    """The HTML page of pictures side by side; `depth` is the depth that is shown first."""
    title = pictures[0].title
    style, script = read("page.css"), read("page.js")
    panes, stories = [], []
    first = max(fitting(picture) for picture in pictures) if depth is None else depth
    for picture in pictures:
        deepest = min(fitting(picture, MAX_PAGE_BOXES), picture.depth)
        views = [placed(collapsed(picture, d)) for d in range(deepest + 1)]
        panes.append("".join(viewSvg(view, d) for d, view in enumerate(views)))
        stories.append(storyOf(views))
    deepest = max(view.count("<svg") for view in panes) - 1
    options = "".join(f'<option value="{d}">depth {d}</option>' for d in range(deepest + 1))
    listing = "".join(f"<h2>{markup(picture.title)}</h2>{listOf(picture)}" for picture in pictures)
    known = json.dumps({"depth": min(first, deepest), "panes": stories}, ensure_ascii=True).replace("<", "\\u003c")
    policy = f"default-src 'none'; style-src 'sha256-{digest(style + STYLE)}'; script-src 'sha256-{digest(script)}'"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{markup(title)}</title>
<style>{style}{STYLE}</style>
</head>
<body>
<header><h1>{markup(title)}</h1>
<input id="search" type="search" placeholder="name, module or shape" aria-label="search for a name, module or shape">
<label>collapsed to <select id="depth">{options}</select></label>
<button id="fit" type="button">fit</button><button id="theme" type="button">light / dark</button>
<span id="live" role="status" aria-live="polite"></span></header>
<main>{"".join(f'<div class="pane">{pane}</div>' for pane in panes)}<aside id="story" aria-label="the selected node"><p>{HELP}</p></aside></main>
<footer><details><summary>listing</summary>{listing}</details></footer>
<script type="application/json" id="data">{known}</script>
<script>{script}</script>
</body>
</html>
"""  # noqa: E501


def read(name: str) -> str:
    """Read a text file in this folder."""
    return (FOLDER / name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """Return the digest that a browser checks before it uses a style or script; it refuses all others."""
    return b64encode(sha256(text.encode()).digest()).decode()


def viewSvg(view: PlacedPicture, depth: int) -> str:
    """The SVG of a picture at one depth; each box can be focused with the keyboard."""
    size = f'data-width="{view.width:g}" data-height="{view.height:g}" viewBox="0 0 {view.width:g} {view.height:g}"'
    drawn = [
        line.replace('<g class="box ', '<g tabindex="0" role="button" class="box ', 1)
        if line.startswith('<g class="box ')
        else line
        for line in body(view)
    ]
    sheet = f'<rect class="sheet" width="{view.width:g}" height="{view.height:g}"/>'
    label = f'data-depth="{depth}" role="group" aria-label="{markup(view.picture.title)}" hidden'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {label}>{sheet}{"".join(drawn)}</svg>'


def storyOf(views: list[PlacedPicture]) -> dict[str, object]:
    """Return the details of each box, and its edges at each depth."""
    boxes = {box.name: box for view in views for box in view.picture.boxes}
    return {
        "boxes": {visible(name): [[what, clean(text)] for what, text in box.story] for name, box in boxes.items()},
        "matches": {visible(name): visible(box.matches) for name, box in boxes.items() if box.matches},
        "edges": [
            [[visible(e.source), visible(e.target), visible(f"{e.slot} {e.label}".strip())] for e in view.picture.edges]
            for view in views
        ],
    }


def clean(text: str) -> str:
    """A text of several lines without characters that must not be in a file."""
    return "\n".join(map(visible, text.split("\n")))


def listOf(picture: Picture) -> str:
    """Return a picture as a text list in the order of computation, for screen readers."""
    sources: dict[str, list[str]] = {}
    for edge in picture.edges:
        sources.setdefault(edge.target, []).append(f"{edge.source} {edge.label}".strip())
    items = []
    for box in picture.boxes:
        reads = f"; reads {', '.join(sources[box.name])}" if box.name in sources else ""
        fault = "FAULT: " if box.kind == "fault" else ""
        items.append(f"<li>{markup(fault + '; '.join((box.name, *box.lines)) + reads)}</li>")
    return f"<ol>{''.join(items)}</ol>"
