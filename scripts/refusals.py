"""Writes tests/house/refusals.md: what every argument of every public callable takes, and how the rest is refused."""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "lib"))

import mistakes  # noqa: E402 - from the helpers of the tests

if __name__ == "__main__":
    (ROOT / "tests" / "house" / "refusals.md").write_text(mistakes.page(), encoding="utf-8")
