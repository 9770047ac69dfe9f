"""Draw what depends on what: the imports of the package, by folder, as the picture of docs/architecture.md.

python scripts/architecture.py
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests" / "lib"), str(ROOT / "tests" / "house")]

from source import imports, library  # noqa: E402
from test_layers import LAYERS, piece  # noqa: E402

PAGE = ROOT / "docs" / "architecture.md"
FIRST, LAST = "<!-- made by scripts/architecture.py -->\n", "<!-- end -->\n"
WIDTH = 118


def links():
    """For each file or folder at the top of the package, those that it imports."""
    names = {source.name for source in library()}
    found = {}
    for source in library():
        used = found.setdefault(piece(source.name), set())
        used.update(piece(name) for _, name in imports(source, names))
    return {name: used - {name} for name, used in found.items()}


def direct(found):
    """The links without those that follow from others: if a imports b and b imports c, a may import c."""
    reached = {}

    def below(name):
        if name not in reached:
            reached[name] = set().union(*({each} | below(each) for each in found[name]))
        return reached[name]

    return {name: {u for u in used if not any(u in below(o) for o in used - {u})} for name, used in found.items()}


def picture():
    """One line for each file or folder, from the top to the bottom, with what it stands on."""
    found = links()
    shown, lines = direct(found), []
    for layer in reversed(LAYERS):
        for name in layer.split():
            if name in shown:
                lines.append(f"{name:>12} --> {', '.join(sorted(shown[name])) or '.'}")
        if any(name in shown for name in layer.split()):
            lines.append("-" * 12)
    return "\n".join(line[:WIDTH] for line in lines[:-1])


def page():
    """The page with its picture made anew."""
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(FIRST)}.*?{re.escape(LAST)}", re.S)
    return pattern.sub(lambda _: f"{FIRST}\n```text\n{picture()}\n```\n\n{LAST}", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
