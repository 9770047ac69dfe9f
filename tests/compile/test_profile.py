"""How long each step of a program takes: every step of the table has a time, and nothing is changed by measuring."""

import re

import numpy as np
import pytest
from natively import needsNative

import puregraph as pg
from puregraph import models
from puregraph.compile.report.steptable import table
from puregraph.core.errors import ArgumentError, PuregraphError
from puregraph.draw.drawing import Drawing

X, Y = np.random.default_rng(0).random((8, 1, 28, 28), np.float32), np.arange(8)


def training(**options):
    """A training step of LeNet, and its optimizer."""
    net, optimizer = models.lenet(), pg.Adam(1e-2, **options)
    return net.compile([X.shape, Y.shape], cost=pg.CrossEntropy(), optimizer=optimizer), optimizer


def rowsOf(text):
    """The first cells of the numbered lines of a table."""
    return [tuple(re.split(r"  +", line.strip())[:2]) for line in text.splitlines() if re.match(r" *\d+  ", line)]


@pytest.mark.parametrize("options", [{}, {"clipNorm": 1.0}], ids=["plain", "clipped"])
def test_every_step_of_the_table_has_a_time(options):
    program, _ = training(**options)
    found = program.profile(X, Y, runs=3)
    calls = [call for call in program.plan.schedule.calls if not call.kind.isView]
    assert len(found.seconds) == len(calls) and min(found.seconds) > 0 and found.whole > 0
    assert [row[0] for row in rowsOf(str(found))] == [row[0] for row in rowsOf(table(program.plan))]
    shares = [float(each) for each in re.findall(r"([\d.]+)%", str(found))]
    assert len(shares) == len(calls) and abs(sum(shares) - 100) < 0.1 * len(calls)
    assert "each step timed alone" in str(found).splitlines()[-1] and "scratch" not in str(found)


def test_measuring_changes_nothing():
    program, optimizer = training()
    twin, _ = training()
    for path, param in program.graph.params.items():
        twin.graph.params[path].data = param.data
    program.run(X, Y)
    twin.run(X, Y)
    program.profile(X, Y, runs=2)
    assert optimizer.step == 1
    np.testing.assert_array_equal(program.run(X, Y)[0], twin.run(X, Y)[0])


@needsNative
def test_a_picture_has_a_bar_for_the_time_of_each_step(tmp_path):
    program, _ = training()
    found = program.profile(X, Y, runs=2)
    drawing = program.draw(tmp_path / "time.svg", heat=found)
    heats = [box.heat for box in drawing.picture.boxes if box.heat is not None]
    assert isinstance(drawing, Drawing) and max(heats) == 1 and len(heats) == len(found.seconds)
    assert all(dict(box.story).get("time") for box in drawing.picture.boxes if box.heat is not None)
    other = models.mlp(4, (3,), 2).compile([(2, 4)], train=False)
    with pytest.raises(ArgumentError, match="profile it again"):
        other.draw(heat=found)
    with pytest.raises(ArgumentError, match="heat=program.profile"):
        program.draw(heat="time")


def test_inputs_that_do_not_fit_are_refused_as_by_a_run():
    program, _ = training()
    with pytest.raises(PuregraphError, match="wanted"):
        program.profile(X[:, :, :20], Y)
    with pytest.raises(ArgumentError, match="runs"):
        program.profile(X, Y, runs=0)


def test_a_program_in_pieces_says_why_there_is_nothing_to_measure():
    program = pg.Sequential(pg.NonZero(), name="found").compile([(2, 3)], train=False)
    with pytest.raises(PuregraphError, match="it runs in pieces"):
        program.profile(np.ones((2, 3), np.float32))
