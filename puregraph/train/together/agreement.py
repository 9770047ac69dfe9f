"""Agreement: processes that train together do so alike, or none of them begins."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from puregraph import device
from puregraph.data.batches import Arrays, Batch, Stream
from puregraph.errors import DataError, show
from puregraph.many import World

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
    """Compare what this process is about to train, with what, and from where on, with what all others are.

    Raises    DataError, on all of them, with the first line in which two differ
    """
    if trainer.world.size > 1:
        lines = linesOf(trainer, source, checks)
        trainer.world.survive(lambda: compare(trainer.world, lines))


def compare(world: World, lines: list[str]) -> None:
    """Compare lines with those of all other processes.

    Raises    DataError, on all of them, with the first line in which two differ
    """
    found = world.gather(hashlib.sha256("\n".join(lines).encode()).digest())
    other = next((r for r in range(world.size) if found[r] != found[0]), None)
    if other is None:
        return
    texts = world.gather("\n".join(lines).encode())
    first, second = (texts[r].decode().split("\n") for r in (0, other))
    one, two = next((a, b) for a, b in zip([*first, "no more"], [*second, "no more"]) if a != b)
    raise DataError(f"processes would not train alike: rank 0 has {one}; rank {other} has {two}")


def together(world: World, source: Arrays | Stream, steps: Iterator[list[Batch]]) -> Iterator[list[Batch]]:
    """The steps; those of an iterable, which each process reads for itself, as long as all have as many samples.

    Raises    DataError, on all of them, where one has others
    """
    if world.size == 1 or isinstance(source, Arrays):
        yield from steps
        return
    number = 0
    while True:
        group = next(steps, [])
        number += 1
        own = ", ".join(str(batch.whole or batch.size) for batch in group)
        world.survive(partial(compareSizes, world, number, own))
        if not group:
            return
        yield group


def compareSizes(world: World, number: int, own: str) -> None:
    """Compare the sizes of the batches of a step with those of all other processes.

    Raises    DataError, on all of them, where one has others
    """
    found = [sizes.decode() for sizes in world.gather(own.encode())]
    other = next((r for r in range(world.size) if found[r] != found[0]), None)
    if other is not None:
        first, second = (sizes or "no more" for sizes in (found[0], found[other]))
        raise DataError(
            f"step {number} of the epoch: processes have batches of other sizes, rank 0 {first}, rank {other} "
            f"{second}; each reads the whole iterable, and takes its part of each batch"
        )


def linesOf(trainer: Any, source: Arrays | Stream, checks: Arrays | Stream | None) -> list[str]:
    """All that must be alike, a line for each."""
    net, optimizer = trainer.net, trainer.optimizer
    lines = [f"a network of {len(net.params)} parameters"]
    for path, param in net.params.items():
        kind = "trained" if param.trainable else "frozen"
        lines.append(f"'{path}' of {param.dtype} {show(param.shape)}, {kind}")
    lines += [f"module '{path}': {module!r}" for path, module in net.modules().items()]
    lines += [f"the cost {trainer.cost!r}", f"the optimizer {described(optimizer)}", f"the metrics {namesOf(trainer)}"]
    lines += [f"{name} {getattr(trainer, name, trainer.objective.compile)}" for name in SETTINGS]
    for what, given in (("data", source), ("validation", checks)):
        if isinstance(given, Arrays):
            arrays = [*given.data, *given.target]
            kinds = ", ".join(f"{x.dtype} {show(tuple(x.shape[1:]))}" for x in arrays)
            lines += [f"{given.samples} samples of {what}", f"{what} of {kinds}"]
            rows = [x[: given.batchsize] for x in arrays]
            lines.append(f"{what} whose first samples have the checksum {checksum(rows)}")
        else:
            lines.append(f"{'no ' if given is None else ''}{what} in batches")
    lines.append(f"the order of samples {zlib.crc32(repr(trainer.rng.bit_generator.state).encode())}")
    for path, stored in {**net.params, **net.states}.items():
        lines.append(f"values of '{path}' with the checksum {checksum([stored.values()])}")
    return lines


def described(optimizer: Any) -> str:
    """An optimizer with its arguments and how many updates it has made."""
    args, named = getattr(optimizer, "initArgs", ((), {}))
    given = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in named.items())])
    return f"{type(optimizer).__name__}({given}) after {getattr(optimizer, 'step', 0)} updates"


def namesOf(trainer: Any) -> str:
    """The metrics by name."""
    return ", ".join(metric.name for metric in trainer.metrics) or "none"


def checksum(arrays: list[Any]) -> str:
    """The checksum of the bytes of arrays."""
    found = 0
    for array in arrays:
        found = zlib.crc32(device.toHost(array).tobytes(), found)
    return f"{found:08x}"
