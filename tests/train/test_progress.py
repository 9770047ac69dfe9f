"""Progress: what is written where somebody looks, and where nobody does."""

import io
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from processes import environment

from puregraph import SGD, CrossEntropy, Linear
from puregraph.core import initial
from puregraph.core.errors import DataError
from puregraph.train import Accuracy, Bar, Lines, Progress, Trainer
from puregraph.train.callbacks.lines import clock, duration, epochLine, inRows, number, rate, shown, speed
from puregraph.train.callbacks.progress import progressFrom

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def data(count=20):
    x = np.random.default_rng(1).standard_normal((count, 3)).astype(np.float32)
    return x, x.argmax(1)


def train(progress, epochs=2, metrics=True, **options):
    initial.seed(2)
    x, t = data()
    found = [Accuracy()] if metrics else []
    trainer = Trainer(Linear(3, 3), CrossEntropy(), SGD(0.5), 8, found, progress=progress, **options)
    trainer.train(x, t, epochs=epochs, validation=(x, t))
    return trainer


def barTo(width):
    """A bar on a terminal of this width that is really a text."""
    from rich.console import Console
    from rich.live import Live

    bar = Bar()
    bar.console = Console(
        file=io.StringIO(), force_terminal=True, width=width, color_system="truecolor", highlight=False
    )
    bar.live = Live(console=bar.console, auto_refresh=False, transient=True)
    return bar


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.08123, "0.0812"),
        (1, "1"),
        (12.345, "12.35"),
        (123456.0, "1.235e+05"),
        (0.00001234, "1.234e-05"),
        (0.0, "0.0000"),
        (-0.5, "-0.5000"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
    ],
)
def test_numbers_are_short(value, text):
    assert number(value) == text


def test_a_line_that_a_terminal_cannot_hold_becomes_rows_with_the_validation_on_its_own(capsys, monkeypatch):
    row = {"epoch": 2, "loss": 0.5, **{f"figure {i}": 0.25 for i in range(6)}}
    row = {**row, **{f"val {name}": value for name, value in row.items() if name != "epoch"}, "rate": 0.1, "seconds": 2}
    pairs = epochLine(row, 12)
    assert inRows(pairs, 400) == [pairs]
    for width in (60, 80, 120):
        rows = inRows(pairs, width)
        assert [pair for row in rows for pair in row] == pairs
        lengths = [len("  ".join(map(shown, row))) + (len("epoch  2/12  ") if i else 0) for i, row in enumerate(rows)]
        assert max(lengths) <= width
        assert ("val loss", "0.5000") in [row[0] for row in rows]
    monkeypatch.setattr(Lines, "width", lambda self: 200)
    train("lines", epochs=1)
    monkeypatch.setattr(Lines, "width", lambda self: 30)
    train("lines", epochs=1)
    whole, *rows = capsys.readouterr().out.splitlines()
    assert len(whole) > 60 and len(rows) > 2 and all(row.startswith(" " * 11) for row in rows[1:])


def test_times_rates_and_speeds_are_short():
    assert [duration(s) for s in (0.0004, 0.04, 2.1, 59.97, 125, 3599.9, 3725)] == [
        "0.4 ms",
        "40 ms",
        "2.1 s",
        "1 min 00 s",
        "2 min 05 s",
        "1 h 00 min",
        "1 h 02 min",
    ]
    assert [clock(s) for s in (0, 42, 725, 3753)] == ["0:00", "0:42", "12:05", "1:02:33"]
    assert [speed(s) for s in (840, 12400, 3.2e6)] == ["840/s", "12.4k/s", "3.2M/s"]
    assert [rate(r) for r in (0.001, 0.00097553, 2.4471e-05, 1)] == ["0.001", "0.000976", "2.45e-05", "1"]


def test_the_line_of_an_epoch():
    row = {"epoch": 3, "step": 60, "loss": 0.0812, "accuracy": 0.9741, "val loss": 0.0921, "rate": 0.001}
    line = "  ".join(" ".join(pair).strip() for pair in epochLine({**row, "seconds": 2.1}, 10))
    assert line == "epoch  3/10  loss 0.0812  accuracy 0.9741  val loss 0.0921  rate 0.001  2.1 s"


