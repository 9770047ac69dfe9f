"""The public names: sorted, complete, and each class exported by its folder."""

import ast
import importlib
from types import ModuleType

import pytest
from source import library

import puregraph

EXPORTING = ("data", "modules", "ops.special", "optimizers", "compat.text", "train")  # others are mostly inside
INNER = ("puregraph.optimizers",)  # its classes that optimizers are built of are exported, but not public
FOLDERS = sorted(
    source.name
    for source in library()
    if source.path.name == "__init__.py"
    and f"{source.name}.".startswith(tuple([f"puregraph.{name}." for name in EXPORTING]))
)


def publicClasses(source):
    """The names of a file's classes that do not begin with an underscore."""
    return [node.name for node in source.tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_"]


def test_the_public_names_are_sorted_and_unique():
    names = list(getattr(puregraph, "__all__", []))
    assert names == sorted(set(names))


def test_the_public_names_are_the_namespace():
    names = set(getattr(puregraph, "__all__", []))
    missing = [name for name in sorted(names) if not hasattr(puregraph, name)]
    assert not missing, f"__all__ promises {', '.join(missing)}"
    present = {name for name, value in vars(puregraph).items() if name[0] != "_" and not isinstance(value, ModuleType)}
    assert present <= names, f"not in __all__: {', '.join(sorted(present - names))}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_exports_each_class_of_its_files(folder):
    package = importlib.import_module(folder)
    for source in library():
        if source.name.rpartition(".")[0] == folder and source.path.name != "__init__.py":
            for name in publicClasses(source):
                expected = getattr(importlib.import_module(source.name), name)
                assert getattr(package, name, None) is expected, f"{folder} does not export {source.name}.{name}"
                assert name in package.__all__ or folder in INNER, f"{folder}.__all__ lacks {name}"
