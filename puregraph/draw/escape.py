"""Escape: any text as text inside markup, so that no name can become code or break a file."""

from __future__ import annotations

import unicodedata
from html import escape

CONTROLS = {"Cc", "Cs", "Co", "Cn"}
REVERSING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
INSTEAD = "\N{REPLACEMENT CHARACTER}"


def visible(text: str) -> str:
    """A text on one line, without characters that XML forbids or that reverse the order of letters."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(" " if letter in "\t\r\n" else INSTEAD if isHidden(letter) else letter for letter in text)


def isHidden(letter: str) -> bool:
    """True for a character that must be escaped in a file."""
    return letter in REVERSING or unicodedata.category(letter) in CONTROLS or letter in "\u2028\u2029"


def markup(text: str) -> str:
    """A text between tags or in the quotes of an attribute."""
    return escape(visible(text), quote=True)


def preformatted(text: str) -> str:
    """A text as HTML that keeps its lines and columns in any page."""
    lines = "\n".join(map(markup, text.split("\n")))
    return f'<pre style="font-family: monospace; white-space: pre; line-height: 1.25; overflow-x: auto">{lines}</pre>'


def dotQuoted(text: str) -> str:
    """A text as a quoted string of the DOT language, with its line breaks."""
    return '"' + "\\n".join(visible(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n")) + '"'