def test_lines_where_nobody_looks(capsys):
    trainer = train("auto")
    assert isinstance(trainer.progress, Lines)
    figure = r"\d+\.\d{4}"
    pattern = rf"epoch \d/2  loss {figure}  accuracy {figure}  val loss {figure}  val accuracy {figure}  rate 0.5  \d+(\.\d)? m?s"
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and all(re.fullmatch(pattern, line) for line in lines)


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), BrokenPipeError(), ValueError("closed")])
def test_a_line_that_cannot_be_written_does_not_end_the_training(monkeypatch, fault):
    class Full(io.StringIO):
        def write(self, text):
            raise fault

    monkeypatch.setattr(sys, "stdout", Full())
    assert len(train("lines").history) == 2


def test_none_is_silent(capsys):
    for progress in ("none", None, False):
        assert type(train(progress).progress) is Progress
    assert capsys.readouterr().out == ""


def test_another_progress_is_refused():
    with pytest.raises(DataError, match='progress: wanted "auto", "bar", "lines" or "none", got \'loud\''):
        progressFrom("loud")


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_the_bar_fits_its_terminal(width):
    bar = barTo(width)
    train(bar, epochs=3)
    output = bar.console.file.getvalue()
    lines = [ESCAPES.sub("", line) for part in output.split("\n") for line in part.split("\r")]
    live = [line for line in lines if "━" in line]
    assert live and all(len(line.rstrip()) <= width - 3 for line in live)
    assert all(len(line) <= width for line in lines)
    assert re.search(r"epoch 1/3 .* 0/3", live[0]) and any(re.search(r"epoch 3/3 .* 3/3", line) for line in live)
    done = [line for line in lines if re.match(r"epoch \d/3  loss", line)]
    assert [line[6] for line in done] == ["1", "2", "3"]
    assert " ".join(output.split()).count("val accuracy") == 3


@pytest.mark.parametrize(("width", "wanted"), [(24, r"1/3 +━* +0/3"), (8, "1/3")])
def test_a_narrow_terminal_gets_a_short_line(width, wanted):
    bar = barTo(width)
    train(bar, metrics=False, epochs=3)
    text = ESCAPES.sub("", bar.console.file.getvalue())
    lines = [line.strip() for part in text.split("\n") for line in part.split("\r")]
    assert any(re.fullmatch(wanted, line) for line in lines) and "…" not in text
    assert not any(line.startswith("epoch") and "━" in line for line in lines)


def test_the_bar_goes_even_if_training_fails():
    bar = barTo(80)
    with pytest.raises(ZeroDivisionError):
        train(bar, callbacks=[lambda trainer: 1 / 0])
    assert not bar.live.is_started
    assert "\x1b[?25h" in bar.console.file.getvalue()  # the cursor is shown again


def test_the_bar_works_without_a_known_end():
    bar = barTo(100)
    x, t = data()
    trainer = Trainer(Linear(3, 3), CrossEntropy(), SGD(0.5), progress=bar)
    trainer.train(lambda: iter([(x, t)] * 3), epochs=2)
    assert trainer.step == 6 and "epoch 2/2" in ESCAPES.sub("", bar.console.file.getvalue())


def test_a_bar_is_shown_in_a_real_terminal():
    pty = pytest.importorskip("pty")
    code = "from test_progress import train; print(type(train('auto').progress).__name__)"
    ours, theirs = pty.openpty()
    variables = environment(TERM="xterm", PUREGRAPH_DEVICE="cpu")
    with subprocess.Popen([sys.executable, "-c", code], stdout=theirs, stdin=theirs, env=variables) as process:
        os.close(theirs)
        output = b""
        try:
            while piece := os.read(ours, 4096):
                output += piece
        except OSError:  # how Linux says that the other end is closed
            pass
        assert process.wait(60) == 0
    os.close(ours)
    text = ESCAPES.sub("", output.decode())
    assert "Bar" in text and "epoch 2/2" in text and "\x1b[" in output.decode()


def test_training_without_a_terminal_imports_no_rich():
    code = "import sys; from test_progress import train; train('auto'); print('rich' in sys.modules)"
    variables = environment(PUREGRAPH_DEVICE="cpu")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=variables)
    assert done.stdout.splitlines()[-1] == "False", done.stderr
