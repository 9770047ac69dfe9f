"""One operation, one place: what each declares is on a page, what it lacks has a reason, and few files name it."""

import ast
import runpy
from pathlib import Path

import pytest
from source import library

from puregraph.kernel import registry

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "operations.py"))
(_, KERNELS), (_, FUNCTIONS) = SCRIPT["known"]()
LEAST = ("shape", "gradient", "tangent", "native", "CUDA")  # what a Kernel has, or lacks for a reason
MOST = 8  # files that name an operation
OWN = "part of a cost or module whose own gradient rule is tested"
LACKS = {
    **dict.fromkeys([("alive", "gradient"), ("alive", "tangent")], "gives bools"),
    **dict.fromkeys([("classIndex", "gradient"), ("classIndex", "tangent")], "gives integers"),
    **dict.fromkeys([("uniform", "gradient"), ("uniform", "tangent")], "reads no floats"),
    **dict.fromkeys([("normal", "gradient"), ("normal", "tangent")], "reads no floats"),
    **{(n, c): OWN for n in ("entropyGrad", "forward", "throughTime", "fractions") for c in ("gradient", "tangent")},
    **{(n, c): OWN for n in ("pairDots", "pairDotsGrad", "norm") for c in ("gradient", "tangent")},
    **dict.fromkeys([("fractions", "shape"), ("fractions", "native"), ("fractions", "CUDA")], "checks, on the host"),
    ("entropyGrad", "native"): "composite: its formulas are fused",
    ("normal", "native"): "left to numpy so far",
    ("ontoDiagonal", "native"): "decomposed",
    ("windowSum", "native"): "decomposed",
    ("putClass", "native"): "left to numpy so far",
    ("takeClass", "native"): "left to numpy so far",
}


def test_the_page_of_operations_is_current():
    assert SCRIPT["PAGE"].read_text(encoding="utf-8") == SCRIPT["page"](), "run python scripts/operations.py"


def test_what_a_kernel_lacks_is_listed_with_its_reason():
    lacking = {(n, c) for n, f in KERNELS.items() for c in LEAST if not SCRIPT["COLUMNS"][c](f)}
    assert lacking == LACKS.keys()


def namesOf(source):
    """The Kernels that a file defines or imports."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("puregraph.kernels"):
            yield from [alias.name for alias in node.names]
        if isinstance(node, ast.FunctionDef) and f"{source.name}.{node.name}" in registry:
            yield node.name


@pytest.mark.parametrize("name", KERNELS)
def test_an_operation_is_named_in_few_files(name):
    files = [source.name for source in library() if name in namesOf(source)]
    assert len(files) <= MOST, f"{name} is named in {len(files)} files: {', '.join(files)}"
