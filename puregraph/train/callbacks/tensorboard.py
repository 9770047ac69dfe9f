"""TensorBoard: the callback that writes figures and histograms of parameters for TensorBoard."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from puregraph.core import device
from puregraph.core.arguments import FilePath, Flag, takes
from puregraph.core.errors import ArgumentError, DataError
from puregraph.train.callbacks.callback import Callback

if TYPE_CHECKING:
    from puregraph.core.protocols import StrPath
    from puregraph.train.trainer import Trainer


class TensorBoard(Callback):
    """Writes event files into `folder`: `tensorboard --logdir folder` shows them while the training runs.

        Trainer(net, cost, Adam(), callbacks=[TensorBoard("runs/first")])

    Every epoch it writes all figures of the history by step: cost and metrics, with the validation in the same charts,
    and the learning rate. With `histograms` it adds every parameter, and its gradient in the last step if there is one.
    The listing of the network is a text. Resuming from a checkpoint hides the events after it.

    Source    tensorboardX writes the files: pip install puregraph[tensorboard]
    Raises    ArgumentError if that is not installed; DataError if the folder cannot be written when training begins

    >>> try:
    ...     callback = TensorBoard("runs/first", histograms=False)
    ... except ArgumentError:
    ...     callback = None                                                    # tensorboardX is not installed
    """

    @takes(folder=FilePath, histograms=Flag)
    def __init__(self, folder: StrPath, histograms: bool = True):
        if importlib.util.find_spec("tensorboardX") is None:
            raise ArgumentError("TensorBoard: tensorboardX writes its files: pip install puregraph[tensorboard]")
        self.folder, self.histograms = Path(folder), histograms
        self.writer: Any = None

    def onTrainBegin(self, trainer: Trainer) -> None:
        if trainer.writes:
            self.open(trainer)

    def open(self, trainer: Trainer) -> None:
        """Open an event file."""
        from tensorboardX import SummaryWriter  # takes 0.1 s, so it is imported only for writing

        first = trainer.step + 1 if trainer.step else None
        try:  # the suffix distinguishes files of the same second
            self.writer = SummaryWriter(str(self.folder), purge_step=first, filename_suffix=f".{trainer.step}")
        except OSError as error:
            raise DataError(f"TensorBoard: cannot write into {self.folder}: {error}") from error
        if not trainer.step:
            listing = "\n".join(f"    {line}" for line in str(trainer.net).splitlines())  # a code block in Markdown
            self.writer.add_text("network", listing, 0)

    def onEpochEnd(self, trainer: Trainer) -> None:
        if not trainer.writes:
            return
        if self.writer is None:  # the process that wrote the file is lost
            self.open(trainer)
        for name, value in trainer.history[-1].items():
            if name not in ("epoch", "step", "seconds") and isinstance(value, (int, float)):
                part, base = ("validation", name[4:]) if name.startswith("val ") else ("training", name)
                self.writer.add_scalar(f"{base}/{part}".replace(" ", "_"), value, trainer.step)
        for path, param in trainer.net.params.items() if self.histograms else ():
            self.add(f"weights/{path}", param.data, trainer.step)
            self.add(f"gradients/{path}", param.grad, trainer.step)
        self.writer.flush()

    def add(self, tag: str, values: Any, step: int) -> None:
        """Write a histogram of values that exist and are finite."""
        if values is not None and values.size:
            host = device.toHost(values).astype("float64", copy=False)
            if math.isfinite(host.sum()):
                self.writer.add_histogram(tag, host, step)

    def onTrainEnd(self, trainer: Trainer) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None
