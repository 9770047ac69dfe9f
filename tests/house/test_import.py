"""Importing puregraph is light: it brings no optional package, and works where there is none."""

import os
import subprocess
import sys

import pytest
from source import library

OPTIONAL = [
    "cupy",
    "graphlay",
    "llvmlite",
    "matplotlib",
    "mpi4py",
    "numba",
    "onnx",
    "pandas",
    "resvg_py",
    "safetensors",
    "scipy",
    "sklearn",
    "tensorboardX",
    "torch",
]
HEAVY = [*OPTIONAL, "argparse", "asyncio", "h5py", "html", "importlib.abc", "logging", "multiprocessing", "rich"]
HEAVY += ["subprocess", "sysconfig", "tempfile", "unittest"]
NUMPY = "import sys, numpy, numpy.fft, numpy.random; before = {*sys.modules}; import puregraph"
LATE = ["cli", "compat", "compile", "data", "distributed", "draw", "models", "onnx", "testing", "train"]
ZOO = ["modules", "optimizers"]  # every class of theirs is public, and they may grow
MAX_FILES = 240  # other files of the package that importing it may read
BLOCKER = """
import importlib.abc, sys
class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in OPTIONAL:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
"""


def run(code, folder=None, **variables):
    """The standard output of Python code in a fresh process, with warnings as errors."""
    environment = {key: value for key, value in os.environ.items() if key != "PUREGRAPH_DEVICE"} | variables
    if folder:
        environment["PYTHONPATH"] = os.pathsep.join([str(folder), environment.get("PYTHONPATH", "")])
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def explosive(folder):
    """A CuPy that cannot be imported without being noticed."""
    (folder / "cupy.py").write_text("raise SystemExit('cupy was imported')")
    return folder


def test_importing_brings_nothing_heavy():
    assert run(f"{NUMPY}; print({{*{HEAVY}}} & {{*sys.modules}} - before)") == "set()"


def test_importing_reads_only_what_graphs_are_built_of():
    names = run(
        "import sys, puregraph; print(*[name for name in sys.modules if name.startswith('puregraph.')])"
    ).split()
    assert not [name for name in names if name.split(".")[1] in LATE]
    assert not [name for name in names if name.endswith((".lowering", ".onnx")) or ".native.math" in name]
    assert len([name for name in names if name.split(".")[1] not in ZOO]) <= MAX_FILES


def test_the_trainer_imports_no_lowering_before_the_first_compile():
    code = "import sys, puregraph; from puregraph import *; T = puregraph.Trainer\n"
    code += "names = lambda: {name for name in sys.modules if name.endswith('.lowering') and '.ops.' in name}\n"
    code += "print(len(names()))\nfrom puregraph.compile.lower.registry import isLowered\n"
    code += "from puregraph.ops.convolution.reference import convolve; print(isLowered(convolve), len(names()))"
    assert run(code).split() == ["1", "True", "11"]  # the decomposition of gather reads its layout of rows


def test_the_lowerings_declare_nothing_that_a_trace_needs():
    code = "import puregraph; puregraph.Trainer\nfrom puregraph.ops.kernel import registry\n"
    code += "from puregraph.ops.operation import OPERATIONS\n"
    code += "known = lambda: {(f, what) for o in [*OPERATIONS.values(), *registry.values()] for f in [o.name]\n"
    code += "    for what in o.declarations if what not in ('lower', 'tiling', 'untiled')}\n"
    code += "before = known()\nimport puregraph.compile.lower.lowerings\nprint(known() - before)"
    assert run(code) == "set()"


@pytest.mark.parametrize("name", LATE[1:])
def test_a_package_that_is_not_imported_at_the_start_is_an_attribute_all_the_same(name):
    assert run(f"import puregraph; print(puregraph.{name}.__name__)") == f"puregraph.{name}"


@pytest.mark.parametrize("package", ["puregraph", "puregraph.autodiff", "puregraph.distributed"])
def test_names_that_are_imported_late_are_listed_and_there(package):
    code = f"import {package} as package; late = set(dir(package)) - set(vars(package)); print(len(late) > 5)\n"
    code += "assert set(package.__all__) <= set(dir(package)), 'listed'\n"
    code += "for name in late: assert getattr(package, name) is vars(package)[name], name"
    assert run(code) == "True"


def test_a_late_class_is_pickled_and_star_imported_as_any_other():
    code = (
        "import pickle, puregraph; Trainer = pickle.loads(pickle.dumps(puregraph.Trainer))\nfrom puregraph import *\n"
    )
    assert run(code + "print(Trainer is puregraph.Trainer, load.__name__)") == "True loadGraph"


def test_a_misspelt_name_is_refused_by_late_packages():
    code = "import puregraph.distributed as d\ntry: d.Mpiworld\nexcept AttributeError as error: print(error)"
    assert run(code) == "module 'puregraph.distributed' has no attribute 'Mpiworld'"


def test_importing_leaves_an_installed_cupy_alone(tmp_path):
    assert run("import puregraph; print('light')", explosive(tmp_path)) == "light"


def test_a_cpu_run_never_imports_cupy(tmp_path):
    code = "from puregraph import device; print(device.name(), device.toDevice(device.toHost([1, 2])).sum())"
    assert run(code, explosive(tmp_path), PUREGRAPH_DEVICE="cpu") == "cpu 3"


def test_every_file_imports_where_no_extra_is_installed():
    names = [source.name for source in library() if not source.name.endswith("__main__")]
    code = f"OPTIONAL = {OPTIONAL}{BLOCKER}\nimport importlib\n"
    code += f"for name in {names}: importlib.import_module(name)\nprint('complete')"
    assert run(code) == "complete"
