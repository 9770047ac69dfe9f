"""Any text as text inside of markup: no name can become code, and none can break a file."""

from __future__ import annotations

import unicodedata
from html import escape

CONTROLS = {"Cc", "Cs", "Co", "Cn"}
REVERSING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
INSTEAD = "\N{REPLACEMENT CHARACTER}"


def visible(text: str) -> str:
    """A text on one line without what XML forbids, and without what turns the order of letters around."""
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
    """A text as HTML that keeps its lines and columns, in whatever page it stands."""
    lines = "\n".join(map(markup, text.split("\n")))
    return f'<pre style="font-family: monospace; white-space: pre; line-height: 1.25; overflow-x: auto">{lines}</pre>'


def dotQuoted(text: str) -> str:
    """A text as a quoted string of the DOT language; lines stay lines."""
    return '"' + "\\n".join(visible(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n")) + '"'
