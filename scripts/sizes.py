"""Print the folders, classes and functions that are larger than the guides ask for: python scripts/sizes.py

Nothing is refused: a review asks why. Guides: 15 files a folder, 250 lines a class, 60 lines a function.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER_FILES, CLASS_LINES, FUNCTION_LINES = 15, 250, 60


def longNodes(path: Path) -> Iterator[str]:
    """The classes and functions of a file that are longer than the guides."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > (CLASS_LINES if isinstance(node, ast.ClassDef) else FUNCTION_LINES):
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} has {lines} lines"


def report() -> list[str]:
    """One line for each folder, class and function that is larger than the guides."""
    paths = sorted((ROOT / "puregraph").rglob("*.py"))
    counts = Counter(path.parent.relative_to(ROOT) for path in paths if path.name != "__init__.py")
    folders = [f"{folder}: {count} files" for folder, count in counts.items() if count > FOLDER_FILES]
    return [*folders, *(line for path in paths for line in longNodes(path))]


if __name__ == "__main__":
    print("\n".join(report()))
