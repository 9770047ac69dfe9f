"""The real CuPy on a machine without a driver: it is told, everything works on the CPU, and all that is asked of it is there."""

import ast
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from fakecupy import makeCupy
from source import library
from strict import ATTRIBUTES, METHODS

from puregraph.ops.cuda.runtime import diagnose
from puregraph.ops.formula.optable import TABLE

pytestmark = pytest.mark.cupy
noDriver = pytest.mark.skipif(diagnose.driverVersion() is not None, reason="there is a driver")
HOST = {
    "sample",
    "examples",
    "__init__",
    "dataShapeFrom",
    "flopsFrom",
    "hiddenShapeFrom",
    "hiddenTypeFrom",
    "gradShapeFrom",
    "checkAlone",
}
NOTARRAYS = ("np.random", "np.errstate", "np.lib", "np.dtype")
RULES = ("modules", "costs", "optimizers", "autodiff", "algebra", "nest")


def inProcess(script, *arguments, **environment):
    """What a script prints as JSON, in a process of its own."""
    kept = {name: value for name, value in os.environ.items() if name != "PUREGRAPH_DEVICE"}
    kept |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, env=kept)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


TRAINING = """
import json, sys
import cupy
import numpy as np
import puregraph
from puregraph import Accuracy, Adam, Calculator, CrossEntropy, Trainer, device
from puregraph.models import mlp

told = [cupy.__version__, device.name(), device.reason()]
try:
    device.useDevice("cuda")
except puregraph.DeviceError as error:
    told.append(str(error))
rng = np.random.default_rng(0)
x, t = rng.random((60, 8)).astype(np.float32), rng.integers(0, 3, 60)
puregraph.seed(0)
trainer = Trainer(mlp(8, (12,), 3), CrossEntropy(), Adam(1e-2), metrics=[Accuracy()], batchsize=16, progress="none")
trainer.train(x, t, epochs=3, validation=(x, t))
again = puregraph.load(trainer.net.save(None))
same = bool((Calculator(again).calculate(x) == Calculator(trainer.net).calculate(x)).all())
losses = trainer.history.column("loss")
print(json.dumps([*told, losses, same, type(trainer.net["fc1"].W.data).__name__]))
"""


@noDriver
def test_without_a_driver_all_works_on_the_cpu_and_the_reason_is_told():
    version, name, reason, refused, losses, same, kind = inProcess(TRAINING)
    why = f"CuPy {version} is installed, but finds no NVIDIA driver"
    assert (name, reason) == ("cpu", f"cpu, because {why}")
    assert refused == f"useDevice('cuda'): no GPU can be used, because {why}; 'cpu' and 'auto' work"
    assert losses[0] > losses[1] > losses[2] > 0
    assert same
    assert kind == "ndarray"


@noDriver
def test_the_command_line_tells_it_too():
    script = "import sys; from puregraph.cli import main; sys.exit(main(['doctor', '--json']))"
    found = inProcess(script)
    assert found["why"].endswith("is installed, but finds no NVIDIA driver")
    assert found["driver"] == (
        "no libcuda.so.1 was found; nothing runs on a GPU, but kernels can be compiled, and run by the emulator"
    )


# What is asked of CuPy ---------------------------------------------------------------------------------------------------


def isCupy(node):
    """cupy, or sys.modules["cupy"]."""
    if isinstance(node, ast.Name):
        return node.id == "cupy"
    return isinstance(node, ast.Subscript) and ast.unparse(node) == "sys.modules['cupy']"


def pathOf(node, known):
    """The dotted name below cupy that an expression is; None for anything else."""
    if isCupy(node):
        return ()
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        below = pathOf(node.value, known)
        return None if below is None else (*below, node.attr)
    return None


def usesIn(function):
    """(path, positional arguments or None where it is not called, names of others) of what a function asks of cupy."""
    known = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            pairs = [(node.targets[0], node.value)]
            if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(node.targets[0].elts, node.value.elts))
            for target, value in pairs:
                path = pathOf(value, known)
                if isinstance(target, ast.Name) and path is not None:
                    known[target.id] = path
    for node in ast.walk(function):
        path = pathOf(node, known) if isinstance(node, ast.Attribute) else None
        if path:
            yield path, None, ()
        if isinstance(node, ast.Call):
            path = pathOf(node.func, known)
            isPlain = not any(isinstance(a, ast.Starred) for a in node.args) and all(k.arg for k in node.keywords)
            if path and isPlain:
                yield path, len(node.args), tuple(k.arg for k in node.keywords)


def uses():
    """All that the library asks of cupy."""
    found = set()
    for source in library():
        if "cupy" in source.path.read_text(encoding="utf-8"):  # a tree of every file takes seconds
            for node in ast.walk(source.tree):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    found.update(usesIn(node))
    return sorted(found, key=str)


