"""The command line, `puregraph` or `python -m puregraph`: shapes, check, draw, inspect, onnx, plan, doctor, launch.

Exit codes: 0 all is well; 1 the model or the file has faults; 2 the command cannot be carried out as it was given.
With --json nothing but JSON is written to stdout: what a model prints goes to stderr.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import json
import os
import re
import shutil
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import puregraph
from puregraph import checkpoint, device
from puregraph.analysis.footprint import Footprint
from puregraph.analysis.summary import bytesText, cut, render
from puregraph.base.environment import VARIABLES, variable
from puregraph.check import CheckError, checkModule
from puregraph.core.shape import asShape, bind, symbols
from puregraph.cuda.runtime.diagnose import driverVersion, parts
from puregraph.errors import ArgumentError, GraphError, PuregraphError, quote, show
from puregraph.graph import Graph
from puregraph.graph.lookup import nearest
from puregraph.many import launcher
from puregraph.module import Module
from puregraph.native.llvm import jit
from puregraph.storage.jsoncodec import decode
from puregraph.train.together import plancommand

MODEL = (
    "FILE.py, FILE.py:NAME or package.module:NAME: a Graph, or a function or class without arguments that makes one; "
    "or FILE.h5, a checkpoint"
)
LAUNCH = "run a script as several processes that train together, with the mpiexec beside Python"
SHAPE = "one for each input: 32,1,28,28, or N,1,28,28 for a batch of any size"
FOLDERS = (os.path.dirname(__file__), *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))
FOREIGN = ("<frozen", *(f"{folder}{os.sep}" for folder in FOLDERS))  # what a user did not write


class UsageError(PuregraphError):
    """A command that cannot be carried out as it was given."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; its exit code."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # closed by who started us
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character must not stop us
    top, arguments = parser(), sys.argv[1:] if arguments is None else arguments
    isLaunch = arguments[:1] == ["launch"]
    arguments = arguments if isLaunch else negatives(arguments)
    for text in () if isLaunch else arguments:
        if re.match(r"-\d", text):  # argparse would take it for an option
            top.error(f"{text!r} is no shape: sizes are whole numbers; a letter, as in N,3, is a size that is open")
    options = top.parse_args(arguments)
    options.out = sys.stdout
    try:
        with redirect_stdout(sys.stderr if options.json else sys.stdout):
            code = options.run(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (PuregraphError, OSError) as error:
        print(f"puregraph {options.command}: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        print(f"puregraph {options.command}: interrupted", file=sys.stderr)
        return 130


def negatives(arguments: list[str]) -> list[str]:
    """The arguments with each negative number joined to the option before it, which argparse would take for another."""
    found: list[str] = []
    for text in arguments:
        if found and found[-1].startswith("--") and "=" not in found[-1] and re.match(r"-\d", text):
            found[-1] += f"={text}"
        else:
            found.append(text)
    return found


def parser() -> argparse.ArgumentParser:
    """The commands and their arguments."""
    top = argparse.ArgumentParser(prog="puregraph", description="Check, measure and inspect networks before they run.")
    top.add_argument("--version", action="version", version=f"puregraph {puregraph.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        made.add_argument("--json", action="store_true", help="print JSON")
        made.set_defaults(run=run)
        return made

    shapes = command("shapes", runShapes, "print every node's shapes, parameters, bytes and flops, or all faults")
    check = command("check", runCheck, "check rules and gradients of every node against finite differences")
    for each in (shapes, check):
        each.add_argument("model", metavar="MODEL", help=MODEL)
        each.add_argument("shapes", metavar="SHAPE", nargs="+", help=SHAPE)
    drawn = command("draw", runDraw, "draw a model as a picture or a page")
    drawn.add_argument("model", metavar="MODEL", help=MODEL)
    drawn.add_argument("shapes", metavar="SHAPE", nargs="*", help=f"{SHAPE}; none where the inputs declare theirs")
    drawn.add_argument("-o", "--output", metavar="FILE", required=True, help="net.svg, net.html, net.dot or net.png")
    drawn.add_argument("--depth", metavar="N", help="groups nested deeper become one box each")
    drawn.add_argument("--repeats", action="store_true", help="draw equal groups in a row one by one")
    found = command("inspect", runInspect, "list what is in a checkpoint, without building the model")
    found.add_argument("file", metavar="FILE", help="a checkpoint that graph.save wrote")
    found.add_argument("--format", choices=checkpoint.FORMATS, default="puregraph", help="who wrote it")
    foreign = command("onnx", runOnnx, "print what is in an ONNX model, as a graph; convert or compare it")
    foreign.add_argument("file", metavar="FILE", help="an ONNX model")
    foreign.add_argument("shapes", metavar="SHAPE", nargs="*", help=SHAPE)
    foreign.add_argument("--to", metavar="FILE.h5", help="save the graph with its weights")
    foreign.add_argument("--check", action="store_true", help="compare its outputs with onnxruntime's")
    planned = command("plan", runPlan, "say what each way to train on several processes takes: bytes, memory, time")
    planned.add_argument("model", metavar="MODEL", nargs="?", help=MODEL)
    planned.add_argument("shapes", metavar="SHAPE", nargs="*", help="one for each input, of a whole batch: 4096,784")
    plancommand.addArguments(planned)
    command("doctor", runDoctor, "say which device is used and why, which versions are there, how many threads")
    started = commands.add_parser("launch", help=LAUNCH, description=f"{LAUNCH[0].upper()}{LAUNCH[1:]}.")
    launcher.addArguments(started)
    started.set_defaults(run=launcher.launch, json=False)
    return top


# Commands -------------------------------------------------------------------------------------------------------------


def runShapes(options: argparse.Namespace) -> int:
    """The table of a model, or its faults."""
    found = Footprint(*modelAndShapes(options))
    if options.json:
        printJson(asJson(found), options.out)
    else:
        print(render(found, terminalWidth(), hasColor()))
    return 1 if found.faults else 0


def runDraw(options: argparse.Namespace) -> int:
    """A picture of a model, of its faults too."""
    graph, *shapes = modelAndShapes(options) if options.shapes else [findGraph(options.model)]
    if options.depth is not None and not options.depth.isdecimal():
        raise UsageError(f"wanted a whole number for --depth, got {options.depth!r}")
    depth = None if options.depth is None else int(options.depth)
    try:
        drawing = graph.draw(options.output, *shapes, depth=depth, repeats=options.repeats)
    except ArgumentError as error:
        raise UsageError(str(error)) from None
    faults = [box.name for box in drawing.whole.boxes if box.kind == "fault"]
    if options.json:
        printJson({"file": options.output, "boxes": len(drawing.picture.boxes), "faults": faults}, options.out)
    else:
        print(f"{options.output}: {drawing!r}")
    return 1 if faults else 0


def runCheck(options: argparse.Namespace) -> int:
    """Every node of a model against what each module must satisfy; equal modules at equal shapes once."""
    graph, *shapes = modelAndShapes(options)
    sizes = [bind(shape, dict.fromkeys(symbols(shape), 2)) for shape in shapes]
    known: dict[Any, str] = {}
    rows = []
    for step, inshapes, outshapes, fault, _ in graph.inferShapes(sizes):
        problem = str(fault._replace(path="", module="")) if fault else ""
        if outshapes is not None:
            key = (type(step.module), repr(step.module.initArgs), show(inshapes))
            if key not in known:
                known[key] = problemOf(step.module, inshapes)
            problem = known[key]
        unknown = outshapes is None and not fault
        result = problem or ("not checked, because of a fault above it" if unknown else "ok")
        rows.append({"name": step.path, "module": step.label, "ok": result == "ok", "result": result})
        if not options.json:
            print(
                paint(f"{step.path} ({step.label}): {result}", "1;31" if problem else "2" if unknown else ""),
                flush=True,
            )
    bad = sum(not row["ok"] for row in rows)
    if options.json:
        printJson({"inputs": sizes, "nodes": rows}, options.out)
    else:
        at = f"{len(rows)} nodes at {', '.join(map(show, sizes))}"
        print(paint(f"{at}: {bad} not in order", "1;31") if bad else f"{at}: all in order")
    return 1 if bad else 0


def problemOf(module: Any, shapes: list[Any]) -> str:
    """What is wrong with a module, in one sentence; empty if nothing is."""
    try:
        checkModule(module, shapes)
    except CheckError as error:
        return str(error)
    return ""


def runInspect(options: argparse.Namespace) -> int:
    """The contents of a checkpoint."""
    if not Path(options.file).is_file():
        raise UsageError(f"there is no file {options.file!r}")
    found = checkpoint.contents(options.file, options.format)
    if options.json:
        printJson(contentsJson(found), options.out)
        return 0
    state = dict(enumerate((found.optimizer or {}).get("state", ())))
    names = {f"optimizer/{i}": f"optimizer/{name}" for i, name in state.items()}
    rows = [
        (quote(names.get(n, n))[1:-1], show(a.shape), a.dtype, bytesText(a.nbytes)) for n, a in found.arrays.items()
    ]
    for line in aligned(rows, right=(3,)) if rows else ():
        print(line)
    modules = found.blueprint.get("modules", ())
    nodes = len(modules) if isinstance(modules, (list, tuple)) else 0
    facts = {
        "arrays": f"{len(rows)}, {bytesText(sum(a.nbytes for a in found.arrays.values()))}",
        "graph": f"{nodes} modules" if nodes else "none",
        "optimizer": f"{quote(found.optimizer['class'])[1:-1]} after {found.optimizer['step']:,} steps"
        if found.optimizer
        else "none",
        "extra": extraText(found.extra),
    }
    saved = decoded(found.extra)
    if isinstance(saved, dict) and set(saved) == {"trainer"} and isinstance(saved["trainer"], dict):
        del facts["extra"]
        facts |= trainerFacts(saved["trainer"])
    print()
    for line in aligned(list(facts.items())):
        print(line)
    return 0


def runOnnx(options: argparse.Namespace) -> int:
    """What is in an ONNX model; it is saved, or compared with onnxruntime, where that is asked for."""
    if importlib.util.find_spec("onnx") is None:
        raise UsageError("onnx is not installed: pip install puregraph[onnx]")
    from puregraph.onnx.onnxsummary import OnnxSummary  # nothing else here needs it

    found = OnnxSummary(options.file, [readShape(text) for text in options.shapes] or None)
    facts: dict[str, Any] = {"opsets": found.opsets, "operators": dict(found.operators), "problem": found.problem}
    if not options.json:
        print(found.text(terminalWidth(), hasColor()))
    if found.graph is not None and options.to:
        found.graph.save(options.to)
        if not options.json:
            print(f"saved as {options.to}")
    isClose = True
    if options.check:
        facts["distances"], shapes = found.compare()
        isClose = max(facts["distances"], default=0.0) <= 1e-4
        if not options.json:
            text = ", ".join(f"{d:.1e}" for d in facts["distances"])
            print(f"outputs at {', '.join(shapes)} differ from onnxruntime's by {text} of the largest")
    if options.json:
        printJson(facts, options.out)
    return 0 if found.graph is not None and isClose else 1


def runPlan(options: argparse.Namespace) -> int:
    """What each split of a model takes on the machines described; or the figures of this one."""
    if options.measure:
        return plancommand.measureHere()
    if options.model is None:
        raise UsageError("wanted a script that trains, or a model and the shapes of a batch, or --measure")
    line = ""
    try:
        if options.shapes:
            graph, *shapes = modelAndShapes(options)
            plans = plancommand.plansFrom(options, graph, shapes)
        elif Path(options.model).is_file():
            line, plans = plancommand.plansOfScript(options, options.model)
        else:
            raise UsageError(f"there is no script {options.model!r}; of a model give the shapes of a batch as well")
    except ArgumentError as error:
        raise UsageError(str(error)) from None
    if options.json:
        printJson(plancommand.rowsOf(plans), options.out)
    else:
        print("\n\n".join(filter(None, [line, *[plan.table() for plan in plans]])))
    return 0 if any(plan.best is not None for plan in plans) else 1


def trainerFacts(saved: dict[str, Any]) -> dict[str, str]:
    """Where a training is: epoch and step, the figures of its last epoch, its callbacks."""
    progress, history = saved.get("place"), saved.get("history")
    facts = {}
    if isinstance(progress, dict):
        epoch, step, position = (progress.get(name) for name in ("epoch", "step", "position"))
        under = f", and {position} steps of the next one" if position else ""
        facts["training"] = f"{epoch} epochs{under}; {step} steps in all"
    if isinstance(history, list) and history and isinstance(history[-1], dict):
        figures = [(name, value) for name, value in history[-1].items() if type(value) is float]
        shown = [f"{name} {value:.4g}" for name, value in figures]
        facts["last epoch"] = quote("  ".join(shown))[1:-1]
    callbacks = saved.get("callbacks")
    if isinstance(callbacks, list):
        names = [str(each.get("type")) for each in callbacks if isinstance(each, dict)]
        facts["callbacks"] = quote(", ".join(names))[1:-1] or "none"
    return facts


def contentsJson(found: checkpoint.Contents) -> dict[str, Any]:
    """A checkpoint's contents as plain data."""
    arrays = [
        {"name": n, "shape": list(a.shape), "dtype": a.dtype, "bytes": a.nbytes, "crc32": found.crcs.get(n)}
        for n, a in found.arrays.items()
    ]
    return {"arrays": arrays, "blueprint": found.blueprint, "optimizer": found.optimizer, "extra": found.extra}


def runDoctor(options: argparse.Namespace) -> int:
    """The device and why, threads, native code, what there is of all that a GPU takes, versions.

    Where there is no driver, the libraries of a GPU are on one line.
    """
    for name in VARIABLES:
        variable(name)  # refuses a bad one by name
    chosen = {"device": device.name(), "why": device.reason(), "threads": device.threads(), "native code": native()}
    libraries = parts()
    if not options.json and driverVersion() is None:
        libraries = {"GPU": f"no driver, so {', '.join(each for each in libraries if each != 'driver')} are not used"}
    found = {**chosen, **libraries, **device.versions()}
    if options.json:
        printJson(found, options.out)
    else:
        for line in aligned([(key, str(value)) for key, value in found.items()]):
            print(line)
    return 0


def native() -> str:
    """Whether steps on the CPU are native code, or why not, and what that means."""
    if not variable("NATIVE", True):
        return "no, because PUREGRAPH_NATIVE says so: numpy computes everything, several times slower"
    why = jit.missing()
    return (
        f"no: {why}; numpy computes everything, several times slower"
        if why
        else f"yes, vectors of {jit.target().bits} bits"
    )


def asJson(found: Footprint) -> dict[str, Any]:
    """A footprint as plain data: exact numbers, symbols as text; bytes of a step for one sample where N is a symbol."""
    sizes = {found.batch: 1} if found.batch else {}
    known = not found.faults and (found.batch or not found.symbols)
    return {
        "inputs": found.inshapes,
        "outputs": None if found.faults else found.outshapes,
        "nodes": [
            {
                "name": line.path,
                "module": repr(line.module),
                "from": line.source,
                "data": line.shapes,
                "dtypes": [None if d is None else str(d) for d in line.dtypes],
                "grad": line.gradShapes,
                "params": line.params,
                "bytes": line.nbytes,
                "flops": line.flops,
                "fault": line.fault._asdict() if line.fault else None,
            }
            for line in found.lines
        ],
        "params": found.params,
        "paramBytes": found.paramBytes,
        "stateBytes": found.stateBytes,
        "flops": found.flops,
        "step": {
            "at": sizes,
            "keptBytes": found.kept(**sizes),
            "peakBytes": found.peak(**sizes),
            "eagerBytes": found.eager(**sizes),
        }
        if known
        else None,
        "faults": [str(fault) for fault in found.faults],
    }


# Printing -------------------------------------------------------------------------------------------------------------


def printJson(value: Any, out: Any) -> None:
    """Plain data as indented JSON."""
    print(json.dumps(value, indent=2, default=str), file=out, flush=True)


def terminalWidth() -> int | None:
    """The columns of the terminal; None where the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def hasColor() -> bool:
    """Whether the output goes to a terminal whose user wants colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str) -> str:
    """The text in a style of the terminal, where there are colours."""
    return f"\x1b[{style}m{text}\x1b[0m" if style and hasColor() else text


def aligned(rows: Sequence[tuple[str, ...]], right: tuple[int, ...] = ()) -> list[str]:
    """Rows as lines with their columns one under another."""
    wide = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, wide))).rstrip()
        for row in rows
    ]


