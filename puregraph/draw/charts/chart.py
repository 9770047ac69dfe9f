"""Chart: base class of charts, shown as text in a terminal and as a picture in a notebook or file."""

from __future__ import annotations

import base64
import importlib.util
import io
import os
from typing import TYPE_CHECKING, Any, TypeVar

from puregraph.core.errors import ArgumentError, CheckpointError
from puregraph.core.foreign import ForeignAttributes
from puregraph.core.storage.atomicwrite import reason
from puregraph.draw.escape import markup, preformatted

if TYPE_CHECKING:
    from puregraph.core.protocols import StrPath

C = TypeVar("C", bound="Chart")
DOTS = 110  # dots per inch of a picture


class Chart(ForeignAttributes):
    """Text by `str(chart)`, a picture by `chart.save("curves.png")` and in notebooks; a subclass makes both.

    Raises    ArgumentError from `save` where there is no matplotlib, or for a file of a kind that it does not write;
              CheckpointError for one that cannot be written
    """

    def text(self) -> str:
        """The chart in characters, at most 80 columns wide if possible."""
        raise NotImplementedError(f"{type(self).__name__} has no text: write text(self)")

    def drawOn(self, figure: Any) -> None:
        """Draw the chart on an empty Figure of matplotlib."""
        raise NotImplementedError(f"{type(self).__name__} has no picture: write drawOn(self, figure)")

    def figure(self) -> Any:
        """Return a Figure of matplotlib, which is independent of pyplot and its windows.

        Raises    ArgumentError if matplotlib is not installed
        """
        if importlib.util.find_spec("matplotlib") is None:
            raise ArgumentError("pictures of charts need matplotlib: pip install puregraph[plot]")
        from matplotlib.figure import Figure

        chart = Figure(layout="constrained")
        self.drawOn(chart)
        return chart

    def save(self: C, path: StrPath) -> C:
        """Write a picture in the format of the file name's ending, such as .png, .svg or .pdf."""
        if not os.path.splitext(path)[1]:
            raise ArgumentError(f"{path}: wanted a file whose ending says its kind, such as {path}.png, .svg or .pdf")
        figure = self.figure()
        try:
            figure.savefig(path, dpi=DOTS)
        except ValueError as error:  # a kind that matplotlib does not know
            raise ArgumentError(f"{path}: {error}") from None
        except OSError as error:
            raise CheckpointError(f"cannot save '{path}': {reason(error, os.path.realpath(path))}") from None
        return self

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """The chart as a picture, or as text if matplotlib is not installed."""
        if importlib.util.find_spec("matplotlib") is None:
            return preformatted(self.text())
        made = io.BytesIO()
        self.figure().savefig(made, format="png", dpi=DOTS)
        picture = base64.b64encode(made.getvalue()).decode()
        return f'<img alt="{markup(self.text())}" src="data:image/png;base64,{picture}">'
