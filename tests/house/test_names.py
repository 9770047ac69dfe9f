"""mixedCase everywhere, files in one lowercase word, and no asserts, evaluation or unpickling."""

import ast
import re

import pytest
from source import ROOT, Source, library, place

LOWERWORD = re.compile(r"[a-z][a-z0-9]*|__init__|__main__")
FOREIGN = {  # names of PyTorch, autograd and AnalogVNN, hooks of ast.NodeVisitor, attributes of llvmlite, ctypes, importlib, IPython and onnx
    "_fields_",
    "_repr_html_",
    "_render_traceback_",
    "_repr_svg_",
    "create_module",
    "data_layout",
    "exec_module",
    "find_spec",
    "supports_device",
    "generic_visit",
    "mark_dirty",
    "mark_non_differentiable",
    "needs_input_grad",
    "save_for_backward",
    "saved_variables",
    "saved_tensors",
    "setup_context",
    "once_differentiable",
    "set_materialize_grads",
}
FORBIDDENCALLS = {"eval", "exec"}
FORBIDDENMODULES = {"dill", "cloudpickle", "marshal", "pickle", "shelve"}
SOURCES = library()
SNAKE = ("puregraph.autodiff", "puregraph.compat")  # torch's and afnio's names
OFNUMPY = (
    ".derivatives",
    ".statistics",
    ".assembly",
    ".factorizations",
    ".matrixfunctions",
)  # rules name their arguments as numpy does
MIXED = [source for source in SOURCES if not source.name.startswith(SNAKE) and not source.name.endswith(OFNUMPY)]


def definitions(tree):
    """(line, name) of everything that a file gives a name to."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def isMixed(name):
    """Whether a name is house style: underscores only in front, in dunders, in constants, or foreign."""
    isDunder = name.startswith("__") and name.endswith("__")
    return "_" not in name.lstrip("_") or isDunder or name.isupper() or name in FOREIGN or name.startswith("visit_")


def misnamed(source):
    """Where a file gives a name with an underscore."""
    for line, name in definitions(source.tree):
        if not isMixed(name):
            yield f"{place(source, line)}: {name} has an underscore"


def forbidden(source):
    """Where a file asserts, evaluates text, or unpickles."""
    for node in source.nodes:
        if isinstance(node, ast.Assert):
            yield f"{place(source, node.lineno)}: assert vanishes under -O; raise an error that says why"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDENCALLS:
            yield f"{place(source, node.lineno)}: {node.func.id} runs whatever text it is given"
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for module in modules:
            if module.split(".")[0] in FORBIDDENMODULES:
                yield f"{place(source, node.lineno)}: {module} runs whatever a file tells it to"


def test_names_are_mixed_case():
    found = [fault for source in MIXED for fault in misnamed(source)]
    assert not found, "\n".join(found)


def test_nothing_asserts_evaluates_or_unpickles():
    found = [fault for source in SOURCES for fault in forbidden(source)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", ["puregraph", "models", "examples"])
def test_files_and_folders_are_one_lowercase_word(folder):
    paths = [path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py")]
    found = [str(path) for path in paths if not all(map(LOWERWORD.fullmatch, path.with_suffix("").parts))]
    assert not found, ", ".join(found)


@pytest.mark.parametrize("private", ["dis.get_", "getrefcount", "_getframe", "numpy._", "np._", "co_code"])
def test_only_one_file_looks_behind_public_interfaces(private):
    found = [s.name for s in SOURCES if private in s.path.read_text() and s.path.name != "introspection.py"]
    assert not found, f"{', '.join(found)}: {private} belongs into introspection.py, with the reason"


@pytest.mark.parametrize(
    "text",
    [
        "def add_backward(): pass",
        "def f(in_size): pass",
        "def f(*, in_size): pass",
        "class A:\n    def _my_method(self): pass",
        "class A:\n    in_size = 1",
        "def f(self):\n    self.in_size = 1",
        "for in_size in x: pass",
    ],
)
def test_an_underscore_is_found(text):
    assert list(misnamed(Source("a", ROOT / "a.py", text)))


@pytest.mark.parametrize(
    "text",
    [
        "def addBackward(x, W, _hidden): pass",
        "MAX_SIZE = 1",
        "class A:\n    __slots__ = ()",
        "x = np.zeros_like(y)",
    ],
)
def test_house_style_is_let_through(text):
    assert not list(misnamed(Source("a", ROOT / "a.py", text)))


@pytest.mark.parametrize(
    "text",
    [
        "assert x",
        "eval('1')",
        "exec('1')",
        "import pickle",
        "from marshal import loads",
        "import shelve as s",
    ],
)
def test_what_is_forbidden_is_found(text):
    assert list(forbidden(Source("a", ROOT / "a.py", text)))


def test_no_two_files_of_tests_have_one_name():
    """Pytest imports a file of tests by its name alone, and refuses the second one."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "__init__.py"]
    assert {name for name in names if names.count(name) > 1} == set()
