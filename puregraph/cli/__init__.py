"""The command line, `puregraph` or `python -m puregraph`: shapes, check, draw, inspect, onnx, diff, plan, doctor,
launch.

Exit codes: 0 no faults; 1 the model or the file has faults; 2 the command cannot be run as given.
With --json nothing but JSON is written to stdout: what a model prints goes to stderr.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
from contextlib import redirect_stdout

import puregraph
from puregraph.cli.usageerror import UsageError
from puregraph.core.errors import PuregraphError
from puregraph.core.late import Late

MODEL = (
    "FILE.py, FILE.py:NAME or package.module:NAME: a Graph, or a function or class without arguments that makes one; "
    "or FILE.h5, a checkpoint"
)
FORMATS = ("puregraph", "puzzlelib")  # of checkpoints
LAUNCH = "run a script as several processes that train together, with the mpiexec beside Python"
SHAPE = "one for each input: 32,1,28,28, or N,1,28,28 for a batch of any size"


def runProcess() -> None:
    """Run the command of this process, and end it; its objects are not traversed once more."""
    code = main()
    gc.freeze()
    sys.exit(code)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # the parent process may have closed it
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # for terminals that cannot show a character
    arguments = sys.argv[1:] if arguments is None else arguments
    top = parser(next(iter(arguments), ""))
    isLaunch = arguments[:1] == ["launch"]
    arguments = arguments if isLaunch else negatives(arguments)
    for text in () if isLaunch else arguments:
        if re.match(r"-\d", text):  # argparse would take it for an option
            top.error(f"{text!r} is not a shape: write whole numbers, or a letter for an open size, as in N,3")
    options = top.parse_args(arguments)
    options.out = sys.stdout
    try:
        with redirect_stdout(sys.stderr if options.json else sys.stdout):
            code = options.run.load()(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (PuregraphError, OSError) as error:
        print(f"puregraph {options.command}: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        print(f"puregraph {options.command}: interrupted", file=sys.stderr)
        return 130


def negatives(arguments: list[str]) -> list[str]:
    """Join negative numbers to the option before them; argparse would take a negative number for another option."""
    joined: list[str] = []
    for text in arguments:
        if joined and joined[-1].startswith("--") and "=" not in joined[-1] and re.match(r"-\d", text):
            joined[-1] += f"={text}"
        else:
            joined.append(text)
    return joined


def parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """The commands and their arguments; if one is chosen, files of others are not imported."""
    top = argparse.ArgumentParser(prog="puregraph", description="Check, measure and inspect networks before they run.")
    top.add_argument("--version", action="version", version=f"puregraph {puregraph.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, file: str, run: str, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        made.add_argument("--json", action="store_true", help="print JSON")
        made.set_defaults(run=Late(f"puregraph.cli.{file}", run))
        return made

    shapes = command(
        "shapes", "modelcommands", "runShapes", "print every node's shapes, parameters, bytes and flops, or all faults"
    )
    check = command(
        "check", "modelcommands", "runCheck", "check rules and gradients of every node against finite differences"
    )
    for subparser in (shapes, check):
        subparser.add_argument("model", metavar="MODEL", help=MODEL)
        subparser.add_argument("shapes", metavar="SHAPE", nargs="+", help=SHAPE)
    drawn = command("draw", "modelcommands", "runDraw", "draw a model as a picture or a page")
    drawn.add_argument("model", metavar="MODEL", help=MODEL)
    drawn.add_argument("shapes", metavar="SHAPE", nargs="*", help=f"{SHAPE}; none where the inputs declare theirs")
    drawn.add_argument("-o", "--output", metavar="FILE", required=True, help="net.svg, net.html, net.dot or net.png")
    drawn.add_argument("--depth", metavar="N", help="groups nested deeper become one box each")
    drawn.add_argument("--repeats", action="store_true", help="draw equal groups in a row one by one")
    inspected = command(
        "inspect", "inspectcommand", "runInspect", "list the contents of a checkpoint or a file of weights"
    )
    inspected.add_argument("file", metavar="FILE", help="a checkpoint, or a file of weights such as net.safetensors")
    inspected.add_argument(
        "--format", choices=FORMATS, help="the library that wrote a checkpoint; default: by its content"
    )
    foreign = command("onnx", "onnxcommand", "runOnnx", "print an ONNX model as a graph; convert or compare it")
    foreign.add_argument("file", metavar="FILE", help="an ONNX model")
    foreign.add_argument("shapes", metavar="SHAPE", nargs="*", help=SHAPE)
    named = "the shape of one input, by its name in the file; may be repeated"
    foreign.add_argument("--shape", metavar="NAME=SHAPE", action="append", default=[], help=named)
    foreign.add_argument("--to", metavar="FILE.h5", help="save the graph with its weights")
    foreign.add_argument(
        "--check", action="store_true", help="compare its outputs, eager and compiled, with onnxruntime's"
    )
    compared = command(
        "diff", "diffcommand", "runDiff", "list nodes, shapes, dtypes and weights in which two models differ"
    )
    for side in ("first", "second"):
        compared.add_argument(side, metavar="MODEL", help=f"{MODEL}, a FILE.onnx, or a file of weights")
    compared.add_argument("-o", "--output", metavar="FILE", help="draw the second model, changed nodes marked")
    planned = command("plan", "plancommand", "runPlan", "report the memory and time of training on several processes")
    planned.add_argument("model", metavar="MODEL", nargs="?", help=MODEL)
    planned.add_argument("shapes", metavar="SHAPE", nargs="*", help="one for each input, of a whole batch: 4096,784")
    if chosen in (None, "plan"):
        from puregraph.cli import plancommand

        plancommand.addArguments(planned)
    command("doctor", "doctorcommand", "runDoctor", "report the device and why it is used, versions and threads")
    started = commands.add_parser("launch", help=LAUNCH, description=f"{LAUNCH[0].upper()}{LAUNCH[1:]}.")
    if chosen in (None, "launch"):
        from puregraph.distributed.launch import launcher

        launcher.addArguments(started)
    started.set_defaults(run=Late("puregraph.distributed.launch.launcher", "launch"), json=False)
    return top
