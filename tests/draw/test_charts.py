"""Charts: their text is exact, their pictures are written where matplotlib is, and say what to install where not."""

import importlib.util
import math

import numpy as np
import pytest

from puregraph import (
    MSE,
    ArgumentError,
    Confusion,
    Cosine,
    DataError,
    History,
    Linear,
    Relu,
    Sequential,
    Step,
    WarmUp,
    plotImages,
    plotParams,
)
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


def test_a_figure_that_stays_the_same_is_one_line_with_one_label():
    lines = str(HISTORY.plot()).splitlines()[17:]
    assert [line.split("|") for line in lines if "*" in line] == [[f"{0.1:>11} ", "*" * 60]]
    assert [line[:11].strip() for line in lines[:12]] == [*[""] * 6, "0.1", *[""] * 5]


def test_a_scale_has_as_many_digits_as_tell_its_ends_apart():
    text = str(CurveChart([Panel("a", {"y": ([0, 1], [1.23451, 1.23452])})]))
    assert [line[:11].strip() for line in text.splitlines()[1:13] if line[:11].strip()] == [
        "1.23452",
        "1.234515",
        "1.23451",
    ]


def test_the_name_of_a_figure_is_no_file_nor_is_one_without_an_ending():
    with pytest.raises(DataError, match=r"plot\(\) shows every figure, history\['loss'\] is this one"):
        HISTORY.plot("loss")
    with pytest.raises(ArgumentError, match="curves: wanted a file whose ending says its kind, such as curves.png"):
        HISTORY.plot("curves")


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
    rows = [line.split() for line in str(confusion.plot()).splitlines()]
    assert rows == [["actual", "/", "predicted", "0", "1"], ["0", "1", "1"], ["1", "0", "1"]]
    assert str(confusion.plot(names=["cat", "dog"])).splitlines()[1:] == [
        f"{'cat':>18}    1    1",
        f"{'dog':>18}    0    1",
    ]
    with pytest.raises(ArgumentError, match="names: wanted one for each of 2 classes, got 1"):
        confusion.plot(names=["cat"])


def test_a_confusion_as_fractions_says_which_axis_is_actual_and_which_predicted():
    confusion = Confusion(2)
    confusion.update(np.array([[2.0, 1.0], [0.0, 1.0], [0.0, 1.0]]), np.array([0, 1, 0]), np.array([1.0, 2.0, 3.0]))
    chart = confusion.plot(over="actual")
    assert [line.split() for line in str(chart).splitlines()][1:] == [["0", "0.25", "0.75"], ["1", "0", "1"]]
    assert [line.split() for line in str(confusion.plot()).splitlines()][1:] == [["0", "1", "3"], ["1", "0", "2"]]
    with pytest.raises(ArgumentError, match="over as one of 'actual', 'predicted', 'all'"):
        confusion.plot(over="rows")
    figure = pytest.importorskip("matplotlib.figure").Figure()
    chart.drawOn(figure)
    axes = figure.axes[0]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("actual", "predicted")
    assert [text.get_text() for text in axes.texts] == ["0.25", "0.75", "1"]


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
def test_epochs_have_whole_numbers_on_their_axis():
    from matplotlib.figure import Figure

    figure = Figure()
    History({"epoch": i, "loss": 1.0 / i} for i in (1, 2, 3)).plot().drawOn(figure)
    assert all(tick == round(tick) for tick in figure.axes[0].get_xticks())


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


# Images -------------------------------------------------------------------------------------------------------


def test_images_in_characters_stand_in_rows_with_their_titles():
    images = np.zeros((3, 2, 2))
    images[0, 0], images[1, :, 1], images[2] = 1, 0.5, 2
    lines = str(plotImages(images, titles=["top", "right", 7], columns=2)).splitlines()
    assert lines == ["top   righ", "@@@@    ==", "        ==", "", "7", "@@@@", "@@@@"]


