"""CsvLog: the callback that writes the history to a CSV file, row by row."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

from puregraph.core.arguments import FilePath, takes
from puregraph.core.errors import CheckpointError, DataError
from puregraph.core.storage.atomicwrite import whole
from puregraph.train.callbacks.callback import Callback

if TYPE_CHECKING:
    from puregraph.core.protocols import StrPath
    from puregraph.train.history import History
    from puregraph.train.trainer import Trainer


class CsvLog(Callback):
    """Writes every row of the history to `path` as soon as there is one.

    The file has exactly the rows of `trainer.history`: training that resumes from a checkpoint removes the rows that
    were written after it.

    Raises    DataError if the file cannot be written when training begins, or a device, pipe or folder is there
    """

    @takes(path=FilePath)
    def __init__(self, path: StrPath):
        self.path = Path(path)
        self.names: list[str] = []

    def onTrainBegin(self, trainer: Trainer) -> None:
        if not trainer.writes:
            return
        try:
            self.rewrite(trainer.history)
        except CheckpointError as error:
            raise DataError(f"CsvLog: {str(error).replace('save', 'write', 1)}") from error

    def onEpochEnd(self, trainer: Trainer) -> None:
        if not trainer.writes:
            return
        if not set(trainer.history[-1]) <= set(self.names):
            self.rewrite(trainer.history)
            return
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self.names, lineterminator="\n").writerow(trainer.history[-1])

    def rewrite(self, history: History) -> None:
        """Replace the file by one with all rows."""
        self.names = history.names()
        with whole(self.path) as raw:
            file = io.TextIOWrapper(raw, encoding="utf-8", newline="")
            writer = csv.DictWriter(file, self.names, lineterminator="\n")
            if self.names:
                writer.writeheader()
            writer.writerows(history)
            file.detach()  # `whole` closes the file after the rename
