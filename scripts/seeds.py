"""Write docs/seeds.md: each claim of the pages that puregraph follows, and whether it holds here.

python scripts/seeds.py
"""

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "seeds.md"
MODULES = ("seedanalog", "seednodes", "seedpuzzle", "seeddace", "seedfunction")
HEAD = """# The pages that puregraph follows, claim by claim

Four libraries showed how a backward pass can be an object: AnalogVNN, afnio, PuzzleLib and DaceML. puregraph keeps the
names and the contract of five pages of their documentation. This page lists every claim of those pages in our words:
{holds} hold, {differs} differ on purpose, with the reason. It is written by `scripts/seeds.py` from
`tests/autodiff/seed*.py`, where each claim has a check that the suite runs. How the four are used here:
[autodiff.md](autodiff.md).
"""


def pages():
    """The pages with their claims."""
    folder = str(ROOT / "tests" / "autodiff")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return [importlib.import_module(name).PAGE for name in MODULES]


def row(number, claim):
    """A claim as a row of a table."""
    verdict = f"differs: {claim.reason}" if claim.reason else "holds"
    cells = [str(number), f"`{claim.subject}`", claim.text, verdict]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def section(page):
    """A page as a table."""
    rows = "\n".join(row(number, claim) for number, claim in enumerate(page.claims, 1))
    return f"\n## {page.title}\n\n{page.source}.\n\n| | of | claim | here |\n|---|---|---|---|\n{rows}\n"


def text(found):
    """The text of the page."""
    claims = [claim for page in found for claim in page.claims]
    differs = sum(bool(claim.reason) for claim in claims)
    return HEAD.format(holds=len(claims) - differs, differs=differs) + "".join(map(section, found))


if __name__ == "__main__":
    PAGE.write_text(text(pages()), encoding="utf-8")
