"""The example of each public name: of its docstring, else a module's own, else the shortest block of a guide with it.

All of them run in the suite: those of docstrings (`failure`), those of modules where a page is made, those of guides
with their page.
"""

import ast
import doctest
import functools
import importlib
import inspect
import io
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "lib"))

from pages import blocks

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


class GuideBlock(NamedTuple):
    """A block of a guide, the text that it prints, and where it stands: the guide and the heading above it."""

    text: str
    output: str
    stem: str
    heading: str


def docExample(found):
    """The lines of a docstring from its first `>>>` to the end of that paragraph; an empty text where it has none."""
    text = vars(found).get("__doc__") if inspect.isclass(found) else getattr(found, "__doc__", None)
    text = inspect.cleandoc(text or "") if callable(found) else ""
    return "\n\n".join(part for part in re.split(r"\n\s*\n", text) if part.startswith(">>>"))


def spaceOf(package):
    """What an example of a docstring may name without an import: numpy as np, and what its package has."""
    module = importlib.import_module(package)
    return {"np": importlib.import_module("numpy"), **{name: getattr(module, name) for name in module.__all__}}


def failure(package, name, found):
    """What is wrong with the example of a docstring, as doctest says it; an empty text where nothing is."""
    test = doctest.DocTestParser().get_doctest(docExample(found), spaceOf(package), f"{package}.{name}", None, 0)
    told = io.StringIO()
    with redirect_stdout(told):
        doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=told.write)
    return told.getvalue()


def imported(package, text):
    """The lines that import what an example of a docstring takes for granted."""
    code = "\n".join(example.source for example in doctest.DocTestParser().get_examples(text))
    loaded = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    names = [name for name in sorted(spaceOf(package), key=str.lower) if name in loaded and name != "np"]
    lines = [">>> import numpy as np"] if "np" in loaded else []
    return "\n".join([*lines, f">>> from {package} import {', '.join(names)}"])


def moduleExample(package, name, found):
    """An example that ran just now: a module's own, with the shapes that it gives; an empty text where it has none."""
    from puregraph import Module

    if not (inspect.isclass(found) and issubclass(found, Module)):
        return ""
    try:
        examples = list(found.examples())
    except NotImplementedError:
        return ""
    for module, shapes in examples:
        text = repr(module)
        space = {}
        try:
            exec(f"from {package} import *\nfound = {text}", space)  # noqa: S102 - the text is a repr of ours
            outcome = space["found"].dataShapeFrom(*shapes)
        except Exception:  # an example whose arguments are arrays or functions cannot be written as text
            continue
        given = ", ".join(map(str, shapes))
        return f"from {package} import {name}\n\nprint({text}.dataShapeFrom({given}))    # {outcome}"
    return ""


@functools.cache
def guideBlocks(path):
    """(objects that it uses, block) of each block of Python of a guide that runs."""
    text, known, found = path.read_text(encoding="utf-8"), {}, []
    parts = blocks(text)
    for block, following in zip(parts, [*parts[1:], None]):
        if block.language != "python" or block.tag == "no-run":
            continue
        tree = ast.parse(block.text)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("puregraph"):
                known |= {each.asname or each.name: (node.module, each.name) for each in node.names}
        printed = following.text if following and following.language == "text" else ""
        heading = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text[: block.start], flags=re.S), re.M)[-1]
        found.append((set(usedIn(tree, known)), GuideBlock(block.text, printed, path.stem, heading)))
    return found


def usedIn(tree, known):
    """The identities of the public objects that code names: what was imported, or is read from a package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in known:
            module, name = known[node.id]
            yield id(getattr(importlib.import_module(module), name, None))  # None: a file of that folder
        elif isinstance(node, ast.Attribute) and re.fullmatch(r"puregraph(\.\w+)?", ast.unparse(node.value)):
            found = importlib.import_module("puregraph")
            for name in ast.unparse(node).split(".")[1:]:
                found = getattr(found, name)
            yield id(found)


def guideExample(found, guides):
    """The shortest block of some guides that uses an object, None where none does."""
    blocks = [block for path in guides for used, block in guideBlocks(path) if id(found) in used]
    return min(blocks, key=lambda block: len(block.text), default=None)