def extraText(saved: Any) -> str:
    """What was saved as `extra`, on one line, cut where it is long."""
    return cut(outline(decoded(saved)), 100)


def decoded(saved: Any) -> Any:
    """What was saved as `extra`, with a text for each array."""
    return decode(saved, lambda value: f"array {value['array']}" if "array" in value else None)


def outline(value: Any, depth: int = 2) -> str:
    """A value as text; what is deep inside of it is left out."""
    if not isinstance(value, dict):
        return repr(value)
    return f"{{{', '.join(f'{k!r}: {outline(v, depth - 1)}' for k, v in value.items())}}}" if depth else "{...}"


# Reading arguments ----------------------------------------------------------------------------------------------------


def modelAndShapes(options: argparse.Namespace) -> list[Any]:
    """The graph that a command names, and a shape for each of its inputs."""
    shapes = [readShape(text) for text in options.shapes]
    graph = findGraph(options.model)
    try:
        graph.steps(len(shapes))
    except GraphError as error:
        raise UsageError(f"{error}; give one shape for each input") from None
    return [graph, *shapes]


def readShape(text: str) -> Any:
    """A shape as typed: `N,1,28,28`, with or without brackets; `()` is that of a number."""
    sizes = [part.strip() for part in text.strip().strip("()[]").split(",")]
    if sizes[-1] == "":
        sizes.pop()  # (3,) and ()
    try:
        if not text.strip():
            raise UsageError("nothing")
        return asShape([int(s) if s.isdecimal() else s for s in sizes])
    except PuregraphError:
        raise UsageError(f"cannot read the shape {text!r}: write 32,1,28,28, or N,1,28,28 for any batch") from None


