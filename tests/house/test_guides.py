"""Guides: what they add to the library, added to a copy of it, passes the library's own tests of its structure."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT

HOUSE = "test_exports test_names test_structure".split()
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
    mish = definition("newmodule.md", "Mish").replace('"""Misra', '"""Source    Misra')
    text = f'"""Mish: a smooth activation."""\n\nfrom puregraph.graph.pointwise import Pointwise\n\n\n{mish}\n'
    (copy / "puregraph" / "modules" / "mish.py").write_text(text, encoding="utf-8")
    export(copy / "puregraph" / "modules", "mish", "Mish")

    head = '"""Lion: a step by the sign of a momentum."""\n\nfrom puregraph.optimizers.optimizer import Optimizer\n\n\n'
    lion = definition("newoptimizer.md", "Lion").replace("(Optimizer):", '(Optimizer):\n    """Lion."""\n', 1)
    (copy / "puregraph" / "optimizers" / "lion.py").write_text(f"{head}{lion}\n", encoding="utf-8")
    export(copy / "puregraph" / "optimizers", "lion", "Lion")

    run(copy, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *[f"tests/house/{name}.py" for name in HOUSE])
    shown = "from puregraph import Lion, Mish, checkModule; checkModule(Mish(), [(2, 3)]); print(Lion(1e-3))"
    assert "Lion" in run(copy, "-c", shown)
