"""ONNX command: print an ONNX model as a graph; convert or compare it."""

from __future__ import annotations

import argparse
import importlib.util
from typing import Any

from puregraph.cli.modelargument import readShape
from puregraph.cli.terminal import hasColor, printJson, terminalWidth
from puregraph.cli.usageerror import UsageError


def runOnnx(options: argparse.Namespace) -> int:
    """Print the content of an ONNX model. On request, save it or compare it with onnxruntime."""
    if importlib.util.find_spec("onnx") is None:
        raise UsageError("onnx is not installed: pip install puregraph[onnx]")
    from puregraph.onnx.onnxsummary import OnnxSummary  # nothing else here needs it

    summary = OnnxSummary(options.file, [readShape(text) for text in options.shapes] or None)
    facts: dict[str, Any] = {"opsets": summary.opsets, "operators": dict(summary.operators), "problem": summary.problem}
    if not options.json:
        print(summary.text(terminalWidth(), hasColor()))
    if summary.graph is not None and options.to:
        summary.graph.save(options.to)
        if not options.json:
            print(f"saved as {options.to}")
    isClose = True
    if options.check:
        facts["distances"], shapes = summary.compare()
        isClose = max(facts["distances"], default=0.0) <= 1e-4
        if not options.json:
            text = ", ".join(f"{d:.1e}" for d in facts["distances"])
            print(f"outputs at {', '.join(shapes)} differ from onnxruntime's by {text} of the largest")
    if options.json:
        printJson(facts, options.out)
    return 0 if summary.graph is not None and isClose else 1
