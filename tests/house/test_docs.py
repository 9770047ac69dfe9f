"""Every file, class and function says what it is; every Module has its formula, shapes and source."""

import ast
import importlib
import inspect

import pytest
from source import library, place

SOURCES = library()
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def moduleClasses():
    """The concrete Modules and costs that the package holds."""
    for source in SOURCES:
        if source.name.split(".")[1:2] in (["modules"], ["costs"]):
            file = importlib.import_module(source.name)
            for _, found in inspect.getmembers(file, inspect.isclass):
                isModule = any(base.__qualname__ == "Module" for base in found.__mro__)
                if isModule and found.__module__ == source.name and found.__name__[0] != "_":
                    yield found


def undocumented(source):
    """The file, and what is public in it, where they have no docstring."""
    if not ast.get_docstring(source.tree):
        yield f"{place(source, 1)}: the file"
    for node in source.tree.body:
        if isinstance(node, DEFINITIONS) and node.name[0] != "_" and not ast.get_docstring(node):
            yield f"{place(source, node.lineno)}: {node.name}"


def test_every_public_class_and_function_has_a_docstring():
    missing = [fault for source in SOURCES for fault in undocumented(source)]
    assert not missing, "no docstring:\n" + "\n".join(missing)


@pytest.mark.parametrize("found", list(moduleClasses()), ids=lambda found: found.__name__)
def test_a_module_documents_its_formula_shapes_and_source(found):
    text = inspect.cleandoc(found.__doc__ or "")
    missing = [word for word in ("Shapes", "Source") if word not in text]
    missing += [] if "=" in text or hasattr(found, "formula") else ["formula"]
    assert not missing, f"{found.__module__}.{found.__name__}: the docstring lacks {', '.join(missing)}"
