"""One name for one thing: no two files and no two classes have the same name."""

import ast
from collections import defaultdict

from source import ROOT, library

LIBRARY = [source for source in library() if not source.name.startswith("puregraph.models")]
OPERATION = "the same operation: its module, reference, decomposition, lowering, native and CUDA code"
METHOD = "the same method of an operation, native and CUDA"
SEEDS = "an operation on texts has the name of the one on arrays, as in afnio"
ROOM = "every room of ops/ may have one"
FILES = {
    **dict.fromkeys(("reference", "native", "lowering", "decomposition", "derivatives", "onnx", "cudnn"), ROOM),
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
    "function": f"{SEEDS}; and the path of Function in afnio",
    "graph": "the path of the tape's nodes in afnio",
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


def test_no_two_files_have_one_name():
    found = [f"{name}.py: {', '.join(where)}" for name, where in twice(names()[0]).items() if name not in FILES]
    assert not found, "\n".join(found)


def test_no_two_classes_have_one_name():
    found = [f"{name}: {', '.join(where)}" for name, where in twice(names()[1]).items() if name not in CLASSES]
    assert not found, "\n".join(found)