def findGraph(target: str) -> Graph:
    """The Graph that `FILE.py`, `FILE.py:NAME` or `package.module:NAME` names, or that a checkpoint holds."""
    if not target.endswith(".py") and Path(target).is_file():
        if target.endswith(".onnx"):
            raise UsageError(
                f"{target} is an ONNX model: puregraph onnx {target} --to FILE.h5 makes a checkpoint of it"
            )
        return checkpoint.loadGraph(target)
    source, _, name = target.partition(":")
    module = loadModule(source)
    choice = choices(module)
    if not name and len(choice) != 1:
        none = "it has neither a Graph nor a function or class that makes one without arguments"
        found = f"it has {', '.join(choice)}" if choice else none
        raise UsageError(f"say which graph of {source} is meant, as in {source}:{next(iter(choice), 'NAME')}; {found}")
    name = name or choice[0]
    if not hasattr(module, name):
        raise UsageError(f"{source} has no {name!r}; it has {', '.join(nearest(name, choice)) or 'no graphs'}")
    graph = build(getattr(module, name), f"{source}:{name}")
    if not isinstance(graph, Graph):
        hint = "; put it into a Sequential" if isinstance(graph, Module) else ""
        raise UsageError(f"{source}:{name}: wanted a Graph, or a function that returns one, got {kindOf(graph)}{hint}")
    return graph


