"""Guides: what they add to the library, added to a copy of it, passes the library's own tests of its structure."""

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT

from puregraph.ops.native.llvm import jit

HOUSE = "test_exports test_names test_structure".split()
IMPORTS = "\nimport numpy as np\n\nfrom puregraph.modules.snake import Snake\nfrom puregraph.onnx.onnxwriter import writesOnnx\n"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.S | re.M)


def blockOf(page, text):
    """The first block of Python on a page that has a text."""
    blocks = BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    return next(block for block in blocks if text in block)


def definition(page, name):
    """The class of a name on a page, without the decorator that registers a user's own."""
    return re.search(rf"^class {name}\(.*?(?=^\S|\Z)", blockOf(page, f"class {name}("), re.S | re.M)[0].rstrip()


def copied(folder):
    """A copy of the package and of the tests of its structure, in a folder."""
    shutil.copytree(ROOT / "puregraph", folder / "puregraph", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests" / "lib", folder / "tests" / "lib")
    (folder / "tests" / "house").mkdir()
    for name in HOUSE:
        shutil.copy(ROOT / "tests" / "house" / f"{name}.py", folder / "tests" / "house")
    for name in ("models", "scripts", "examples", "benchmarks", "docs"):
        os.symlink(ROOT / name, folder / name)
    shutil.copy(ROOT / "tests" / "conftest.py", folder / "tests")
    shutil.copy(ROOT / "pyproject.toml", folder)


def export(package: Path, file: str, name: str):
    """Import a class in the folder's `__init__.py`, and name it in `__all__`."""
    init = package / "__init__.py"
    text = init.read_text(encoding="utf-8")
    dotted = ".".join(package.relative_to(package.parents[1]).parts)
    text = text.replace("\n__all__ = [\n", f'from {dotted}.{file} import {name}\n\n__all__ = [\n    "{name}",\n', 1)
    init.write_text(text, encoding="utf-8")


def run(library, *command):
    """Run Python in a copy; its output if it fails."""
    env = {**os.environ, "PYTHONPATH": str(library)}
    done = subprocess.run([sys.executable, *command], cwd=library, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def joined(path, docstring, *blocks):
    """A file of blocks of a page: their imports first, without what they print and the data they make."""
    tree = ast.parse("\n".join(blocks))
    isImport = [isinstance(statement, (ast.Import, ast.ImportFrom)) for statement in tree.body]
    kept = (ast.FunctionDef, ast.ClassDef)
    imports = sorted({ast.unparse(s) for s, imports in zip(tree.body, isImport) if imports})
    rest = [ast.unparse(s) for s in tree.body if isinstance(s, kept) or isConstant(s)]
    path.write_text("\n\n\n".join([f'"""{docstring}"""\n\n' + "\n".join(imports), *rest]) + "\n", encoding="utf-8")


def isConstant(statement):
    """Whether a statement defines a constant."""
    return isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]).isupper()


HEAD = '"""Signum: a step by the sign of a momentum."""\n\nfrom puregraph.optimizers.optimizer import Optimizer\n\n\n'


def addModule(package):
    """Add the module of docs/newmodule.md."""
    lisht = definition("newmodule.md", "Lisht").replace('"""Roy', '"""Source    Roy')
    text = f'"""Lisht: an even activation."""\n\nfrom puregraph.graph.pointwise import Pointwise\n\n\n{lisht}\n'
    (package / "modules" / "lisht.py").write_text(text, encoding="utf-8")
    export(package / "modules", "lisht", "Lisht")


def addOptimizer(package):
    """Add the optimizer of docs/newoptimizer.md, which takes up to 30 lines with the two of its export."""
    signum = definition("newoptimizer.md", "Signum").replace("(Optimizer):", '(Optimizer):\n    """Signum."""\n', 1)
    (package / "optimizers" / "signum.py").write_text(f"{HEAD}{signum}\n", encoding="utf-8")
    export(package / "optimizers", "signum", "Signum")
    assert len(f"{HEAD}{signum}".splitlines()) + 2 <= 30


