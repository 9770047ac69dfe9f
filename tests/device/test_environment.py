"""The variables PUREGRAPH_...: what they may say, and that a wrong one is refused by its name."""

import os
import subprocess
import sys

import pytest

from puregraph.core.base import environment
from puregraph.core.base.environment import PREFIX, VARIABLES, variable
from puregraph.core.errors import PuregraphError
from puregraph.ops.native.threads import numthreads


@pytest.fixture(autouse=True)
def anew(monkeypatch):
    monkeypatch.setattr(environment, "LOOKED", [])


@pytest.mark.parametrize("text", ["abc", "0", "-1", "513", "1000", "1.5", "2 3", "٣"])
def test_a_number_of_threads_that_cannot_be_is_refused_by_name(monkeypatch, text):
    monkeypatch.setenv("PUREGRAPH_THREADS", text)
    monkeypatch.setattr(numthreads, "WANTED", [])
    with pytest.raises(PuregraphError, match=f"PUREGRAPH_THREADS: wanted a whole number from 1 to 512, got '{text}'"):
        numthreads.threads()


@pytest.mark.parametrize(("text", "found"), [("1", 1), (" 7 ", 7), ("512", 512), ("", None), ("  ", None)])
def test_a_number_of_threads(monkeypatch, text, found):
    monkeypatch.setenv("PUREGRAPH_THREADS", text)
    assert variable("THREADS") == found


@pytest.mark.parametrize("name", ["NATIVE", "CUDNN", "TUNE"])
def test_a_switch_is_on_or_off_and_nothing_else(monkeypatch, name):
    for text, found in (("1", True), ("On", True), ("yes", True), ("0", False), ("OFF", False), ("no", False)):
        monkeypatch.setenv(PREFIX + name, text)
        assert variable(name) is found
    monkeypatch.setenv(PREFIX + name, "maybe")
    with pytest.raises(PuregraphError, match=f"{PREFIX}{name}: wanted 1 or 0, on or off, yes or no, got 'maybe'"):
        variable(name)


def test_a_misspelt_variable_is_refused_by_name(monkeypatch):
    monkeypatch.setenv("PUREGRAPH_THREAD", "2")
    with pytest.raises(
        PuregraphError, match="PUREGRAPH_THREAD: there is no such variable; did you mean PUREGRAPH_THREADS"
    ):
        variable("NATIVE")


def test_a_misspelt_variable_is_refused_when_the_package_is_imported():
    given = {"PUREGRAPH_DEVCE": "cpu", "PUREGRAPH_JOB": "17"}
    done = subprocess.run(
        [sys.executable, "-c", "import puregraph"], env=os.environ | given, capture_output=True, text=True
    )
    assert (
        done.returncode == 1
        and "PUREGRAPH_DEVCE: there is no such variable; did you mean PUREGRAPH_DEVICE?" in done.stderr
    )


def test_a_variable_of_somebody_elses_is_left_alone(monkeypatch):
    monkeypatch.setenv("PUREGRAPH_JOB", "17")
    assert variable("NATIVE", "default") == "default" and "JOB" not in VARIABLES