def test_shapes_of_images_and_spans_of_their_values_are_taken(rng):
    gray = rng.random((5, 4, 6))
    assert str(plotImages(gray)) == str(plotImages(gray[:, None])) == str(plotImages(np.stack([gray] * 3, axis=1)))
    assert str(plotImages(gray * 2 - 1, span=(-1, 1))) == str(plotImages(gray))
    whole = (gray * 255).round().astype(np.uint8)
    assert str(plotImages(whole)) == str(plotImages(whole / 255))
    assert max(map(len, str(plotImages(rng.random((40, 28, 28)), columns=13)).splitlines())) <= 80


def test_what_is_no_image_is_refused():
    with pytest.raises(DataError, match=r"images: wanted numbers \(n, h, w\), .* got \(2, 4, 3, 3\)"):
        plotImages(np.zeros((2, 4, 3, 3)))
    with pytest.raises(DataError, match="others in image 1"):
        plotImages(np.array([[[0.0]], [[math.nan]]]))
    with pytest.raises(ArgumentError, match=r"one for each of 2 images, got shape \(1,\)"):
        plotImages(np.zeros((2, 3, 3)), titles=["a"])
    with pytest.raises(ArgumentError, match="the smaller first"):
        plotImages(np.zeros((2, 3, 3)), span=(1, 0))
    with pytest.raises(ArgumentError, match="columns"):
        plotImages(np.zeros((2, 3, 3)), columns=0)


@pytest.mark.skipif(not HASPLOT, reason="matplotlib is not installed")
def test_each_image_is_a_panel_of_the_picture_with_its_own_pixels(rng, tmp_path):
    images = rng.random((5, 3, 4, 6))
    figure = plotImages(images, titles=range(5), columns=3, path=tmp_path / "grid.png").figure()
    shown = [axes for axes in figure.axes if axes.images]
    assert len(figure.axes) == 6 and [axes.get_title() for axes in shown] == list("01234")
    for axes, image in zip(shown, images, strict=True):
        np.testing.assert_allclose(np.asarray(axes.images[0].get_array()), image.transpose(1, 2, 0))
    assert (tmp_path / "grid.png").stat().st_size > 1000


# Histograms ---------------------------------------------------------------------------------------------------


def test_parameters_have_a_line_each_and_their_gradients_after_a_pass(rng):
    net = Sequential(Linear(3, 4, name="fc"), Relu(), Linear(4, 2, name="out"))
    assert [row.split()[0] for row in str(plotParams(net)).splitlines()[1:]] == ["fc.W", "fc.b", "out.W", "out.b"]
    cost = MSE()
    cost(net.trainMode()(rng.standard_normal((5, 3)).astype("f4")), np.zeros((5, 2), "f4"))
    cost.backward()
    net.backward(cost.grad[0])
    chart = plotParams(net, "out.*")
    assert list(chart.arrays) == ["out.W", "out.W.grad", "out.b", "out.b.grad"]
    np.testing.assert_array_equal(chart.arrays["out.W.grad"], net.params["out.W"].grad.ravel())
    row = str(chart).splitlines()[2].split()
    assert [float(x) for x in row[1:5]] == [
        float(f"{f(net['out'].W.grad):.3g}") for f in (np.mean, np.std, np.min, np.max)
    ]
    with pytest.raises(DataError, match=r"fit 'in\.\*', the network has fc\.W"):
        plotParams(net, "in.*")


def test_a_histogram_counts_what_is_there_and_says_what_is_not_finite():
    net = Linear(1, 4, name="fc")
    net.W.data[:] = [[0, 0, 1, math.nan]]
    row = str(plotParams(net, "W")).splitlines()[1]
    assert row.endswith("█              ▄  (1 not finite)") and "0.333" in row
    net.W.data[:] = math.inf
    assert str(plotParams(net, "W")).splitlines()[1].split(None, 1)[1].strip() == "(4 not finite)"


@pytest.mark.skipif(not HASPLOT, reason="matplotlib is not installed")
def test_each_parameter_is_a_panel_whose_bars_count_its_elements():
    figure = plotParams(Sequential(Linear(3, 4, name="fc"), Linear(4, 2, name="out", useBias=False))).figure()
    titles = {axes.get_title(loc="left"): sum(bar.get_height() for bar in axes.patches) for axes in figure.axes}
    assert titles == {"fc.W": 12, "fc.b": 4, "out.W": 8, "": 0}
