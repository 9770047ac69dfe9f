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


@pytest.fixture
def copy(tmp_path):
    """A copy of the package and of the tests of its structure."""
    shutil.copytree(ROOT / "puregraph", tmp_path / "puregraph", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests" / "lib", tmp_path / "tests" / "lib")
    (tmp_path / "tests" / "house").mkdir()
    for name in HOUSE:
        shutil.copy(ROOT / "tests" / "house" / f"{name}.py", tmp_path / "tests" / "house")
    for name in ("models", "scripts", "examples", "benchmarks", "docs"):
        os.symlink(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def export(package: Path, file: str, name: str):
    """Import a class in the folder's `__init__.py`, and name it in `__all__`."""
    init = package / "__init__.py"
    text = init.read_text(encoding="utf-8")
    dotted = ".".join(package.relative_to(package.parents[1]).parts)
    text = text.replace("\n__all__ = [\n", f'from {dotted}.{file} import {name}\n\n__all__ = [\n    "{name}",\n', 1)
    init.write_text(text, encoding="utf-8")


def run(copy, *command):
    """Run Python in a copy; its output if it fails."""
    env = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run([sys.executable, *command], cwd=copy, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.costly
def test_a_module_and_an_optimizer_added_as_the_guides_say_fit_the_library(copy):
    lisht = definition("newmodule.md", "Lisht").replace('"""Roy', '"""Source    Roy')
    text = f'"""Lisht: an even activation."""\n\nfrom puregraph.graph.pointwise import Pointwise\n\n\n{lisht}\n'
    (copy / "puregraph" / "modules" / "lisht.py").write_text(text, encoding="utf-8")
    export(copy / "puregraph" / "modules", "lisht", "Lisht")

    head = (
        '"""Signum: a step by the sign of a momentum."""\n\nfrom puregraph.optimizers.optimizer import Optimizer\n\n\n'
    )
    signum = definition("newoptimizer.md", "Signum").replace("(Optimizer):", '(Optimizer):\n    """Signum."""\n', 1)
    (copy / "puregraph" / "optimizers" / "signum.py").write_text(f"{head}{signum}\n", encoding="utf-8")
    export(copy / "puregraph" / "optimizers", "signum", "Signum")

    run(copy, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *[f"tests/house/{name}.py" for name in HOUSE])
    assert len(f"{head}{signum}".splitlines()) + 2 <= 30  # with the lines of its export
    shown = (
        "from puregraph import MSE, Linear, Lisht, Sequential, Signum, checkModule; checkModule(Lisht(), [(2, 3)])\n"
    )
    shown += "net = Sequential(Linear(3, 2))\n"
    shown += "print(net.compile((4, 3), (4, 2), cost=MSE(), optimizer=Signum(1e-3)).table())"
    table = run(copy, "-c", shown)
    assert "sign(" in table and "OpaqueOptimizer" not in table


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


@pytest.mark.costly
def test_a_kernel_added_as_the_guide_says_compiles_in_the_library(copy):
    block = functools.partial(blockOf, "newkernel.md")
    package = copy / "puregraph"
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

    run(copy, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *[f"tests/house/{name}.py" for name in HOUSE])
    shown = """
from puregraph import AlternatingSum, Sequential, checkModule
checkModule(AlternatingSum(), [(4, 5)])
program = Sequential(AlternatingSum(name="sums")).compile([(64, 100)], train=False)
print([call.kind.name for call in program.plan.schedule.calls])
"""
    assert run(copy, "-c", shown).strip() == ("['native']" if jit.available() else "['kernel']")


@pytest.mark.peers
@pytest.mark.costly
def test_an_operator_added_as_the_guide_says_is_read_and_written_by_the_library(copy):
    pytest.importorskip("onnx")
    package = copy / "puregraph"
    snake = definition("newoperator.md", "Snake")
    text = f'"""Snake: a periodic activation."""\n\nfrom puregraph.graph.pointwise import Pointwise\n\n\n{snake}\n'
    (package / "modules" / "snake.py").write_text(text, encoding="utf-8")
    export(package / "modules", "snake", "Snake")
    functions = [f for f in ast.parse(blockOf("newoperator.md", "@onnxOp")).body if isinstance(f, ast.FunctionDef)]
    operators = package / "onnx" / "operators" / "activationops.py"
    text = operators.read_text(encoding="utf-8").replace("import annotations\n", f"import annotations\n{IMPORTS}", 1)
    operators.write_text("\n\n\n".join([text.rstrip(), *map(ast.unparse, functions)]) + "\n", encoding="utf-8")

    run(copy, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *[f"tests/house/{name}.py" for name in HOUSE])
    shown = """
import numpy as np
from puregraph import Sequential, Snake
from puregraph.onnx import fromOnnx, toOnnx
net = Sequential(Snake(2.0, name="snake"))
x = np.array([[0.0, 0.5, 1.0]], np.float32)
print(np.array_equal(fromOnnx(toOnnx(net, shapes=[("N", 3)]))(x), net(x)))
"""
    assert run(copy, "-c", shown).strip() == "True"
