"""SVG as PNG, by a converter that is installed."""

from __future__ import annotations

from importlib import import_module

from puregraph.errors import PuregraphError

SCALE = 2  # dots for each unit of the picture


def pngBytes(text: str) -> bytes:
    """The picture of an SVG text.

    Raises    PuregraphError saying what to install, where there is no converter
    """
    try:
        return bytes(import_module("resvg_py").svg_to_bytes(svg_string=text, zoom=SCALE))
    except ImportError:
        pass
    try:
        return import_module("cairosvg").svg2png(bytestring=text.encode(), scale=SCALE)
    except (ImportError, OSError) as error:  # OSError: there is no libcairo
        raise PuregraphError(
            "a .png is converted from SVG by resvg-py or CairoSVG, and neither is installed: pip install resvg-py; "
            "a .svg file needs none"
        ) from error
