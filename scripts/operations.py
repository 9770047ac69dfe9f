"""Write docs/operations.md: what is declared of each operation, by Kernel and by function of numpy.

python scripts/operations.py
"""

from pathlib import Path

import puregraph.compile.lower.lowerings
import puregraph.onnx.rules  # all Kernels, and what is written of them
import puregraph.ops.kernels  # noqa: F401
from puregraph.autodiff.derivatives.declarations import itself, jvpOf, multilinearJvp, vjpOf
from puregraph.autodiff.derivatives.ufuncs import pullbackOf
from puregraph.compile.lower.registry import isLowered
from puregraph.compile.trace.abstract import kindsOf
from puregraph.compile.trace.decompositions import decompositionOf
from puregraph.ops.kernel import registry
from puregraph.ops.operation import OPERATIONS, declared

PAGE = Path(__file__).parent.parent / "docs" / "operations.md"
COLUMNS = {
    "shape, dtype": lambda f: getattr(f, "shapeRule", None) or declared(f, "records"),
    "gradient": lambda f: declared(f, "constant") or vjpOf(f) or pullbackOf(f),
    "linear": lambda f: jvpOf(f) is multilinearJvp or getattr(jvpOf(f), "__qualname__", "").startswith(itself.__name__),
    "tangent": lambda f: declared(f, "constant") or jvpOf(f),
    "per sample": lambda f: declared(f, "perSample") or declared(f, "samples"),
    "FLOPs": lambda f: declared(f, "flops"),
    "layout": lambda f: declared(f, "layout"),
    "16 bits": lambda f: declared(f, "halves"),
    "index bounds": lambda f: declared(f, "bounds"),
    "decomposition": decompositionOf,
    "native": lambda f: isLowered(f),
    "CUDA": lambda f: "cuda" in getattr(f, "implementations", {}),
    "library": lambda f: declared(f, "library"),
    "ONNX": lambda f: declared(f, "onnx") or declared(f, "words") or decompositionOf(f),
}
HEAD = """# Operations

What is declared of each operation: written by `scripts/operations.py`, from the declarations themselves. A dash is what
an operation does not declare. What is linear has its adjoint for a gradient, and itself for a tangent. FLOPs without a
rule are an operation an element. A composite kernel that a backend has no code for, and what is elementwise, a
reduction, a product or a view, is compiled without a declaration of its own.
"""


def known():
    """Kernels of the library, and the functions of numpy that the tracer records, by name."""
    kernels = {f.__name__: f for f in registry.values() if f.__module__.startswith("puregraph.")}
    functions = {
        f"np.{f.__name__}": f
        for f in OPERATIONS
        if declared(f, "records") and kindsOf(f) and f.__module__.startswith("numpy")
    }
    return [("Kernels", kernels), ("Functions of numpy", functions)]


def table(functions):
    """One row for each function."""
    lines = [" | ".join(["", "operation", *COLUMNS, ""]).strip(), "|---" * (len(COLUMNS) + 1) + "|"]
    for name, function in sorted(functions.items()):
        cells = ["yes" if has(function) else "-" for has in COLUMNS.values()]
        lines.append("| " + " | ".join([f"`{name}`", *cells]) + " |")
    return "\n".join(lines)


def page():
    """The text of the page."""
    return HEAD + "".join(f"\n## {title}\n\n{table(functions)}\n" for title, functions in known())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
