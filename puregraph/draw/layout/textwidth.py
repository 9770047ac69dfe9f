"""Text width, without a font: Helvetica's widths, enlarged for wider fonts that may replace it."""

from __future__ import annotations

import unicodedata

DEJAVU_WIDENING = 1.13  # DejaVu Sans is wider by this factor
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
WIDTHS = {  # thousandths of the size
    191: "'", 222: "ijl", 260: "|", 278: " !,./:;I[\\]ft", 333: "()-r`", 334: "{}", 355: '"', 389: "*", 469: "^",
    500: "Jckvxyz", 556: "#$0123456789?L_abdeghnopqu", 584: "+<=>~", 611: "FTZ", 667: "&ABEKPSVXY", 722: "CDHNRUw",
    778: "GOQ", 833: "Mm", 889: "%", 944: "W", 1015: "@",
}  # fmt: skip
WIDTH = {letter: width / 1000 for width, letters in WIDTHS.items() for letter in letters}


def textWidth(text: str, size: float, isBold: bool = False) -> float:
    """An upper bound of the width of a text in most fonts."""
    return sum(map(letterWidth, text)) * size * DEJAVU_WIDENING * (1.07 if isBold else 1)


def letterWidth(letter: str) -> float:
    """The width of one character at size 1."""
    known = WIDTH.get(letter)
    if known is not None:
        return known
    if unicodedata.combining(letter):
        return 0.0
    return 1.05 if unicodedata.east_asian_width(letter) in "WF" else 0.75


def shortened(text: str, size: float, width: float, isBold: bool = False) -> str:
    """The text, cut at the end if it is wider than allowed."""
    if textWidth(text, size, isBold) <= width:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if textWidth(text[:middle] + ELLIPSIS, size, isBold) <= width:
            low = middle
        else:
            high = middle - 1
    return text[:low] + ELLIPSIS