def choices(module: Any) -> list[str]:
    """The names of a file that can be meant: its Graphs; if there are none, what it has that makes one unasked."""
    own = {n: v for n, v in vars(module).items() if n[0] != "_"}
    graphs = [n for n, v in own.items() if isinstance(v, Graph)]
    here = f"{module.__name__}."
    made = {n: v for n, v in own.items() if f"{getattr(v, '__module__', '')}.".startswith(here)}
    return graphs or [n for n, v in made.items() if (inspect.isfunction(v) or isGraphClass(v)) and not required(v)]


def isGraphClass(value: Any) -> bool:
    """Whether it is a class of Graphs."""
    return isinstance(value, type) and issubclass(value, Graph)


def kindOf(value: Any) -> str:
    """What something is, for a message."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def required(function: Any) -> list[str]:
    """The arguments that a function cannot do without."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    given = inspect.signature(function).parameters.values()
    return [p.name for p in given if p.default is p.empty and p.kind not in kinds]


def build(found: Any, label: str) -> Any:
    """A Graph as it is, or what a function or class makes."""
    isMaker = isGraphClass(found) or callable(found) and not isinstance(found, (Module, type))
    if not isMaker:
        return found
    missing = required(found)
    if missing:
        raise UsageError(f"{label} needs arguments ({', '.join(missing)}): name a function that needs none")
    return running(label, found)


