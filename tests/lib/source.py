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

    @cached_property
    def nodes(self):
        """All nodes of the syntax tree."""
        return list(ast.walk(self.tree))

    @cached_property
    def imported(self):
        """The imports that run, wherever they stand."""
        return [node for node in statements(self.tree) if isinstance(node, (ast.Import, ast.ImportFrom))]


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

    `from puregraph import errors` names the file puregraph.core.errors, where `names` has such a file.
    """
    package = source.name if source.path.name == "__init__.py" else source.name.rpartition(".")[0]
    for node in source.imported:
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        else:
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            inner = [f"{base}.{alias.name}" for alias in node.names]
            found = [name if name in names else base for name in inner]
        for name in found:
            if name.split(".")[0] == "puregraph":
                yield node.lineno, name


BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def statements(node):
    """The statements of a file, those inside of others too, but for what never runs."""
    for block in BLOCKS:
        inner = getattr(node, block, ())
        for each in inner if isinstance(inner, list) else ():  # the body of a lambda is an expression
            if not forTyping(each):
                yield each
                yield from statements(each)


def forTyping(node):
    """Whether a node is `if TYPE_CHECKING:`, which never runs."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in TYPING


def place(source, line):
    """Where a fault is, as an editor takes it."""
    return f"{source.path.relative_to(ROOT)}:{line}"
