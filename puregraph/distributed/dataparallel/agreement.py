"""Agreement: check that all ranks train with the same settings, before any of them begins."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from puregraph.core import device
from puregraph.core.errors import DataError, show
from puregraph.data.batches import Arrays, Batch, Stream
from puregraph.distributed import World

SETTINGS = (
    "batchsize",
    "accumulate",
    "grains",
    "shard",
    "stages",
    "tensor",
    "shuffle",
    "dropLast",
    "compile",
    "epoch",
    "step",
    "position",
    "until",
)


def agree(trainer: Any, source: Arrays | Stream, checks: Arrays | Stream | None) -> None:
    """Compare this process's trainer, data and position with those of all other ranks.

    Raises    DataError, on all ranks, naming the first line that differs
    """
    if trainer.world.size > 1:
        lines = linesOf(trainer, source, checks)
        trainer.world.survive(lambda: compare(trainer.world, lines))


def compare(world: World, lines: list[str]) -> None:
    """Compare lines with those of all other ranks.

    Raises    DataError, on all ranks, naming the first line that differs
    """
    digests = world.gather(hashlib.sha256("\n".join(lines).encode()).digest())
    other = next((r for r in range(world.size) if digests[r] != digests[0]), None)
    if other is None:
        return
    texts = world.gather("\n".join(lines).encode())
    first, second = (texts[r].decode().split("\n") for r in (0, other))
    ours, theirs = next((a, b) for a, b in zip([*first, "no more"], [*second, "no more"]) if a != b)
    raise DataError(f"processes would not train alike: rank 0 has {ours}; rank {other} has {theirs}")


def together(world: World, source: Arrays | Stream, steps: Iterator[list[Batch]]) -> Iterator[list[Batch]]:
    """Yield the steps. For an iterable, which each rank reads by itself, compare the sizes of batches.

    Raises    DataError, on all ranks, if sizes differ
    """
    if world.size == 1 or isinstance(source, Arrays):
        yield from steps
        return
    number = 0
    while True:
        group = next(steps, [])
        number += 1
        sizes = ", ".join(str(batch.whole or batch.size) for batch in group)
        world.survive(partial(compareSizes, world, number, sizes))
        if not group:
            return
        yield group


def compareSizes(world: World, number: int, localSizes: str) -> None:
    """Compare the batch sizes of a step with those of all other ranks.

    Raises    DataError, on all ranks, if they differ
    """
    sizesByRank = [sizes.decode() for sizes in world.gather(localSizes.encode())]
    other = next((r for r in range(world.size) if sizesByRank[r] != sizesByRank[0]), None)
    if other is not None:
        first, second = (sizes or "no more" for sizes in (sizesByRank[0], sizesByRank[other]))
        raise DataError(
            f"step {number} of the epoch: processes have batches of other sizes, rank 0 {first}, rank {other} "
            f"{second}; each reads the whole iterable, and takes its part of each batch"
        )


def linesOf(trainer: Any, source: Arrays | Stream, checks: Arrays | Stream | None) -> list[str]:
    """Describe everything that must be equal on all ranks, in a line each."""
    net, optimizer = trainer.net, trainer.optimizer
    lines = [f"a network of {len(net.params)} parameters"]
    for path, param in net.params.items():
        kind = "trained" if param.trainable else "frozen"
        lines.append(f"'{path}' of {param.dtype} {show(param.shape)}, {kind}")
    lines += [f"module '{path}': {module!r}" for path, module in net.modules().items()]
    lines += [f"the cost {trainer.cost!r}", f"the optimizer {described(optimizer)}", f"the metrics {namesOf(trainer)}"]
    lines += [f"{name} {getattr(trainer, name, trainer.objective.compile)}" for name in SETTINGS]
    for what, used in (("data", source), ("validation", checks)):
        if isinstance(used, Arrays):
            arrays = [*used.data, *used.target]
            kinds = ", ".join(f"{x.dtype} {show(tuple(x.shape[1:]))}" for x in arrays)
            lines += [f"{used.samples} samples of {what}", f"{what} of {kinds}"]
            rows = [x[: used.batchsize] for x in arrays]
            lines.append(f"{what} whose first samples have the checksum {checksum(rows)}")
        else:
            lines.append(f"{'no ' if used is None else ''}{what} in batches")
    lines.append(f"the order of samples {zlib.crc32(repr(trainer.rng.bit_generator.state).encode())}")
    for path, stored in {**net.params, **net.states}.items():
        lines.append(f"values of '{path}' with the checksum {checksum([stored.values()])}")
    return lines


def described(optimizer: Any) -> str:
    """Describe an optimizer by its arguments and its number of updates."""
    args, named = getattr(optimizer, "initArgs", ((), {}))
    arguments = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in named.items())])
    return f"{type(optimizer).__name__}({arguments}) after {getattr(optimizer, 'step', 0)} updates"


def namesOf(trainer: Any) -> str:
    """The metrics by name."""
    return ", ".join(metric.name for metric in trainer.metrics) or "none"


def checksum(arrays: list[Any]) -> str:
    """Return the checksum of the bytes of arrays."""
    crc = 0
    for array in arrays:
        crc = zlib.crc32(device.toHost(array).tobytes(), crc)
    return f"{crc:08x}"
