"""What a stranger meets: one name for one thing, folders that fit on a screen, classes and functions of a size to be read."""

import ast
from collections import Counter, defaultdict

import pytest
from source import ROOT, Source, library, place

LIBRARY = [source for source in library() if not source.name.startswith("puregraph.models")]
OPERATION = "the same operation: its module, reference, decomposition, lowering, native and CUDA code"
METHOD = "the same method of an operation, native and CUDA"
SEEDS = "an operation on texts has the name of the one on arrays, as in afnio"
FILES = {
    "__main__": "what Python runs with -m",
    "attention": OPERATION,
    "convolution": OPERATION,
    "einsum": OPERATION,
    "gather": OPERATION,
    "matmul": OPERATION,
    "norm": OPERATION,
    "pairwisedot": OPERATION,
    "pooling": OPERATION,
    "recurrent": OPERATION,
    "depthwise": METHOD,
    "direct": METHOD,
    "epilogue": METHOD,
    "gemm": METHOD,
    "slidingwindow": METHOD,
    "add": SEEDS,
    "function": SEEDS,
    "split": f"{SEEDS}; and data is split",
    "sum": SEEDS,
}
CLASSES = {
    "Add": SEEDS,
    "Split": SEEDS,
    "Sum": SEEDS,
    "Checkpoint": "both are public: activations are recomputed, a trainer is saved",
    "Schedule": "public in optimizers: a schedule of learning rates; the compiler's is one of calls",
}
WIDE = {
    "modules": "one class a file, and every module is there",
    "costs": "one class a file, and every cost is there",
}
MOST = {"folder": 15, "class": 250, "function": 60}


def names():
    """The files, and the classes at their top level, by name."""
    files, classes = defaultdict(list), defaultdict(list)
    for source in LIBRARY:
        where = source.path.relative_to(ROOT).as_posix()
        if source.path.name != "__init__.py":
            files[source.path.stem].append(where)
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(where)
    return files, classes


def twice(found):
    """The names that stand more than once."""
    return {name: where for name, where in found.items() if len(where) > 1}


def lengths(source):
    """(line, name, kind, lines) of every class and function of a file."""
    for node in source.nodes:
        if isinstance(node, ast.ClassDef):
            yield node.lineno, node.name, "class", node.end_lineno - node.lineno + 1
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.name, "function", node.end_lineno - node.lineno + 1


def long(source):
    """Where a class or function is too long to be read at once."""
    for line, name, kind, lines in lengths(source):
        if lines > MOST[kind]:
            yield f"{place(source, line)}: the {kind} {name} has {lines} lines, {MOST[kind]} are allowed"


def test_no_two_files_have_one_name():
    found = [f"{name}.py: {', '.join(where)}" for name, where in twice(names()[0]).items() if name not in FILES]
    assert not found, "\n".join(found)


def test_no_two_classes_have_one_name():
    found = [f"{name}: {', '.join(where)}" for name, where in twice(names()[1]).items() if name not in CLASSES]
    assert not found, "\n".join(found)


def test_no_folder_holds_more_files_than_a_screen():
    count = Counter(
        source.path.parent.relative_to(ROOT / "puregraph").as_posix()
        for source in LIBRARY
        if source.path.name != "__init__.py"
    )
    found = [f"{name}: {n} files" for name, n in count.items() if n > MOST["folder"] and name not in WIDE]
    assert not found, f"{', '.join(found)}; {MOST['folder']} are allowed"


def test_classes_and_functions_are_short_enough_to_be_read():
    found = [fault for source in library() for fault in long(source)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("kind", "lines"), [("class", 250), ("function", 60)])
def test_what_is_too_long_is_found(kind, lines):
    head = "class A:" if kind == "class" else "def f():"
    path = ROOT / "puregraph" / "a.py"
    assert not list(long(Source("a", path, head + "\n    x = 1" * (lines - 1))))
    assert list(long(Source("a", path, head + "\n    x = 1" * lines)))
