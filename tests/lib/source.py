"""The package as text: its files, their syntax trees, and who imports whom, for the house rules."""

import ast
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
TYPING = ("TYPE_CHECKING", "typing.TYPE_CHECKING")


class Source:
    """One file of the library: its dotted name, its path, and its text as the file has it unless another is given.

    Collecting the tests asks for names alone, so the syntax tree is made when it is first wanted.
    """

    def __init__(self, name, path, text=None):
        self.name, self.path, self.text = name, path, text

    @cached_property
    def tree(self):
        return ast.parse(self.path.read_text(encoding="utf-8") if self.text is None else self.text)


@cache
def library():
    """Every file of puregraph and of puregraph.models."""
    found = [(path, ("puregraph",)) for path in sorted((ROOT / "puregraph").rglob("*.py"))]
    found += [(path, ("puregraph", "models")) for path in sorted((ROOT / "models").rglob("*.py"))]
    return tuple(Source(dotted(path, prefix), path) for path, prefix in found)


def dotted(path, prefix):
    """The name by which a file is imported."""
    inside = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join((*prefix, *inside)).removesuffix(".__init__")


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
