"""The pages of documentation as programs: what they run, and the output that they show.

    ```python            runs, in one namespace a page; a first line `# model.py` also writes the block to that file
    ```python no-run     is only read
    ```console           lines that begin with `$ puregraph` run; what follows each is its output
    ```text              the next block after one of python: exactly what that printed
    ```text varies       the same in its words, not in its numbers

`python tests/lib/pages.py docs/start.md` runs pages and writes their outputs anew.
"""

import contextlib
import io
import multiprocessing
import os
import re
import shlex
import sys
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from puregraph import cli, useDevice
from puregraph.train import announcing

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"^```(\w+)[ ]?([\w-]*)\n(.*?)^```$", re.S | re.M)


class Block(NamedTuple):
    """A block of a page: its language and tag, its text, and where that stands."""

    language: str
    tag: str
    text: str
    start: int
    end: int


def pages():
    """Every page with something to run."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [page for page in found if re.search(r"^```(python|console)", page.read_text(encoding="utf-8"), re.M)]


def blocks(text):
    """The blocks of a page, in order."""
    return [Block(*match.groups(), match.start(3), match.end(3)) for match in FENCE.finditer(text)]


def outputs(path):
    """Run a page in a process of its own, which takes along what the page registers; see `run`."""
    processes = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, processes, initializer=warnings.simplefilter, initargs=("error",)) as process:
        return process.submit(listed, path).result()


def listed(path):
    """What `run` yields, as a list."""
    return list(run(path))


def run(path):
    """Run a page in a folder of its own: each block that shows an output, with what it should show.

    On the CPU, whose name and numbers the pages show.
    """
    text = path.read_text(encoding="utf-8")
    space, printed = {"__name__": "__main__"}, None
    announcing.SILENT_SECONDS = 600  # a busy machine adds no line
    with working(), useDevice("cpu"):
        for block in blocks(text):
            if block.language == "text" and printed is not None:
                yield block, printed
            printed = None
            if block.language == "console":
                yield block, runConsole(block.text)
            elif block.language == "python" and block.tag != "no-run":
                line = text.count("\n", 0, block.start)
                printed = runPython(block.text, space, path.name, line)


def runPython(text, space, name, line):
    """What a block prints; an error in it names the line of the page."""
    file = re.match(r"# (\w+\.py)\n", text)
    if file:
        Path(file[1]).write_text(text, encoding="utf-8")
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        exec(compile("\n" * line + text, name, "exec"), space)
    return stream.getvalue()


def runConsole(text):
    """The block with the output of each command of puregraph's."""
    lines, isOurs = [], False
    for line in text.splitlines():
        if line.startswith("$ "):
            isOurs = line.startswith("$ puregraph ")
            lines.append(line)
            lines += command(shlex.split(line)[2:]) if isOurs else []
        elif not isOurs:
            lines.append(line)
    return "\n".join(lines) + "\n"


def command(arguments):
    """What a command prints, as lines."""
    stream = io.StringIO()
    path = list(sys.path)
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        try:
            cli.main(arguments)
        except SystemExit:
            pass  # --help ends so
        finally:
            sys.path[:] = path
    return stream.getvalue().splitlines()


@contextlib.contextmanager
def working():
    """A folder of its own to work in."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def shown(text, tag):
    """What is compared: all of it, or the words alone."""
    return (
        re.findall(r"(?!ms\b)[^\W\d]{2,}", text) if tag == "varies" else [line.rstrip() for line in text.splitlines()]
    )


def rewrite(path):
    """Write the outputs of a page anew."""
    found = outputs(path)
    text = path.read_text(encoding="utf-8")
    for block, output in reversed(found):
        text = text[: block.start] + "".join(f"{line.rstrip()}\n" for line in output.splitlines()) + text[block.end :]
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        rewrite(Path(name).resolve())
