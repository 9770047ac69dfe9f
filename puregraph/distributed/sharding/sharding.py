"""Sharding: the elements of each parameter, its gradient and its optimizer state that each rank holds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol

import numpy as np

from puregraph.core import device
from puregraph.core.base.align import aligned
from puregraph.core.device import Array
from puregraph.core.param import Param
from puregraph.distributed.collectives.treenorm import scatteredNorm
from puregraph.distributed.collectives.treesum import UNCUT_ELEMENTS, Span, cutAt, cutsOf
from puregraph.distributed.worlds.world import World


class ElementOrder(Protocol):
    """An order of a parameter's elements in which each rank's elements are contiguous."""

    def flat(self, array: Array) -> Array:
        """Return the elements of an array of the parameter's shape, in this order."""

    def shaped(self, flat: np.ndarray) -> np.ndarray:
        """Return an array of the parameter's shape, from elements in this order."""


class Overlap(NamedTuple):
    """The elements `first` to `last` of a parameter, stored in a row from `begin` on."""

    param: Param
    first: int
    last: int
    begin: int


class ShardRow:
    """Parameters laid end to end, and cut among ranks.

    `begins`    the first element of each parameter, and the end, behind which there may be padding
    `bounds`    the first element of every rank of the world, and the end
    `isCopied`  True if each of `ranks` has the row, and updates all of it; the first of them counts as its holder
    """

    def __init__(self, params: Sequence[Param], cuts: list[int], ranks: range, size: int, isCopied: bool = False):
        self.params, self.ranks, self.isCopied = params, ranks, isCopied
        self.begins = list(accumulate([param.size for param in params], initial=0))
        self.bounds = [0] * ranks.start + cuts + [cuts[-1]] * (size - ranks.stop)
        self.cuts = cuts

    def overlaps(self, begin: int, end: int) -> Iterator[Overlap]:
        """Yield the parameter ranges in the row's elements from `begin` to before `end`."""
        for param, (a, b) in zip(self.params, pairwise(self.begins)):
            first, last = max(a, begin), min(b, end)
            if first < last:
                yield Overlap(param, first - a, last - a, first)


