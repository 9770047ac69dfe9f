"""Inspect command: the contents of a checkpoint or of a file of weights, without building the model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from puregraph.cli.terminal import aligned, printJson
from puregraph.cli.usageerror import UsageError
from puregraph.core.errors import printable, quote, show
from puregraph.core.storage.archive import TITLE
from puregraph.core.storage.jsoncodec import decode
from puregraph.graph.analysis.summary import bytesText, cut
from puregraph.serialize import checkpoint
from puregraph.serialize.weights.readers import HEAD_BYTES, readerOf, readWeights

if TYPE_CHECKING:
    pass


def runInspect(options: argparse.Namespace) -> int:
    """Print the contents of a checkpoint or of another program's file of weights."""
    if not Path(options.file).is_file():
        raise UsageError(f"there is no file {options.file!r}")
    if options.format is None and isForeign(options.file):
        inspectWeights(options)
        return 0
    contents = checkpoint.contents(options.file, options.format)
    if options.json:
        printJson(contentsJson(contents), options.out)
        return 0
    state = dict(enumerate((contents.optimizer or {}).get("state", ())))
    names = {f"optimizer/{i}": f"optimizer/{name}" for i, name in state.items()}
    rows = [
        (quote(names.get(n, n))[1:-1], show(a.shape), a.dtype, bytesText(a.nbytes)) for n, a in contents.arrays.items()
    ]
    for line in aligned(rows, right=(3,)) if rows else ():
        print(line)
    modules = contents.blueprint.get("modules", ())
    nodes = len(modules) if isinstance(modules, (list, tuple)) else 0
    facts = {
        "arrays": f"{len(rows)}, {bytesText(sum(a.nbytes for a in contents.arrays.values()))}",
        "graph": f"{nodes} modules" if nodes else "none",
        "optimizer": f"{quote(contents.optimizer['class'])[1:-1]} after {contents.optimizer['step']:,} steps"
        if contents.optimizer
        else "none",
        "extra": extraText(contents.extra),
    }
    saved = decoded(contents.extra)
    if isinstance(saved, dict) and set(saved) == {"trainer"} and isinstance(saved["trainer"], dict):
        del facts["extra"]
        facts |= trainerFacts(saved["trainer"])
    print()
    for line in aligned(list(facts.items())):
        print(printable(line))
    return 0


def isForeign(path: str) -> bool:
    """True if a file does not begin like a checkpoint: then it is another program's file of weights."""
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
        return not head.startswith(TITLE) and readerOf(head, path, file) is not None


def inspectWeights(options: argparse.Namespace) -> None:
    """Print the names, shapes, dtypes and sizes of the arrays in a file of weights."""
    with readWeights(options.file) as weights:
        arrays = [
            {"name": name, "shape": list(t.shape), "dtype": t.dtype, "bytes": t.nbytes} for name, t in weights.items()
        ]
        if options.json:
            printJson({"format": weights.format, "arrays": arrays}, options.out)
            return
        rows = [
            (quote(name)[1:-1], show(t.shape), t.dtype, "" if t.nbytes is None else bytesText(t.nbytes))
            for name, t in weights.items()
        ]
        for line in aligned(rows, right=(3,)) if rows else ():
            print(line)
        print()
        total = sum(t.nbytes or 0 for t in weights.values())
        for line in aligned([("format", weights.format), ("arrays", f"{len(rows)}, {bytesText(total)}")]):
            print(printable(line))


def trainerFacts(saved: dict[str, Any]) -> dict[str, str]:
    """Summarize a saved training: epoch and step, the figures of its last epoch, its callbacks."""
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
        names = [str(row.get("type")) for row in callbacks if isinstance(row, dict)]
        facts["callbacks"] = quote(", ".join(names))[1:-1] or "none"
    return facts


def contentsJson(contents: checkpoint.Contents) -> dict[str, object]:
    """A checkpoint's contents as plain data."""
    arrays = [
        {"name": n, "shape": list(a.shape), "dtype": a.dtype, "bytes": a.nbytes, "crc32": contents.crcs.get(n)}
        for n, a in contents.arrays.items()
    ]
    return {"arrays": arrays, "blueprint": contents.blueprint, "optimizer": contents.optimizer, "extra": contents.extra}


def extraText(saved: object) -> str:
    """Return the value saved as `extra` on one line, shortened if it is long."""
    return cut(outline(decoded(saved)), 100)


def decoded(saved: object) -> Any:
    """Decode the value saved as `extra`, with a text for each array."""
    return decode(saved, lambda value: f"array {value['array']}" if "array" in value else None)


def outline(value: object, depth: int = 2) -> str:
    """Return a value as text, without deeply nested parts."""
    if not isinstance(value, dict):
        return repr(value)
    return f"{{{', '.join(f'{k!r}: {outline(v, depth - 1)}' for k, v in value.items())}}}" if depth else "{...}"
