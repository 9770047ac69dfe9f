"""Plots: the charts of objects with a method `plot`, of images, and of the parameters of a network."""

from __future__ import annotations

import copy
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeVar

from puregraph.core.arguments import Count, FilePath, ModuleLike, Text, choice, takes
from puregraph.core.errors import DataError
from puregraph.draw.charts.chart import Chart
from puregraph.draw.charts.curvechart import CurveChart, Panel
from puregraph.draw.charts.histogramchart import HistogramChart
from puregraph.draw.charts.imagechart import ImageChart
from puregraph.draw.charts.matrixchart import MatrixChart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.core.protocols import AnyArray, StrPath
    from puregraph.graph.graph import Graph
    from puregraph.train.history import History
    from puregraph.train.metrics.confusion import Confusion
    from puregraph.train.ratefinder import RateCurve

C = TypeVar("C", bound=Chart)
APART = ("epoch", "step", "seconds")  # figures of a history that are not curves
POINTS = 400  # points of the curve of a schedule


@takes(path=FilePath | None)
def plotHistory(history: History, path: StrPath | None = None) -> Chart:
    """Plot the curves of a history over its epochs: each figure with its validation figure, the learning rate last.

        print(history.plot())           # text, in a terminal
        history.plot("curves.png")      # a picture

    In a notebook the chart is a picture. With a `path` it is also written to that file, in the format of its ending.

    Raises    DataError for a history without epochs, or the name of a figure in place of a file; ArgumentError for a
              file if matplotlib is not installed
    """
    if not history:
        raise DataError("History: nothing to plot, no epoch has ended")
    names = [name for name in history.names() if name not in APART]
    if path in names:
        raise DataError(f"plot: wanted a file, got {path!r}: plot() shows every figure, history[{path!r}] is this one")
    names.sort(key=lambda name: name == "rate")
    epochs = history.column("epoch")
    bases = dict.fromkeys(name.removeprefix("val ") for name in names)
    panels = [
        Panel(
            base,
            {
                "training" if name == base else "validation": (epochs, history.column(name))
                for name in (base, f"val {base}")
                if name in names
            },
            "epoch",
        )
        for base in bases
    ]
    return saved(CurveChart(panels), path)


@takes(path=FilePath | None, over=choice("actual", "predicted", "all") | None)
def plotConfusion(
    confusion: Confusion, path: StrPath | None = None, names: Sequence[str] | None = None, over: str | None = None
) -> Chart:
    """Plot the matrix of a Confusion: a row for each actual class, a column for each predicted one, shaded by fraction.

    `names` are the names of the classes, by default those of the Confusion, or else their numbers. `path` is a file for
    the picture. `over` has fractions of each "actual" or "predicted" class, or of "all", in place of counts.

    Raises    ArgumentError for another number of names, or for a file if matplotlib is not installed
    """
    matrix = confusion.value() if over is None else confusion.normalised(over)
    return saved(MatrixChart(matrix, confusion.names if names is None else names), path)


@takes(total=Count | None, path=FilePath | None)
def plotSchedule(schedule: Any, total: int | None = None, path: StrPath | None = None) -> Chart:
    """Plot the factor of a schedule over `total` updates, or until its end; `path` is a file for the picture.

    Raises    ArgumentError for a schedule without a length, or for a file if matplotlib is not installed
    """
    schedule = copy.copy(schedule)
    if total is not None:
        schedule.fit(total)
    count = total or schedule.end or 1000
    steps = sorted({count * k // POINTS for k in range(POINTS)} | {count - 1})
    factors = [schedule(step) for step in steps]
    return saved(CurveChart([Panel(repr(schedule), {"factor": (steps, factors)}, "update")]), path)


@takes(path=FilePath | None)
def plotRates(curve: RateCurve, path: StrPath | None = None) -> Chart:
    """Plot the smoothed cost over the learning rate, on a logarithmic axis; `path` is a file for the picture.

    Raises    ArgumentError for a file if matplotlib is not installed
    """
    title = f"cost, falling fastest at {curve.best:.3g}"
    points = curve.rates.tolist(), curve.costs.tolist()
    return saved(CurveChart([Panel(title, {"cost": points}, "learning rate", isLog=True)]), path)


@takes(columns=Count | None, path=FilePath | None)
def plotImages(
    images: AnyArray,
    titles: Sequence[str] | None = None,
    columns: int | None = None,
    span: Any = None,
    path: StrPath | None = None,
) -> ImageChart:
    """Plot images in a grid: as a picture in a notebook or a file, as characters in a terminal.

        plotImages(decoder(noise), path="samples.png")

    `titles`   a text or a number above each image, such as its class
    `columns`  images in a row; by default as many as there are rows
    `span`     the values of black and white; by default (0, 255) for uint8, otherwise (0, 1)
    `path`     a file for the picture, in the format of its ending

    Shapes    images (n, h, w), (n, 1, h, w) or (n, 3, h, w)
    Raises    DataError for arrays of other shapes or values that are not finite; ArgumentError for another number of
              titles, an empty span, or a file if matplotlib is not installed
    """
    return saved(ImageChart(images, titles, columns, span), path)


@takes(net=ModuleLike, pattern=Text, path=FilePath | None)
def plotParams(net: Graph, pattern: str = "*", path: StrPath | None = None) -> HistogramChart:
    """Plot histograms of the parameters of a network, and of their gradients if there are any.

        print(plotParams(net))                        # a line for each, in a terminal
        plotParams(net, "encoder.*", "encoder.png")   # those whose path matches a pattern, in a file

    Raises    DataError if no parameter matches; ArgumentError for a file if matplotlib is not installed
    """
    arrays = {}
    for name, param in net.params.items():
        if fnmatchcase(name, pattern):
            arrays[name] = param.data
            if param.grad is not None:
                arrays[f"{name}.grad"] = param.grad
    if not arrays:
        some = ", ".join(list(net.params)[:5]) or "none"
        raise DataError(f"plotParams: wanted parameters that fit {pattern!r}, the network has {some}")
    return saved(HistogramChart(arrays), path)


def saved(chart: C, path: StrPath | None) -> C:
    """The chart, saved if there is a path."""
    return chart if path is None else chart.save(path)
