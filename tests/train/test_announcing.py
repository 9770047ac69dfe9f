"""What a trainer says while a step is being compiled, and where there is no native code."""

import re
import time

import numpy as np
import pytest

from puregraph import SGD, CrossEntropy, Linear, Trainer
from puregraph.compile import Program
from puregraph.ops.native.llvm import jit
from puregraph.train import announcing
from puregraph.train.callbacks.progress import Bar, Lines, NotebookLine

X = np.random.default_rng(1).standard_normal((20, 3)).astype(np.float32)


class Watched(Lines):
    """Lines that somebody looks at."""

    notice = Lines.say


def said(capsys, **options):
    """What training one epoch with two sizes of batches prints, line by line."""
    Trainer(Linear(3, 3, name="fc"), CrossEntropy(), SGD(0.5), 8, **options).train(X, X.argmax(1))
    return capsys.readouterr().out.splitlines()


def slow(monkeypatch, seconds):
    """Let every program take this much longer to compile."""
    build = Program.build
    monkeypatch.setattr(Program, "build", lambda *given: (time.sleep(seconds), build(*given)))


@pytest.fixture(autouse=True)
def anew(monkeypatch):
    monkeypatch.setattr(announcing.NATIVE, "isSaid", False)


def test_compiling_for_long_is_said_with_what_is_compiled_and_for_which_shape(capsys, monkeypatch):
    monkeypatch.setattr(announcing, "SILENT_SECONDS", 0.05)
    slow(monkeypatch, 0.2)
    found = [line for line in said(capsys, progress=Watched()) if line.startswith("compiling")]
    assert found[0] == "compiling a training step of Sequential, 1 node, for data (8, 3) ..."
    assert found[1].endswith("for data (4, 3) ...") and len(found) == 2


def test_compiling_that_takes_no_second_is_not_said(capsys, monkeypatch):
    monkeypatch.setattr(announcing, "SILENT_SECONDS", 30)
    assert not [line for line in said(capsys, progress=Watched()) if "compiling" in line]


def test_what_goes_to_a_file_does_not_depend_on_how_long_compiling_takes(capsys, monkeypatch):
    monkeypatch.setattr(announcing, "SILENT_SECONDS", 0.01)
    slow(monkeypatch, 0.05)
    assert said(capsys, progress="none") == []
    (line,) = said(capsys, progress="lines")
    assert line.startswith("epoch 1/1")


@pytest.mark.parametrize("kind", [Bar, NotebookLine])
def test_in_a_terminal_and_a_notebook_a_notice_is_a_line(kind, monkeypatch):
    found = []
    monkeypatch.setattr(kind, "say", lambda progress, text: found.append(text))
    kind().notice("compiling")
    assert found == ["compiling"]


def test_the_line_does_not_come_after_compiling_has_failed(capsys, monkeypatch):
    monkeypatch.setattr(announcing, "SILENT_SECONDS", 0.05)
    with pytest.raises(KeyError), announcing.Announcement(print, "compiling"):
        raise KeyError
    time.sleep(0.1)
    assert capsys.readouterr().out == ""


def test_a_line_that_is_being_said_is_finished_before_what_comes_behind_it(monkeypatch):
    monkeypatch.setattr(announcing, "SILENT_SECONDS", 0.01)
    order = []
    with announcing.Announcement(lambda text: (time.sleep(0.1), order.append(text)), "compiling"):
        time.sleep(0.05)
    order.append("next")
    assert order == ["compiling", "next"]


def test_without_native_code_one_line_says_how_much_slower_it_is_and_what_to_install(capsys, monkeypatch):
    monkeypatch.setattr(jit, "missing", lambda: "native kernels need llvmlite (none): pip install puregraph[fast]")
    first, second = said(capsys, progress="lines"), said(capsys, progress="lines")
    assert re.fullmatch(r"no native code: .*need llvmlite.*pip install puregraph\[fast\].* times .*", first[0])
    assert not [line for line in second if "native" in line]


def test_who_has_switched_native_code_off_is_not_told_of_it(capsys, monkeypatch):
    monkeypatch.setenv("PUREGRAPH_NATIVE", "off")
    monkeypatch.setattr(jit, "missing", lambda: "native kernels are switched off by PUREGRAPH_NATIVE")
    assert not [line for line in said(capsys, progress="lines") if "native" in line]
