"""NamePattern: a name with holes, `layer{s}.{b}.conv{c}`; matched to fill the holes, filled to make a name.

{i}      any text without a dot or slash
{i+1}    a whole number, one larger than the hole i
*        any text with dots; `*.` at the beginning may also match nothing
"""

from __future__ import annotations

import re
from typing import NamedTuple

from puregraph.core.errors import ArgumentError, quote

TOKEN = re.compile(r"\{(\w+)(?:([+-])(\d+))?\}|\*|[^{*]+")
Holes = dict[str, str]


class PatternHole(NamedTuple):
    """A hole of a pattern: its name (`*0`, `*1` for stars), and the offset of its number."""

    name: str
    offset: int = 0


class NamePattern:
    """A name with holes.

    `numbered`  holes that hold whole numbers: those with an offset anywhere in a row of a map
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.parts: list[str | PatternHole] = []
        end = stars = 0
        for token in TOKEN.finditer(text):
            if token.start() != end:
                break
            end = token.end()
            if token[0] == "*":
                self.parts.append(PatternHole(f"*{stars}"))
                stars += 1
            elif token[1]:
                self.parts.append(PatternHole(token[1], int((token[2] or "+") + (token[3] or "0"))))
            else:
                self.parts.append(token[0])
        if end != len(text) or not text:
            raise ArgumentError(f"{quote(text)} is not a pattern of names; holes are {{i}}, {{i+1}} and *")
        self.holes = {part.name for part in self.parts if isinstance(part, PatternHole)}
        self.numbered = {part.name for part in self.parts if isinstance(part, PatternHole) and part.offset}
        self.hasStem = text.startswith("*.")
        self.expression: re.Pattern[str] | None = None

    def compiled(self) -> re.Pattern[str]:
        """The regular expression of the pattern."""
        if self.expression is None:
            rows: list[str] = []
            seen: set[str] = set()
            for i, part in enumerate(self.parts):
                if not isinstance(part, PatternHole):
                    rows.append(re.escape(part[1:] if i == 1 and self.hasStem else part))
                elif i == 0 and self.hasStem:
                    rows.append(r"(?:(?P<s0>.*)\.)?")
                elif part.name in seen:
                    rows.append(f"(?P={label(part.name)})")
                else:
                    kind = ".*" if part.name[0] == "*" else r"\d+" if part.name in self.numbered else r"[^./]+?"
                    rows.append(f"(?P<{label(part.name)}>{kind})")
                seen |= {part.name} if isinstance(part, PatternHole) else set()
            self.expression = re.compile("".join(rows))
        return self.expression

    def match(self, name: str) -> Holes | None:
        """The texts in the holes of a name; None for another name."""
        matched = self.compiled().fullmatch(name)
        if matched is None:
            return None
        holes: Holes = {}
        for part in self.parts:
            if isinstance(part, PatternHole):
                text = matched[label(part.name)] or ""
                if part.name in self.numbered:
                    if str(int(text)) != text or int(text) < part.offset:
                        return None
                    text = str(int(text) - part.offset)
                holes[part.name] = text
        return holes

    def fill(self, holes: Holes) -> str:
        """The name with these texts in its holes."""
        parts = [
            part if not isinstance(part, PatternHole) else shifted(holes[part.name], part.offset) for part in self.parts
        ]
        name = "".join(parts)
        return name[1:] if self.hasStem and not parts[0] else name


def label(name: str) -> str:
    """Return the name of a hole's group in a regular expression."""
    return f"s{name[1:]}" if name[0] == "*" else f"h_{name}"


def shifted(text: str, offset: int) -> str:
    """A number in text, plus an offset."""
    return str(int(text) + offset) if offset else text
