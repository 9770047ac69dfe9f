"""ONNX command: print an ONNX model as a graph; convert or compare it."""

from __future__ import annotations

import argparse
import importlib.util
from typing import Any

from puregraph.cli.modelargument import readShape
from puregraph.cli.terminal import hasColor, printJson, terminalWidth
from puregraph.cli.usageerror import UsageError

OUTPUT_TOLERANCE = 1e-4  # of the largest output


def namedShapes(texts: list[str]) -> dict[str, Any]:
    """Parse the options `--shape NAME=1,3,224,224` to shapes by input.

    Raises    UsageError for a text without a name
    """
    named = {}
    for text in texts:
        name, equals, sizes = text.rpartition("=")
        if not name or not equals:
            raise UsageError(f"--shape: wanted NAME=1,3,224,224, got {text!r}")
        named[name] = readShape(sizes)
    return named


def runOnnx(options: argparse.Namespace) -> int:
    """Print the content of an ONNX model. On request, save it or compare it with onnxruntime."""
    if importlib.util.find_spec("onnx") is None:
        raise UsageError("onnx is not installed: pip install puregraph[onnx]")
    from puregraph.onnx.onnxsummary import OnnxSummary  # nothing else here needs it

    summary = OnnxSummary(options.file, [readShape(text) for text in options.shapes], namedShapes(options.shape))
    facts: dict[str, Any] = {"opsets": summary.opsets, "operators": dict(summary.operators), "problem": summary.problem}
    if not options.json:
        print(summary.text(terminalWidth(), hasColor()))
    if summary.graph is not None and options.to:
        summary.graph.save(options.to)
        if not options.json:
            print(f"saved as {options.to}")
    isClose = True
    if options.check and summary.graph is not None:
        compared = summary.compare()
        facts |= {"distances": compared.eager, "compiledDistances": compared.compiled}
        isClose = max([*compared.eager, *compared.compiled], default=0.0) <= OUTPUT_TOLERANCE
        if not options.json:
            eager, compiled = (", ".join(f"{d:.1e}" for d in row) for row in compared[:2])
            at = ", ".join(compared.shapes)
            print(f"outputs at {at} differ from onnxruntime's by {eager} of the largest; compiled, by {compiled}")
    if options.json:
        printJson(facts, options.out)
    return 0 if summary.graph is not None and isClose else 1
