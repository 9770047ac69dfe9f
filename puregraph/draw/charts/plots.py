"""Plots: the charts of what has a method `plot`."""

from __future__ import annotations

import copy
from typing import Any

from puregraph.draw.charts.chart import Chart
from puregraph.draw.charts.curvechart import CurveChart, Panel
from puregraph.draw.charts.matrixchart import MatrixChart
from puregraph.errors import DataError

APART = ("epoch", "step", "seconds")  # figures of a history that are no curves
POINTS = 400  # of a schedule


def plotHistory(history: Any, path: Any = None) -> Chart:
    """The curves of a history over its epochs: each figure with that of the validation, the learning rate last.

        print(history.plot())           # text, in a terminal
        history.plot("curves.png")      # a picture

    In a notebook the chart is a picture. `path`: write it to that file too, of the kind that its ending says.

    Raises    DataError for a history without a row; ArgumentError for a file, where matplotlib is not installed
    """
    if not history:
        raise DataError("History: nothing to plot, no epoch has ended")
    names = [name for name in history.names() if name not in APART]
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


def plotConfusion(confusion: Any, path: Any = None, names: Any = None) -> Chart:
    """The matrix of a Confusion: a row for each class, a column for what it was taken for; shades are shares of a row.

    `names` are those of the classes, their numbers if left out; `path` is a file for the picture.

    Raises    ArgumentError for another number of names, or for a file, where matplotlib is not installed
    """
    return saved(MatrixChart(confusion.value(), names), path)


def plotSchedule(schedule: Any, total: int | None = None, path: Any = None) -> Chart:
    """The factor of a schedule over `total` updates, or until its end; `path` is a file for the picture.

    Raises    ArgumentError for a schedule without a length, or for a file, where matplotlib is not installed
    """
    schedule = copy.copy(schedule)
    if total is not None:
        schedule.fit(total)
    count = total or schedule.end or 1000
    steps = sorted({count * k // POINTS for k in range(POINTS)} | {count - 1})
    factors = [schedule(step) for step in steps]
    return saved(CurveChart([Panel(repr(schedule), {"factor": (steps, factors)}, "update")]), path)


def plotRates(curve: Any, path: Any = None) -> Chart:
    """The smoothed cost over the learning rate, on a logarithmic axis; `path` is a file for the picture.

    Raises    ArgumentError for a file, where matplotlib is not installed
    """
    title = f"cost, falling fastest at {curve.best:.3g}"
    points = curve.rates.tolist(), curve.costs.tolist()
    return saved(CurveChart([Panel(title, {"cost": points}, "learning rate", isLog=True)]), path)


def saved(chart: Chart, path: Any) -> Chart:
    """The chart, written to a file if there is to be one."""
    return chart if path is None else chart.save(path)