def loadModule(source: str) -> Any:
    """The module of a file or of a dotted name; `if __name__ == "__main__"` parts do not run."""
    if not source.endswith(".py"):
        sys.path.insert(0, os.getcwd())  # as `python -m` does
        if importedFrom(source) is None:
            raise UsageError(f"there is no module {source!r}; name a FILE.py, or a package.module that can be imported")
        return running(source, lambda: importlib.import_module(source))
    path = Path(source)
    if not path.is_file():
        raise UsageError(f"there is no file {source!r}")
    names, folder = [path.stem], path.resolve().parent
    while (folder / "__init__.py").is_file():  # a part of a package, which may import its neighbours by dots
        names, folder = [folder.name, *names], folder.parent
    sys.path.insert(0, str(folder))  # so that a file finds its neighbours, as when it is run
    if len(names) > 1 and "." not in path.stem:
        return running(source, lambda: importlib.import_module(".".join(names)))
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    running(source, lambda: spec.loader.exec_module(module))
    return module


def importedFrom(name: str) -> Any:
    """Where a module would be imported from; None if nowhere."""
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def running(label: str, function: Any) -> Any:
    """The result of the user's code, or where and why it failed, in one sentence."""
    try:
        return function()
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if not f.filename.startswith(FOREIGN)]
        line = f" at line {own[-1].lineno} of {own[-1].filename}" if own else ""
        raise UsageError(f"{label} raises {type(error).__name__}{line}: {error}") from error
