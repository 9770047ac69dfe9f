"""Model commands: shapes, draw and check, which take a model and the shapes of its inputs."""

from __future__ import annotations

import argparse
from typing import Any

from puregraph.cli.modelargument import findGraph, modelAndShapes
from puregraph.cli.terminal import hasColor, paint, printJson, terminalWidth
from puregraph.cli.usageerror import UsageError
from puregraph.core.errors import ArgumentError, show
from puregraph.core.shape import bind, symbols
from puregraph.graph.analysis.footprint import Footprint
from puregraph.graph.analysis.summary import render
from puregraph.testing.check import CheckError, checkModule


def runShapes(options: argparse.Namespace) -> int:
    """Print the table of a model, or its faults."""
    footprint = Footprint(*modelAndShapes(options))
    if options.json:
        printJson(asJson(footprint), options.out)
    else:
        print(render(footprint, terminalWidth(), hasColor()))
    return 1 if footprint.faults else 0


def asJson(footprint: Footprint) -> dict[str, object]:
    """Return a footprint as plain data, with symbols as text; a step's bytes are for one sample if the batch is a
    symbol."""
    sizes = {footprint.batch: 1} if footprint.batch else {}
    known = not footprint.faults and (footprint.batch or not footprint.symbols)
    return {
        "inputs": footprint.inshapes,
        "outputs": None if footprint.faults else footprint.outshapes,
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
            for line in footprint.lines
        ],
        "params": footprint.params,
        "paramBytes": footprint.paramBytes,
        "stateBytes": footprint.stateBytes,
        "flops": footprint.flops,
        "step": {
            "at": sizes,
            "keptBytes": footprint.kept(**sizes),
            "peakBytes": footprint.peak(**sizes),
            "eagerBytes": footprint.eager(**sizes),
        }
        if known
        else None,
        "faults": [str(fault) for fault in footprint.faults],
    }


def runDraw(options: argparse.Namespace) -> int:
    """Draw a model, including its faults."""
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
        if faults:
            print(paint(f"red, as it does not fit its inputs: {', '.join(faults)}", "1;31"))
    return 1 if faults else 0


def runCheck(options: argparse.Namespace) -> int:
    """Check the contract of every module of a model; equal modules at equal shapes are checked once."""
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
    """Return the fault of a module in one sentence; empty if there is none."""
    try:
        checkModule(module, shapes)
    except CheckError as error:
        return str(error)
    return ""
