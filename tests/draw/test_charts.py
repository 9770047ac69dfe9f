"""Charts: their text is exact, their pictures are written where matplotlib is, and say what to install where not."""

import importlib.util
import math

import numpy as np
import pytest

from puregraph import ArgumentError, Confusion, Cosine, DataError, History, Step, WarmUp
from puregraph.draw.charts import CurveChart, MatrixChart, Panel
from puregraph.train import RateCurve

HASPLOT = importlib.util.find_spec("matplotlib") is not None
HISTORY = History(
    {"epoch": i + 1, "step": 10 * i, "loss": 4.0 - i, "val loss": 4.5 - i, "rate": 0.1, "seconds": 1.0}
    for i in range(4)
)


def without(monkeypatch, name="matplotlib"):
    """Let a package seem not to be installed."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda wanted: None if wanted == name else find(wanted))


def test_a_history_has_a_panel_for_each_figure_with_its_validation_and_its_scales():
    text = str(HISTORY.plot())
    assert [panel.title for panel in HISTORY.plot().panels] == ["loss", "rate"]
    assert "loss  * training  o validation" in text
    lines = text.splitlines()
    assert lines[1].startswith(f"{4.5:>11} |o") and lines[12].startswith(f"{1:>11} |") and lines[12].endswith("*")
    assert lines[14].split() == ["1", "epoch", "4"]
    assert max(map(len, lines)) <= 80


def test_a_curve_goes_through_its_points_and_leaves_out_no_column():
    text = str(CurveChart([Panel("line", {"y": ([0, 1], [0.0, 1.0])})])).splitlines()[1:13]
    rows = [line[13:].ljust(60) for line in text]
    assert rows[0][59] == "*" and rows[11][0] == "*"
    assert all(any(row[column] == "*" for row in rows) for column in range(60))


def test_figures_that_are_not_finite_or_missing_are_left_out():
    chart = CurveChart([Panel("a", {"y": ([1, 2, 3, 4], [1.0, math.nan, None, 2.0])})])
    assert [len(points) for points in chart.panels[0].points().values()] == [2]
    with pytest.raises(DataError, match="at least one finite figure"):
        CurveChart([Panel("a", {"y": ([1], [math.inf])})])


def test_one_point_is_a_chart_too():
    assert str(History([{"epoch": 1, "loss": 2.0}]).plot()).count("*") == 1


def test_an_empty_history_has_nothing_to_plot():
    with pytest.raises(DataError, match="no epoch has ended"):
        History().plot()


def test_a_confusion_is_a_table_with_the_names_of_its_classes():
    confusion = Confusion(2)
    confusion.update(np.array([[2.0, 1.0], [0.0, 1.0], [0.0, 1.0]]), np.array([0, 1, 0]))
    assert str(confusion.plot()) == "   0  1\n0  1  1\n1  0  1"
    assert str(confusion.plot(names=["cat", "dog"])) == "     cat  dog\ncat    1    1\ndog    0    1"
    with pytest.raises(ArgumentError, match="names: wanted one for each of 2 classes, got 1"):
        confusion.plot(names=["cat"])


def test_a_schedule_is_plotted_to_its_end_or_over_a_given_length_and_stays_as_it_is():
    cosine = Cosine()
    assert "999" in str(cosine.plot(1000)) and cosine.total is None
    assert str(WarmUp(10, Cosine(90)).plot()).splitlines()[-1].split()[-1] == "99"
    assert str(Step(100).plot(300)).splitlines()[-1].split()[-1] == "299"
    with pytest.raises(ArgumentError, match="Cosine: wanted a total"):
        cosine.plot()


def test_the_rates_that_were_tried_stand_on_a_logarithmic_axis():
    curve = RateCurve(np.array([1e-4, 1e-3, 1e-2]), np.array([2.0, 1.0, 3.0]))
    text = str(curve.plot())
    assert text.splitlines()[-1].split() == ["0.0001", "learning", "rate", "0.01"]
    assert f"{curve.best:.3g}" in text and curve == (curve.rates, curve.costs)


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
@pytest.mark.skipif(not HASPLOT, reason="matplotlib is not installed")
def test_charts_are_written_as_pictures(tmp_path, ending):
    path = tmp_path / f"chart.{ending}"
    HISTORY.plot(path)
    assert path.stat().st_size > 2000
    matrix = MatrixChart(np.eye(3, dtype=int), ["a", "b", "long name"])
    assert matrix.save(path) is matrix


@pytest.mark.skipif(not HASPLOT, reason="matplotlib is not installed")
def test_a_notebook_shows_a_picture_whose_text_is_the_chart():
    html = HISTORY.plot()._repr_html_()
    assert html.startswith('<img alt="') and "data:image/png;base64,iVBOR" in html and "validation" in html


@pytest.mark.skipif(not HASPLOT, reason="matplotlib is not installed")
def test_a_kind_of_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ArgumentError, match=r"chart\.txt: .*not supported"):
        HISTORY.plot(tmp_path / "chart.txt")


def test_without_matplotlib_there_is_text_and_a_file_says_what_to_install(monkeypatch, tmp_path):
    without(monkeypatch)
    shown = HISTORY.plot()._repr_html_()
    assert shown.startswith("<pre") and len(shown.splitlines()) == len(str(HISTORY.plot()).splitlines()) > 10
    with pytest.raises(ArgumentError, match=r"pip install puregraph\[plot\]"):
        HISTORY.plot(tmp_path / "chart.png")
    assert not list(tmp_path.iterdir())