CHECKS = """
import inspect, json, re, sys
import cupy
import cupy.cuda.function, cupyx.scipy.special

def parameters(thing):
    "(how many it takes at least, at most, their names), from a signature or the first line of a docstring"
    if isinstance(thing, cupy.ufunc):
        return thing.nin, thing.nargs, {"out", "dtype", "where", "casting"}
    target = thing.__init__ if inspect.isclass(thing) else thing
    line = ((getattr(target, "__doc__", "") or "").strip().splitlines() or [""])[0]
    told = re.match(r"[\\w.]+\\((.*)\\)", line)
    try:
        given = [p for p in inspect.signature(thing).parameters.values()]
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in given) and not told:
            return None
        if not told:
            need = [p for p in given if p.default is p.empty]
            return len(need), len(given), {p.name for p in given}
    except (TypeError, ValueError):
        pass
    if not told:
        return None
    words = [w.strip() for w in told[1].split(",") if w.strip()]
    words = [w for w in words if w not in ("self", "/")]
    if any("*" in w for w in words):
        return None
    need = [w for w in words if "=" not in w]
    return len(need), len(words), {w.split("=")[0].split(":")[0].split()[-1] for w in words}

def fault(path, count, names):
    thing = cupy
    for name in path:
        if not hasattr(thing, name):
            return "is not there"
        thing = getattr(thing, name)
    if count is None:
        return None
    found = parameters(thing)
    if found is None:
        return None
    least, most, known = found
    unknown = sorted(set(names) - known)
    if unknown:
        return f"takes no {', '.join(unknown)}"
    if not least <= count + len(names) <= max(most, least):
        return f"takes {least} to {most}, not {count + len(names)}"

faults = []
asked = json.load(open(sys.argv[1]))
for path, count, names in asked:
    why = fault(path, count, names)
    if why:
        faults.append(f"cupy.{'.'.join(path)} {why}")
print(json.dumps([len(asked), faults]))
"""


def faultsOf(asked, folder):
    (folder / "asked.json").write_text(json.dumps(asked))
    return inProcess(CHECKS, str(folder / "asked.json"))


def test_all_that_is_asked_of_cupy_is_there_and_takes_what_it_is_given(tmp_path):
    asked = uses()
    assert [("cuda", "runtime", "memcpyAsync"), 5, ()] in [list(use) for use in asked]
    wrong = [
        (("cuda", "runtime", "memcpyAsync"), 4, ()),
        (("cuda", "Stream"), 0, ("blocking",)),
        (("nothing",), None, ()),
    ]
    count, faults = faultsOf([*asked, *wrong], tmp_path)
    assert count > 50
    assert faults == [
        "cupy.cuda.runtime.memcpyAsync takes 5 to 5, not 4",
        "cupy.cuda.Stream takes no blocking",
        "cupy.nothing is not there",
    ]


def test_rules_call_functions_of_numpy_that_are_cupys_too(tmp_path):
    asked = {((name,), None, ()) for row in TABLE.values() if (name := nameOf(row.numpy))}
    for source in library():
        if source.name.split(".")[1:2] and source.name.split(".")[1] in RULES:
            asked.update(callsOf(source.tree))
    count, faults = faultsOf(sorted(asked, key=str), tmp_path)
    assert count > 100
    assert faults == []


def nameOf(function):
    """The name of a function of numpy."""
    isNumpys = isinstance(function, np.ufunc) or getattr(function, "__module__", "").startswith("numpy")
    return function.__name__ if isNumpys else None


def callsOf(tree):
    """What the rules of a file call of numpy."""
    outside = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.name in HOST for n in ast.walk(f)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and id(node) not in outside:
            text = ast.unparse(node.func)
            isPlain = not any(isinstance(a, ast.Starred) for a in node.args) and all(k.arg for k in node.keywords)
            if re.fullmatch(r"np(\.\w+)+", text) and not text.startswith(NOTARRAYS):
                path = tuple(text.split(".")[1:])
                yield path, len(node.args) if isPlain else None, tuple(k.arg for k in node.keywords) if isPlain else ()


CLASSES = """
import json
import cupy, cupy.cuda.function
kinds = {"Stream": cupy.cuda.Stream, "Event": cupy.cuda.Event, "Graph": cupy.cuda.Graph, "Memory": cupy.cuda.Memory,
         "MemoryPointer": cupy.cuda.MemoryPointer, "Module": cupy.cuda.function.Module,
         "Function": cupy.cuda.function.Function, "ndarray": cupy.ndarray, "Ordinal": cupy.cuda.Device,
         "Pinned": cupy.cuda.PinnedMemoryPointer}
print(json.dumps({name: [dir(kind), kind.__doc__ or ""] for name, kind in kinds.items()}))
"""


OWN = {"current", "data", "end", "machine", "of", "perform", "queue", "refuse", "values"}  # of the tracer itself


def test_what_the_stand_in_offers_is_what_cupy_has():
    real = inProcess(CLASSES)
    cupy = makeCupy()
    cuda = cupy.cuda
    fakes = {name: getattr(cuda, name) for name in ("Stream", "Event", "Graph", "Memory", "MemoryPointer")}
    fakes |= {"Module": cuda.function.Module, "Function": cuda.function.Function, "ndarray": cupy.ndarray}
    fakes |= {"Ordinal": type(cuda.Device())}
    assert {*METHODS, *ATTRIBUTES} <= set(real["ndarray"][0])
    asked = {name for source in library() for name in re.findall(r"\.(\w+)", source.path.read_text(encoding="utf-8"))}
    for name, fake in fakes.items():
        names, text = real[name]
        offered = {n for n in dir(fake) if n[0] != "_"} & asked
        missing = {n for n in offered if n not in names and f".{n}" not in text}
        missing -= OWN
        assert not missing, f"CuPy's {name} has no {', '.join(sorted(missing))}"
