"""The package as text: its files, their syntax trees, and who imports whom, for the house rules."""

import ast
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
TYPING = ("TYPE_CHECKING", "typing.TYPE_CHECKING")


class Source(NamedTuple):
    """One file of the library: its dotted name, its path and its syntax tree."""

    name: str
    path: Path
    tree: ast.Module


def library():
    """Every file of puregraph and of puregraph.models."""
    found = [(path, ("puregraph",)) for path in sorted((ROOT / "puregraph").rglob("*.py"))]
    found += [(path, ("puregraph", "models")) for path in sorted((ROOT / "models").rglob("*.py"))]
    for path, prefix in found:
        inside = path.relative_to(ROOT).with_suffix("").parts[1:]
        name = ".".join((*prefix, *inside)).removesuffix(".__init__")
        yield Source(name, path, ast.parse(path.read_text(encoding="utf-8")))


def imports(source, names):
    """(line, dotted name) of all of puregraph that a file imports when it runs, wherever the import stands.

    `from puregraph import errors` names the file puregraph.errors, where `names` has such a file.
    """
    package = source.name if source.path.name == "__init__.py" else source.name.rpartition(".")[0]
    typed = {inner for node in ast.walk(source.tree) if forTyping(node) for inner in ast.walk(node)}
    for node in ast.walk(source.tree):
        if node in typed:
            continue
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            inner = [f"{base}.{alias.name}" for alias in node.names]
            found = [name if name in names else base for name in inner]
        else:
            continue
        for name in found:
            if name.split(".")[0] == "puregraph":
                yield node.lineno, name


def forTyping(node):
    """Whether a node is `if TYPE_CHECKING:`, which never runs."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in TYPING


def place(source, line):
    """Where a fault is, as an editor takes it."""
    return f"{source.path.relative_to(ROOT)}:{line}"
