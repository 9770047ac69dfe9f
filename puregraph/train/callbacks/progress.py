"""Progress: a live bar in a terminal, a live line in a notebook, and one line per epoch everywhere."""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from puregraph.core.errors import DataError
from puregraph.train.callbacks.callback import Callback
from puregraph.train.callbacks.lines import clock, epochLine, figures, inRows, rate, shown, speed

if TYPE_CHECKING:
    from puregraph.train.trainer import Trainer

REFRESH = 0.1  # seconds between two updates of the bar
MAX_BAR_COLUMNS, MIN_BAR_COLUMNS = 30, 8  # most and fewest columns of the bar
ECHO = 3  # columns left free for the ^C that a terminal echoes


class Progress(Callback):
    """The base class, which shows nothing."""

    order = 1
    isShown = False

    def say(self, text: str) -> None:
        """Print a line."""

    def notice(self, text: str) -> None:
        """Print a line about a wait, in a terminal only, so that log files do not depend on speed."""


class Lines(Progress):
    """A line per epoch: `epoch 3/10   loss 0.0812  accuracy 0.9741  rate 0.001  2.1 s`"""

    isShown = True

    def say(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a full disk or a closed pipe must not end the training
            print(text, flush=True)

    def onEpochEnd(self, trainer: Trainer) -> None:
        pairs = epochLine(trainer.history[-1], trainer.until)
        rows = inRows(pairs, self.width())
        indent = " " * (len(shown(pairs[0])) + 2)
        self.say(f"\n{indent}".join("  ".join(map(shown, row)) for row in rows))

    def width(self) -> int:
        """Return the columns of a line: the terminal's width; unlimited in a file, so that lines can be searched."""
        return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else sys.maxsize


class Bar(Progress):
    """A live line with bar, figures, speed and remaining time; the lines of finished epochs stay above it."""

    isShown = True

    def __init__(self) -> None:
        from rich.console import Console  # imported only if it is shown
        from rich.live import Live

        self.console = Console(highlight=False)
        self.live = Live(console=self.console, auto_refresh=False, transient=True)
        self.shown = self.begun = 0.0

    def __reduce__(self) -> tuple:
        return type(self), ()  # the copy opens its own terminal

    def say(self, text: str) -> None:
        self.console.print(text, markup=False)

    def notice(self, text: str) -> None:
        self.say(text)

    def onTrainBegin(self, trainer: Trainer) -> None:
        self.begun, self.first = time.perf_counter(), doneOf(trainer)
        self.live.start()

    def onEpochBegin(self, trainer: Trainer) -> None:
        self.show(trainer)

    def onBatchEnd(self, trainer: Trainer) -> None:
        if time.perf_counter() - self.shown >= REFRESH or trainer.position == trainer.count:
            self.show(trainer)

    def onEpochEnd(self, trainer: Trainer) -> None:
        from rich.text import Text

        pairs = epochLine(trainer.history[-1], trainer.until)
        for i, row in enumerate(inRows(pairs, self.console.width)):
            text = Text(" " * (len(shown(pairs[0])) + 2) if i else "")
            for j, (name, value) in enumerate(row):
                text.append("  " if j else "").append(f"{name} " if name else "", "dim").append(value, styleOf(name))
            self.console.print(text)
        self.show(trainer)

    def onTrainEnd(self, trainer: Trainer) -> None:
        self.live.stop()

    def show(self, trainer: Trainer) -> None:
        """Draw the live line; figures that do not fit into the terminal are left out, the least important first."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        self.shown = time.perf_counter()
        if trainer.epoch >= trainer.until:
            return
        count, width = trainer.count, self.console.width - ECHO
        head = f"epoch {trainer.epoch + 1:{len(str(trainer.until))}}/{trainer.until}"
        tail = [f"{trainer.position}/{count}" if count else f"{trainer.position}", *self.tail(trainer)]
        while len(tail) > 1 and roomFor(head, tail, width) < MIN_BAR_COLUMNS:
            tail.pop()
        if roomFor(head, tail, width) < MIN_BAR_COLUMNS:
            head = f"{trainer.epoch + 1}/{trainer.until}"
        room = roomFor(head, tail, width)
        bar = ProgressBar(count or 100, trainer.position, min(MAX_BAR_COLUMNS, room), pulse=not count)
        parts: list[Any] = (
            [bar, *(Text(t, "cyan" if i else "") for i, t in enumerate(tail))] if room >= MIN_BAR_COLUMNS else []
        )
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_row(Text(head, "bold"), *parts)
        self.live.update(grid, refresh=True)

    def tail(self, trainer: Trainer) -> list[str]:
        """Return the texts after the bar, the most important first."""
        passed = time.perf_counter() - self.begun
        done = doneOf(trainer) - self.first
        left = []
        if trainer.count and done > 0:
            wanted = (trainer.until - trainer.epoch) * trainer.count - trainer.position
            left = [f"{clock(passed * wanted / done)} left"]
        shown = f"rate {rate(trainer.rate)}"
        if not trainer.position:
            return [*left, shown]
        if not trainer.meters.weight:  # no results from the GPU yet
            return [*left, speed(trainer.speed()), shown]
        loss, *others = [f"{name} {value}" for name, value in figures(trainer.figures())]
        return [loss, *left, *others, speed(trainer.speed()), shown]


class NotebookLine(Lines, Bar):
    """A live line in a notebook, above the lines of finished epochs; it is empty when the run ends."""

    def __init__(self) -> None:
        self.shown = self.begun = 0.0

    def onTrainBegin(self, trainer: Trainer) -> None:
        from IPython.display import display  # installed, because its kernel is running

        self.begun, self.first = time.perf_counter(), doneOf(trainer)
        self.handle = display({"text/html": ""}, raw=True, display_id=True)

    def onTrainEnd(self, trainer: Trainer) -> None:
        self.handle.update({"text/html": ""}, raw=True)

    def show(self, trainer: Trainer) -> None:
        self.shown = time.perf_counter()
        if trainer.epoch < trainer.until:
            position = f"{trainer.position}/{trainer.count or '?'}"
            words = [f"epoch {trainer.epoch + 1}/{trainer.until}", position, *self.tail(trainer)]
            self.handle.update({"text/plain": "  ".join(words)}, raw=True)


def isNotebook() -> bool:
    """True inside a kernel of IPython, which can display objects."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def roomFor(head: str, tail: list[str], width: int) -> int:
    """Return the columns left for the bar."""
    return width - len(head) - sum(len(text) + 2 for text in tail) - 2


def doneOf(trainer: Trainer) -> int:
    """Return the number of finished steps."""
    return trainer.epoch * (trainer.count or 0) + trainer.position


def styleOf(name: str) -> str:
    """Return the style of a figure in the line of an epoch."""
    return {"epoch": "bold", "rate": "dim", "": "dim"}.get(name, "cyan" if name.startswith("val ") else "")


KINDS = {"bar": Bar, "lines": Lines, "none": Progress}  # only "auto" chooses a NotebookLine


def progressFrom(value: object) -> Progress:
    """Return a Progress by name: "bar", "lines", "none", or "auto": a bar in a terminal that supports it, a live line
    in a notebook, otherwise lines.

    Raises    DataError for another name
    """
    if isinstance(value, Progress):
        return value
    if isinstance(value, str) and value == "auto":
        if isNotebook():
            return NotebookLine()
        isTerminal = sys.stdout is not None and sys.stdout.isatty()
        return Bar() if isTerminal and os.environ.get("TERM", "dumb") not in ("dumb", "unknown") else Lines()
    name = "none" if value is None or value is False else value
    if not isinstance(name, str) or name not in KINDS:
        raise DataError(f'progress: wanted "auto", "bar", "lines" or "none", got {value!r}')
    return KINDS[name]()
