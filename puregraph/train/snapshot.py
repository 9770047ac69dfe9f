"""Snapshot: where a trainer is, as plain values and arrays, and back."""

from __future__ import annotations

from typing import Any

from puregraph.errors import DataError

VERSION = 1
PLACE = ("epoch", "begun", "position", "step", "first", "running", "stopped", "samples", "lastRate")
SETTINGS = ("batchsize", "accumulate", "shuffle")


def snapshot(trainer: Any) -> dict[str, Any]:
    """Everything of a trainer besides network and optimizer."""
    return {
        "version": VERSION,
        "place": {name: getattr(trainer, name) for name in PLACE},
        "settings": {name: getattr(trainer, name) for name in SETTINGS},
        "elapsed": trainer.passed(),
        "order": trainer.order,
        "random": trainer.rng.bit_generator.state,
        "tally": trainer.tally.state(),
        "history": [dict(row) for row in trainer.history],
        "callbacks": [{"type": type(c).__name__, "state": c.state()} for c in stateful(trainer)],
    }


def check(trainer: Any, saved: Any) -> None:
    """Whether a trainer can go on from what was saved.

    Raises    DataError saying what it would have to be made with
    """
    if not isinstance(saved, dict) or saved.get("version") != VERSION:
        raise DataError(f"wanted what trainer.save wrote (version {VERSION}), this file holds no trainer of that kind")
    if saved["place"]["begun"]:
        trainer.tally.check(saved["tally"])
        for name, value in saved["settings"].items():
            if getattr(trainer, name) != value:
                raise DataError(
                    f"{name}: an epoch was begun with {value}, it cannot go on with {getattr(trainer, name)}"
                )


def restore(trainer: Any, saved: dict[str, Any]) -> None:
    """Put a trainer where it was."""
    for name, value in saved["place"].items():
        setattr(trainer, name, value)
    trainer.order = saved["order"]
    trainer.rng.bit_generator.state = saved["random"]
    trainer.elapsed = saved["elapsed"]
    if trainer.begun:
        trainer.tally.restore(saved["tally"])
    trainer.history[:] = saved["history"]
    rows = list(saved["callbacks"])
    for callback in stateful(trainer):  # those that were not there before begin anew
        row = next((r for r in rows if r["type"] == type(callback).__name__), None)
        if row is not None:
            rows = [r for r in rows if r is not row]
            callback.restore(row["state"])


def stateful(trainer: Any) -> list[Any]:
    """The callbacks that have something to save."""
    return [c for c in trainer.callbacks if c.state()]