class Sharding:
    """The shards of parameters: each element is held by one rank of a world, with its gradient and state.

    `world`   the ranks; a rank of `rows` is one of these
    `rows`    the parameters, cut among them
    `offsets` the offset of each parameter in the row of all parameters, by its id; norms are summed in this order
    `orders`  by the id of a parameter the order of its elements, where it differs from that of its array
    """

    def __init__(
        self,
        world: World,
        rows: list[ShardRow],
        offsets: dict[int, int],
        size: int,
        orders: dict[int, ElementOrder] | None = None,
    ):
        self.world, self.rows, self.offsets, self.size, self.orders = world, rows, offsets, size, orders or {}
        self.params = [param for row in rows for param in row.params]
        self.homes = {id(p): (n, begin) for n, row in enumerate(rows) for p, begin in zip(row.params, row.begins)}
        self.key = [([(id(p), p.dtype) for p in row.params], row.bounds, row.isCopied) for row in rows]

    def isLike(self, other: Sharding) -> bool:
        """True if all ranks hold the same elements of the same parameters."""
        return self.world is other.world and self.key == other.key and self.orders == other.orders

    @property
    def local(self) -> list[int]:
        """The numbers of the rows that this rank holds in part or in full."""
        return [number for number, row in enumerate(self.rows) if self.world.rank in row.ranks]

    def rowOf(self, param: Param) -> ShardRow:
        """The row of a parameter."""
        return self.rows[self.homes[id(param)][0]]

    def isEverywhere(self, param: Param) -> bool:
        """True if every rank has all elements of a parameter, as without sharding."""
        row = self.rowOf(param)
        return row.isCopied and len(row.ranks) == self.world.size

    def held(self, param: Param, rank: int | None = None) -> Span:
        """Return the range of a parameter that a rank holds, by default this one. The ranks' ranges are disjoint."""
        number, begin = self.homes[id(param)]
        rank, bounds = self.world.rank if rank is None else rank, self.rows[number].bounds
        first, last = (min(max(bound - begin, 0), param.size) for bound in bounds[rank : rank + 2])
        return first, last

    def updated(self, param: Param) -> Span:
        """The elements of a parameter that this rank updates: those that it holds, or has a copy of."""
        row = self.rowOf(param)
        return (0, param.size) if row.isCopied and self.world.rank in row.ranks else self.held(param)

    # Arrays -----------------------------------------------------------------------------------------------------------

    def shard(self, param: Param, array: Array) -> Array:
        """Return the elements that this rank updates of an array of the parameter's shape."""
        if self.rowOf(param).isCopied:
            return aligned(array.reshape(param.shape))
        order, (first, last) = self.orders.get(id(param)), self.updated(param)
        flat = array.reshape(-1) if order is None else order.flat(array.reshape(param.shape))
        return aligned(flat if last - first == len(flat) else flat[first:last].copy())

    def shaped(self, param: Param, flat: np.ndarray) -> np.ndarray:
        """Return all elements of a parameter, in the order in which ranks hold them, as an array of its shape."""
        order = self.orders.get(id(param))
        return flat.reshape(param.shape) if order is None else order.shaped(flat)

    def isWhole(self, param: Param) -> bool:
        """True if this rank updates all elements of a parameter, in the order of its array."""
        return id(param) not in self.orders and self.updated(param) == (0, param.size)

    def gathered(
        self, param: Param, array: Array | None, dtype: np.dtype, shape: tuple[int, ...] | None = None
    ) -> np.ndarray:
        """All-gather an array like a parameter from the elements that each rank holds; None for a rank without.

        `shape` is that of an array that one rank holds, with the parameter, if it is another one.
        """
        if shape is not None:
            return self.gatheredWhole(param, array, dtype, shape)
        flat, (first, last) = np.empty(param.size, dtype), self.held(param)
        if first < last and array is not None:
            begin, _ = self.updated(param)
            flat[first:last] = device.toHost(array).reshape(-1)[first - begin : last - begin]
        elif first < last:
            flat[first:last] = 0
        self.world.allGather(flat, [*[self.held(param, rank)[0] for rank in range(self.world.size)], param.size])
        return self.shaped(param, flat)

    def gatheredWhole(self, param: Param, array: Array | None, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """All-gather an array of any shape from the rank that holds a parameter."""
        ranks = range(self.world.size)
        holder = next(rank for rank in ranks if self.held(param, rank) == (0, param.size))
        result = np.zeros(shape, dtype)
        if holder == self.world.rank and array is not None:
            result[...] = device.toHost(array)
        self.world.allGather(result.reshape(-1), [result.size * (rank > holder) for rank in range(self.world.size + 1)])
        return result

    def gradient(self, sums: Sums, param: Param) -> np.ndarray:
        """Return the gradient of the elements that this rank updates, from its parts of the rows of all gradients."""
        number, begin = self.homes[id(param)]
        first, last = self.updated(param)
        begin -= self.start(number)
        return sums[number][begin + first : begin + last]

    def start(self, number: int) -> int:
        """Return the offset of this rank's part in a row."""
        row = self.rows[number]
        return 0 if row.isCopied else row.bounds[self.world.rank]

    # The norm ---------------------------------------------------------------------------------------------------------

    @cached_property
    def runs(self) -> list[list[tuple[int, Span, Span]]]:
        """The elements that each rank holds, see `runsOf`."""
        return [list(self.runsOf(rank)) for rank in range(self.world.size)]

    def runsOf(self, rank: int) -> Iterator[tuple[int, Span, Span]]:
        """Yield the elements that a rank holds: a row number, the range in that row, and the range in the row of all.

        Adjacent ranges are merged. Padding at the end of a row counts to its last parameter.
        """
        for number, row in enumerate(self.rows):
            before: tuple[Span, Span] | None = None
            ends = [*row.begins[1:-1], row.bounds[-1]]
            for param, a, b in zip(row.params, row.begins, ends):
                first, last = max(a, row.bounds[rank]), min(b, row.bounds[rank + 1])
                if first >= last:
                    continue
                shift = self.offsets[id(param)] - a
                if before is not None and before[1][1] == first + shift:
                    before = (before[0][0], last), (before[1][0], last + shift)
                    continue
                if before is not None:
                    yield number, *before
                before = (first, last), (first + shift, last + shift)
            if before is not None:
                yield number, *before

    def norm(self, sums: Sums) -> float:
        """Return the norm of all gradients; its bits do not depend on the sharding."""
        runs = [[offset for _, _, offset in ofRank] for ofRank in self.runs]
        pieces = [sums[n][a - self.start(n) : b - self.start(n)] for n, (a, b), _ in self.runs[self.world.rank]]
        return scatteredNorm(self.world, self.size, runs, pieces)


def shardSize(size: int, count: int, rank: int | None = None) -> int:
    """Return the size of a rank's shard in a row of `size` elements; without a rank, of the largest shard."""
    if rank is None:
        return min(UNCUT_ELEMENTS * -(-size // (UNCUT_ELEMENTS * count)), size)
    return cutAt(size, count, rank + 1) - cutAt(size, count, rank)


def isOnDevice(param: Param) -> bool:
    """True if a parameter is on a GPU, or will be allocated there."""
    return device.name() == "cuda" if param.array is None else device.isDeviceArray(param.array)


Sums = Sequence[np.ndarray] | dict[int, np.ndarray]  # this rank's sums of gradients, by row


def cutsAmong(params: Sequence[Param], size: int, count: int, spread: tuple[int, int] | None = None) -> list[int]:
    """Return the beginnings of `count` shards of a row of `size` elements with padding, at block boundaries.

    With `spread`, they begin between parameters, for a rule that updates none in part. It is the position of the row
    among all elements, and the number of these: a parameter goes to the rank that would have its middle element.
    """
    if spread is None:
        return cutsOf(size, count)
    begin, total = spread
    ends = list(accumulate([param.size for param in params], initial=0))
    ranks = [(2 * begin + a + b) * count // (2 * total) for a, b in pairwise(ends)]
    return [0, *[ends[bisect_left(ranks, rank)] for rank in range(1, count)], size]