def addKernel(package):
    """Add the operation of docs/newkernel.md, with its kernel and its module."""
    block = functools.partial(blockOf, "newkernel.md")
    rule = [block(text) for text in ("@kernel", "@alternate.shape", "@alternate.adjoint", "@alternate.cuda")]
    room = package / "ops/reduction"
    joined(room / "alternate.py", "Alternate: sums of all elements up to each, with alternating signs.", *rule)
    joined(room / "alternaterows.py", "Alternating sums of rows.", block("def writeAlternate"))
    called = (
        "from puregraph.ops.reduction.alternaterows import alternateRows",
        "from puregraph.ops.reduction.alternate import alternate",
    )
    lowering = (room / "lowering.py").read_text(encoding="utf-8")
    joined(room / "lowering.py", "Lower norms and running sums.", lowering, *called, block("@op(alternate).lower"))
    used = "import numpy as np", called[1], "from puregraph.graph.module import Module"
    module = definition("newkernel.md", "AlternatingSum")
    joined(package / "modules/alternatingsum.py", "Alternating sums.", *used, module)
    export(package / "modules", "alternatingsum", "AlternatingSum")


def addOperator(package):
    """Add the operator of ONNX of docs/newoperator.md, with its module."""
    snake = definition("newoperator.md", "Snake")
    text = f'"""Snake: a periodic activation."""\n\nfrom puregraph.graph.pointwise import Pointwise\n\n\n{snake}\n'
    (package / "modules" / "snake.py").write_text(text, encoding="utf-8")
    export(package / "modules", "snake", "Snake")
    functions = [f for f in ast.parse(blockOf("newoperator.md", "@onnxOp")).body if isinstance(f, ast.FunctionDef)]
    operators = package / "onnx" / "operators" / "activationops.py"
    text = operators.read_text(encoding="utf-8").replace("import annotations\n", f"import annotations\n{IMPORTS}", 1)
    operators.write_text("\n\n\n".join([text.rstrip(), *map(ast.unparse, functions)]) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A copy of the library with what all guides add."""
    folder = tmp_path_factory.mktemp("library")
    copied(folder)
    for add in (addModule, addOptimizer, addKernel, addOperator):
        add(folder / "puregraph")
    return folder


@pytest.mark.costly
def test_what_the_guides_add_passes_the_tests_of_structure(library):
    run(library, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *[f"tests/house/{name}.py" for name in HOUSE])


@pytest.mark.costly
def test_a_module_and_an_optimizer_added_as_the_guides_say_fit_the_library(library):
    shown = (
        "from puregraph import MSE, Linear, Lisht, Sequential, Signum, checkModule; checkModule(Lisht(), [(2, 3)])\n"
    )
    shown += "net = Sequential(Linear(3, 2))\n"
    shown += "print(net.compile((4, 3), (4, 2), cost=MSE(), optimizer=Signum(1e-3)).table())"
    table = run(library, "-c", shown)
    assert "sign(" in table and "OpaqueOptimizer" not in table


@pytest.mark.costly
def test_a_kernel_added_as_the_guide_says_compiles_in_the_library(library):
    shown = """
from puregraph import AlternatingSum, Sequential, checkModule
checkModule(AlternatingSum(), [(4, 5)])
program = Sequential(AlternatingSum(name="sums")).compile([(64, 100)], train=False)
print([call.kind.name for call in program.plan.schedule.calls])
"""
    assert run(library, "-c", shown).strip() == ("['native']" if jit.available() else "['kernel']")


@pytest.mark.peers
@pytest.mark.costly
def test_an_operator_added_as_the_guide_says_is_read_and_written_by_the_library(library):
    pytest.importorskip("onnx")
    shown = """
import numpy as np
from puregraph import Sequential, Snake
from puregraph.onnx import fromOnnx, toOnnx
net = Sequential(Snake(2.0, name="snake"))
x = np.array([[0.0, 0.5, 1.0]], np.float32)
print(np.array_equal(fromOnnx(toOnnx(net, shapes=[("N", 3)]))(x), net(x)))
"""
    assert run(library, "-c", shown).strip() == "True"
