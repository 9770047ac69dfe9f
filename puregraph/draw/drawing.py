"""Drawing: a picture that can be saved or shown in a notebook."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from puregraph.core.arguments import FilePath, Flag, Size, takes
from puregraph.core.errors import ArgumentError, PuregraphError
from puregraph.core.storage.atomicwrite import whole
from puregraph.draw.collapsing import collapsed, fitting, withoutRepeats
from puregraph.draw.dot import dotText
from puregraph.draw.escape import markup
from puregraph.draw.graphpicture import graphPicture
from puregraph.draw.layout.placement import placed
from puregraph.draw.page import pageText
from puregraph.draw.picture import Picture
from puregraph.draw.svg import svgText
from puregraph.graph.backward import BackwardGraph

if TYPE_CHECKING:
    from puregraph.core.protocols import StrPath
    from puregraph.graph.graph import Graph

PIXELS_PER_UNIT = 2  # pixels of a .png per unit of the picture


def write(path: StrPath, makers: dict[str, Callable[[], str]]) -> None:
    """Write a file with the function in `makers` for the ending of its name; a .png is converted from the .svg.

    Raises    ArgumentError for an ending without a function
    """
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in (*makers, ".png"):
        wanted = ", ".join((*makers, ".png"))
        raise ArgumentError(f"wanted a file name that ends in {wanted}, got {os.fspath(path)!r:.200}")
    made = pngBytes(makers[".svg"]()) if suffix == ".png" else makers[suffix]().encode()
    with whole(path) as file:
        file.write(made)


def pngBytes(text: str) -> bytes:
    """Convert SVG to PNG.

    Raises    PuregraphError saying what to install if there is no converter
    """
    try:
        return bytes(import_module("resvg_py").svg_to_bytes(svg_string=text, zoom=PIXELS_PER_UNIT))
    except ImportError:
        pass
    try:
        return import_module("cairosvg").svg2png(bytestring=text.encode(), scale=PIXELS_PER_UNIT)
    except (ImportError, OSError) as error:  # OSError: there is no libcairo
        raise PuregraphError(
            "a .png is converted from SVG by resvg-py or CairoSVG, and neither is installed: pip install "
            "'puregraph[draw]'; a .svg file needs none"
        ) from error


class Drawing:
    """A picture that can be saved or shown in a notebook.

    `depth`     groups nested deeper become one box each; by default the greatest depth with at most 120 boxes
    `repeats`   whether consecutive equal groups are all drawn; otherwise only the first, marked "x 12"
    `beside`    pictures that a page shows next to this one
    """

    def __init__(
        self, picture: Picture, depth: int | None = None, repeats: bool = False, beside: Sequence[Picture] = ()
    ):
        self.whole, self.beside = picture, [p if repeats else withoutRepeats(p) for p in beside]
        self.unrepeated = picture if repeats else withoutRepeats(picture)
        self.depth = fitting(self.unrepeated) if depth is None else depth

    @property
    def picture(self) -> Picture:
        """The picture to draw, with groups collapsed."""
        return collapsed(self.unrepeated, self.depth)

    def svg(self) -> str:
        """The picture as SVG.

        Raises    PuregraphError naming the package to install, if the layout library is missing
        """
        return svgText(placed(self.picture))

    def html(self) -> str:
        """Return a page with the picture at every depth, the details of each node, search and keys. It works offline.

        Raises    PuregraphError naming the package to install, if the layout library is missing
        """
        return pageText([*self.beside, self.unrepeated], self.depth)

    def dot(self) -> str:
        """The picture in the DOT language."""
        return dotText(self.picture)

    @takes(path=FilePath)
    def save(self, path: StrPath) -> None:
        """Write a file in the format of its ending: .svg, .html, .dot or .png.

        Raises    ArgumentError for another ending; PuregraphError naming a missing package to install
        """
        write(path, {suffix: getattr(self, suffix[1:]) for suffix in (".svg", ".html", ".dot")})

    def _repr_html_(self) -> str:
        data = b64encode(self.svg().encode()).decode()  # as an image, so that its style does not affect the page
        return f'<img style="max-width: 100%" alt="{markup(repr(self))}" src="data:image/svg+xml;base64,{data}">'

    def __repr__(self) -> str:
        return f"<Drawing of {self.whole.title}: {len(self.picture.boxes)} boxes>"


@takes(path=FilePath | None, depth=Size | None, repeats=Flag)
def drawGraph(
    graph: Graph, path: StrPath | None = None, *shapes: Any, depth: int | None = None, repeats: bool = False
) -> Drawing:
    """Draw this graph: `net.draw("net.svg", ("N", 1, 28, 28))`; also .html, .dot, .png, or no file in a notebook.

    Without `shapes`, the last inferred shapes are used, or those that the inputs declare. Faulty nodes are marked.
    Groups nested deeper than `depth` become one box each (by default the depth with at most 120 boxes); `repeats`
    draws equal groups in a row one by one. For a backward graph, pass the shapes of its forward graph, which its page
    shows beside it.

    Raises    ArgumentError for another kind of file; PuregraphError naming a missing package to install
    """
    forward = getattr(graph, "forwardGraph", None)
    beside = [graphPicture(forward, *shapes)] if type(graph) is BackwardGraph and forward is not None else []
    drawing = Drawing(graphPicture(graph, *shapes), depth, repeats, beside)
    if path is not None:
        drawing.save(path)
    return drawing
