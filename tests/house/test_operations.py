"""One operation, one place: what each declares is on a page, what it lacks has a reason, and few files name it."""

import importlib
import inspect
import io
import re
import runpy
import subprocess
import sys
import tokenize
from functools import cache
from pathlib import Path

import pytest
from processes import environment
from source import library

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "operations.py"))
(_, KERNELS), (_, FUNCTIONS) = SCRIPT["known"]()
LEAST = ("shape, dtype", "gradient", "tangent", "native", "CUDA")  # what a Kernel has, or lacks for a reason
MOST = 6  # files outside of its room that name an operation
ANY = re.compile(rf"\b(?:{'|'.join(KERNELS)})\b")
WORDS = {"forward", "fractions", "gather", "norm", "normal", "uniform"}  # with other uses: passes, axes, schemes, norms
OWN = "part of a cost or module whose own gradient rule is tested"
LACKS = {
    **{(n, "CUDA"): "a product or convolution in float64" for n in ("multiplyIntegers", "convolveIntegers")},
    **dict.fromkeys([("alive", "gradient"), ("alive", "tangent")], "gives bools"),
    **dict.fromkeys([("classIndex", "gradient"), ("classIndex", "tangent")], "gives integers"),
    **dict.fromkeys([("wrapIndex", "gradient"), ("wrapIndex", "tangent")], "gives integers"),
    **dict.fromkeys([("firstIndex", "gradient"), ("firstIndex", "tangent")], "gives integers"),
    **dict.fromkeys([("firstIndex", "native"), ("firstIndex", "CUDA")], "a formula and a reduction, which are fused"),
    **dict.fromkeys([("uniform", "gradient"), ("uniform", "tangent")], "reads no floats"),
    **dict.fromkeys([("normal", "gradient"), ("normal", "tangent")], "reads no floats"),
    **{(n, c): OWN for n in ("entropyGrad", "forward", "throughTime", "fractions") for c in ("gradient", "tangent")},
    **{(n, c): OWN for n in ("pairDots", "pairDotsGrad", "norm") for c in ("gradient", "tangent")},
    **dict.fromkeys([("symmetricProduct", "gradient"), ("symmetricProduct", "tangent")], "read by updates alone"),
    ("symmetricProduct", "CUDA"): "a product of the library",
    **{
        (n, c): "composed of gather and products"
        for n in ("groupedProduct", "groupedProductGrad")
        for c in ("gradient", "tangent", "CUDA")
    },
    **dict.fromkeys(
        [("fractions", "shape, dtype"), ("fractions", "native"), ("fractions", "CUDA")], "checks, on the host"
    ),
    **dict.fromkeys([("writeAt", "gradient"), ("writeAt", "tangent")], "writes to a State, which has none"),
    ("entropyGrad", "native"): "composite: its formulas are fused",
    **dict.fromkeys([("fourierSum", "native"), ("fourierSum", "CUDA")], "left to numpy and CuPy so far"),
    ("normal", "native"): "left to numpy so far",
    ("ontoDiagonal", "native"): "decomposed",
    ("windowSum", "native"): "decomposed",
    ("putClass", "native"): "left to numpy so far",
    ("takeClass", "native"): "left to numpy so far",
    **dict.fromkeys([("repeatBody", "gradient"), ("repeatBody", "tangent")], "composed of the calls of its body"),
    ("repeatBody", "CUDA"): "a GPU runs the graph of each run so far",
}


def test_the_page_of_operations_is_current():
    """In a fresh process: tests that ran before may have registered rules of their own."""
    text = f"import runpy, sys; sys.stdout.buffer.write(runpy.run_path({SCRIPT['__file__']!r})['page']().encode())"
    done = subprocess.run([sys.executable, "-c", text], env=environment(), capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    assert SCRIPT["PAGE"].read_bytes() == done.stdout, "run python scripts/operations.py"


def test_what_a_kernel_lacks_is_listed_with_its_reason():
    lacking = {(n, c) for n, f in KERNELS.items() for c in LEAST if not SCRIPT["COLUMNS"][c](f)}
    assert lacking == LACKS.keys()


def names(source):
    """The Kernels that a file names: its tokens and texts, but for what numpy has of that name.

    Of a word with other uses, only what is the Kernel itself in this file counts.
    """
    text = source.path.read_text(encoding="utf-8")
    if not ANY.search(text):
        return set()
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    said = {t.string for t in tokens if t.type == tokenize.NAME and t.string in KERNELS and not isOfNumpy(t)}
    said |= {t.string.strip("\"'") for t in tokens if t.type == tokenize.STRING}
    return {name for name in said & KERNELS.keys() if name not in WORDS or isMeant(name, source)}


def isMeant(name, source):
    """Whether a name is that of a Kernel in a file, by itself or as an attribute of a module."""
    here = vars(importlib.import_module(source.name))
    modules = [
        vars(m) for m in here.values() if inspect.ismodule(m) and re.match(r"puregraph\.ops\..*reference", m.__name__)
    ]
    return any(space.get(name) is KERNELS[name] for space in [here, *modules])


def isOfNumpy(token):
    """Whether a name is an attribute of numpy."""
    return re.search(r"\bnp\.$", token.line[: token.start[1]]) is not None


@cache
def named():
    """What each file of the package names."""
    return {source.name: names(source) for source in library() if not source.name.startswith("puregraph.models")}


@pytest.mark.parametrize("name", KERNELS)
def test_an_operation_is_named_in_few_files(name):
    room = KERNELS[name].__module__.rpartition(".")[0]
    files = [file for file, said in named().items() if name in said and not file.startswith(f"{room}.")]
    assert len(files) <= MOST, f"{name} is named in {len(files)} files outside of {room}: {', '.join(files)}"


def test_a_word_with_other_uses_is_counted_by_what_it_stands_for():
    assert "norm" in named()["puregraph.optimizers.slot"] and "gather" in named()["puregraph.modules.gathering"]
    assert "norm" not in named()["puregraph.testing.rulechecks"]  # numpy.linalg.norm
    assert "gather" not in named()["puregraph.ops.gather.native"]
    assert "convolve" not in named()["puregraph.compile.trace.numpyrules"]  # numpy.convolve
