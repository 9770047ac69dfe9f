"""Checkpoint: the callback that saves the trainer at intervals, so that training can be resumed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from puregraph.core.arguments import Count, FilePath, Text, takes
from puregraph.core.errors import CheckpointError, DataError
from puregraph.core.storage.pieces import removePieces
from puregraph.train.callbacks.monitor import Monitor

if TYPE_CHECKING:
    from puregraph.train.trainer import Trainer


class Checkpoint(Monitor):
    """Saves the trainer to `path` every epoch or every few steps, and on Ctrl-C; `trainer.resume(path)` continues.

    `every`  "epoch", or a number of steps
    `best`   the name of a figure of the history: save at the end of an epoch only if it is the best so far
    `keep`   the number of files to keep; if more than one, their names contain the step: `run-120.h5`

    Raises    DataError for another `every`, or for `keep` below 1
    """

    order = 2

    @takes(path=FilePath, best=Text | None, keep=Count)
    def __init__(self, path: Any, every: Any = "epoch", best: str | None = None, keep: int = 1, mode: str = "auto"):
        super().__init__(best or "", mode)
        isCount = isinstance(every, int) and not isinstance(every, bool) and every >= 1
        isEpoch = isinstance(every, str) and every == "epoch"
        if not isCount and not isEpoch or best and not isEpoch:
            raise DataError(f'every: wanted "epoch"{"" if best else ", or a number of steps"}, got {every!r}')
        if keep < 1:
            raise DataError(f"keep: wanted at least 1 file, got {keep}")
        field = re.search(r"\{\w*(:[^{}]*)?\}", str(path))
        if field is not None:
            raise DataError(
                f"path: wanted the name of a file, got {str(path)!r:.200}, and {field[0]} is not filled in; keep=3 "
                "keeps the last three files, each with its step in its name, best='val loss' the best one"
            )
        self.path, self.every, self.keep = Path(path), every, keep
        self.files: list[str] = []

    def onTrainBegin(self, trainer: Trainer) -> None:
        if self.monitor:
            super().onTrainBegin(trainer)
        folder = self.path.absolute().parent
        if not folder.is_dir():
            raise DataError(f"Checkpoint: there is no folder '{folder}'; make it first")
        try:
            isFolder = self.path.is_dir()
        except OSError as error:
            raise DataError(f"Checkpoint: cannot write '{self.path}': {error.strerror}; give another path") from None
        if isFolder:
            raise DataError(f"Checkpoint: '{self.path}' is a folder; give the path of a file in it")

    def onBatchEnd(self, trainer: Trainer) -> None:
        if self.every != "epoch" and trainer.step % self.every == 0:
            self.save(trainer)

    def onEpochEnd(self, trainer: Trainer) -> None:
        if self.every == "epoch" and (not self.monitor or self.isBetter(trainer)):
            self.save(trainer)

    def onInterrupt(self, trainer: Trainer) -> Any:
        return None if self.monitor else self.save(trainer)

    def save(self, trainer: Trainer) -> Path | None:
        """Save now, then delete the oldest files beyond `keep` that were saved here; a fast run writes no file."""
        if trainer.fastRun:
            trainer.save(None)
            return None
        path = self.path if self.keep == 1 else self.path.with_stem(f"{self.path.stem}-{trainer.step}")
        self.files = [name for name in self.files if name != path.name] + [path.name]
        old, self.files = self.files[: -self.keep], self.files[-self.keep :]
        trainer.save(path)
        for name in () if trainer.world.rank else old:
            path.with_name(name).unlink(missing_ok=True)
            removePieces(path.with_name(name), [])
        return path

    def state(self) -> dict[str, object]:
        return {**super().state(), "written": list(self.files)}

    def restore(self, state: dict[str, Any]) -> None:
        written = state.get("written")
        if type(written) is not list or not all(type(name) is str for name in written):
            raise CheckpointError(f"Checkpoint: wanted the names of the files that it wrote, got {written!r:.80}")
        super().restore(state)
        self.files = [name for name in written if self.isOwn(name)]

    def isOwn(self, name: str) -> bool:
        """True for the name of a file of this callback, which it may delete later."""
        numbered = rf"{re.escape(self.path.stem)}-\d{{1,19}}{re.escape(self.path.suffix)}"
        return name == self.path.name or re.fullmatch(numbered, name, re.ASCII) is not None
