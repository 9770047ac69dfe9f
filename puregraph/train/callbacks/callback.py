"""Callback: the base class of objects that a Trainer calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from puregraph.core.base.attributes import Settable, checkMethods
from puregraph.core.base.keywords import KeepsInitArgs
from puregraph.core.errors import DataError

if TYPE_CHECKING:
    from puregraph.train.trainer import Trainer

HOOKS = ("onTrainBegin", "onEpochBegin", "onBatchEnd", "onValidationBegin", "onEpochEnd", "onInterrupt", "onTrainEnd")
FOREIGN = {
    **dict.fromkeys(("on_train_begin", "on_train_start", "on_fit_start", "onTrainStart"), "onTrainBegin"),
    **dict.fromkeys(("on_train_end", "on_fit_end", "onTrainFinish"), "onTrainEnd"),
    **dict.fromkeys(("on_epoch_begin", "on_epoch_start", "on_train_epoch_start", "onEpochStart"), "onEpochBegin"),
    **dict.fromkeys(
        ("on_epoch_end", "on_train_epoch_end", "on_validation_end", "onEpochFinish", "onValidationEnd"), "onEpochEnd"
    ),
    **dict.fromkeys(
        ("on_batch_end", "on_train_batch_end", "on_step_end", "onBatchFinish", "onStepEnd", "onStep"), "onBatchEnd"
    ),
    **dict.fromkeys(("on_batch_begin", "on_train_batch_start", "onBatchBegin", "onBatchStart"), "onBatchEnd"),
}


class Callback(KeepsInitArgs, Settable):
    """The base class of callbacks; a subclass overrides methods, which do nothing here.

    Callbacks are called in the order of their list, and those with a higher `order` after all others. The value of
    `state` is saved with the trainer, and passed to `restore` on resuming. A callback that adds figures to
    `trainer.history[-1]` names them in `adds`, so that other callbacks may monitor them.
    """

    order = 0
    adds: tuple[str, ...] = ()
    options = ("order", "adds")

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        checkMethods(cls, HOOKS, "on", FOREIGN)

    def __repr__(self) -> str:
        return KeepsInitArgs.written(self)  # even if a subclass has an attribute `written`

    def onTrainBegin(self, trainer: Trainer) -> None:
        """Called when a call of `train` begins, also after `resume`."""

    def onEpochBegin(self, trainer: Trainer) -> None:
        """Called when an epoch begins."""

    def onBatchEnd(self, trainer: Trainer) -> None:
        """Called after every step."""

    def onValidationBegin(self, trainer: Trainer) -> None:
        """Called after the steps of an epoch, before its validation, if there is one."""

    def onEpochEnd(self, trainer: Trainer) -> None:
        """Called at the end of an epoch; its row is `trainer.history[-1]`."""

    def onInterrupt(self, trainer: Trainer) -> Any:
        """Called when Ctrl-C stops the training between two steps. A returned path is shown in the message."""

    def onTrainEnd(self, trainer: Trainer) -> None:
        """Called when a call of `train` ends, even by an exception. `trainer.running` is True if it is incomplete."""

    def state(self) -> dict[str, object]:
        """Return the state to save: numbers, texts, lists, dicts, numpy arrays."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""


class FunctionCallback(Callback):
    """Calls a function with the trainer after every step, as PuzzleLib's `onBatchFinish`."""

    def __init__(self, function: Callable[[Any], Any]):
        self.function = function

    def onBatchEnd(self, trainer: Trainer) -> None:
        self.function(trainer)


def callbacksFrom(values: Any) -> list[Callback]:
    """Convert functions to callbacks, and sort all by the order of their calls.

    Raises    DataError for a value that is not a list, and for an item that is not callable
    """
    if isinstance(values, (Callback, dict)) or callable(values) or not isinstance(values, Iterable):
        raise DataError(f"callbacks: wanted a list, got {values!r:.60}; write [it]")
    return sorted(map(callbackFrom, values), key=lambda callback: callback.order)


def callbackFrom(value: Any) -> Callback:
    """Return a Callback; a function is wrapped as a FunctionCallback.

    Raises    DataError for anything that cannot be called
    """
    if isinstance(value, Callback):
        return value
    if not callable(value) or isinstance(value, type):
        isClass = isinstance(value, type)
        got = f"the class {value.__name__}; write {value.__name__}(...)" if isClass else f"{value!r:.60}"
        raise DataError(f"callbacks: wanted a Callback or a function of the trainer, got {got}")
    return FunctionCallback(value)
