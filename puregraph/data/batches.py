"""Batches: arrays divided into batches in any order, or the batches of an iterable."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.core import device
from puregraph.core.errors import DataError
from puregraph.data.arrays import checkLengths, isArray, isSeveral, pairFrom, plain, rowsOf, weightFrom

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray

LIGHT = 1 << 18  # bytes: gathering them takes less than the 0.1 ms of passing a batch between threads


Share = Callable[[int], slice]  # size of a batch -> the samples to keep


class Names(NamedTuple):
    """Names under which inputs and targets may be passed as a dict.

    >>> names = Names(("pixels", "extra"), ("kind",))
    >>> data, target = names.inOrder({"extra": 2, "pixels": 1}, {"kind": 3})
    >>> data, target
    ([1, 2], [3])
    """

    data: Sequence[str] = ()
    target: Sequence[str] = ()

    def inOrder(self, data: Any, target: AnyArray | None) -> tuple[Any, Any]:
        """Convert dicts to lists of arrays, in the order of the names; other values are returned unchanged."""
        return inOrder(data, self.data), inOrder(target, self.target, "target")


UNNAMED = Names()


class Batch(NamedTuple):
    """Some samples: inputs, targets and their number; `whole`: the size of the full batch, if other processes have the
    other samples; `isWeighed`: True if the last target has the weights of the samples.

    >>> batch = next(iter(Arrays(np.arange(10.0), np.arange(10), batchsize=4).batches()))
    >>> batch.size, batch.data[0], batch.target[0]
    (4, array([0., 1., 2., 3.]), array([0, 1, 2, 3]))
    """

    data: list[Any]
    target: list[Any]
    size: int
    whole: int | None = None
    isWeighed: bool = False


class Arrays:
    """Arrays of one length, in batches: in memory, mapped from a file, in an HDF5 file of h5py, or on the device.

    `data` and `target` are an array each, or a list of arrays for several inputs or targets, or a dict by their
    `names`; with `isWeighed` the last target has the weights of the samples. With `dropLast` a smaller last batch is
    left out. `light` is True if no thread should prepare batches: because they are small, or are on a GPU.

    Raises    DataError if their lengths differ, they are empty, not numeric, or `batchsize` is below 1; with `dropLast`
              if there is no full batch

    >>> arrays = Arrays(np.arange(10.0), np.arange(10), batchsize=4)
    >>> [batch.size for batch in arrays.batches()]
    [4, 4, 2]
    """

    oneshot = False

    def __init__(
        self,
        data: Any,
        target: Any | None = None,
        batchsize: int = 128,
        names: Names = UNNAMED,
        isWeighed: bool = False,
        dropLast: bool = False,
    ):
        self.batchsize, self.isWeighed, self.dropLast = checkedSize(batchsize), isWeighed, dropLast
        self.data, self.target = pairFrom(*names.inOrder(data, target))
        self.samples = len(self.data[0])
        self.count = batchCount(self.samples, batchsize, dropLast)
        rowBytes = sum(x.nbytes for x in (*self.data, *self.target)) // self.samples
        self.isThere = any(map(device.isDeviceArray, (*self.data, *self.target)))
        self.light = self.isThere or rowBytes * batchsize < LIGHT

    def sizes(self) -> list[int]:
        """Return the sizes of batches in an epoch, without repeats."""
        last = 0 if self.dropLast else self.samples % self.batchsize
        return sorted({min(self.batchsize, self.samples), last} - {0}, reverse=True)

    def first(self, size: int) -> Batch:
        """A batch of the first samples."""
        data, target = ([x[:size] for x in xs] for xs in (self.data, self.target))
        return Batch(data, target, size, isWeighed=self.isWeighed)

    def few(self, count: int) -> Arrays:
        """Return the first `count` batches, with a last one of the same size as the original last one."""
        less = 0 if self.dropLast else -self.samples % self.batchsize
        end = min(self.samples, count * self.batchsize - less)
        data, target = ([x[:end] for x in xs] for xs in (self.data, self.target))
        return Arrays(data, target or None, self.batchsize, isWeighed=self.isWeighed, dropLast=self.dropLast)

    def order(self, rng: np.random.Generator) -> np.ndarray:
        """The samples in a new random order."""
        return rng.permutation(self.samples)

    def checkUsed(self, count: int) -> None:
        """Do nothing: arrays always have a sample."""

    def batches(
        self, order: np.ndarray | None = None, start: int = 0, epoch: int = 0, share: Share | None = None
    ) -> Iterator[Batch]:
        """Yield the batches from index `start` on; without `order`, in the order of the arrays.

        With `share`, each has only the samples share(size).
        """
        far = device.toDevice(order) if self.isThere and order is not None else None
        for number in range(start, self.count):
            begin, end = number * self.batchsize, min((number + 1) * self.batchsize, self.samples)
            first, last, whole = begin, end, None
            if share is not None:
                whole, part = end - begin, share(end - begin)
                first, last = begin + part.start, begin + part.stop
            rows = slice(first, last) if order is None else order[first:last]
            there = rows if far is None else far[first:last]
            data, target = ([rowsOf(x, rows, there) for x in xs] for xs in (self.data, self.target))
            yield Batch(data, target, last - first, whole, self.isWeighed)


class Stream:
    """The batches of an iterable, or of a function that returns one; each batch is (data, target).

    A third array of a batch are the weights of its samples. A function is called once an epoch; if it takes an
    argument, with the index of the epoch, from 0 on. With `paired=False` a batch is data alone. Batches are read ahead,
    and the iterable may refill the same arrays for the next one, so each is copied; batches of a list or tuple are not.

    Raises    DataError, naming the batch, if one is not a pair or its arrays do not fit each other

    >>> pairs = [(np.zeros((4, 3)), np.zeros(4)), (np.ones((2, 3)), np.ones(2))]
    >>> [batch.size for batch in Stream(pairs).batches()]
    [4, 2]
    """

    samples = None
    light = False

    def __init__(self, source: Any, paired: bool = True, names: Names = UNNAMED):
        if isinstance(source, (str, bytes, type)) or not callable(source) and not hasattr(source, "__iter__"):
            raise DataError(f"wanted arrays, an iterable of batches, or a function, got {type(source).__name__}")
        self.source, self.paired, self.names = source, paired, names
        self.oneshot = not callable(source) and iter(source) is source
        self.count = len(source) if hasattr(source, "__len__") else None

    def few(self, count: int) -> Stream:
        """Return a stream of the first batches alone."""
        shortened = Stream(lambda epoch: islice(self.open(epoch), count), self.paired, self.names)
        shortened.count = None if self.count is None else min(count, self.count)
        return shortened

    def order(self, rng: np.random.Generator) -> None:
        """Return None: an iterable has its own order."""

    def checkUsed(self, count: int) -> None:
        """Refuse an iterable that gave nothing."""
        if not count:
            used = ", perhaps because it was used before" if self.oneshot else ""
            raise DataError(f"wanted batches, the iterable gave none{used}")

    def open(self, epoch: int) -> Iterator[Any]:
        if not callable(self.source):
            return iter(self.source)
        return iter(self.source(epoch) if takesEpoch(self.source) else self.source())

    def batches(self, order: Any = None, start: int = 0, epoch: int = 0, share: Share | None = None) -> Iterator[Batch]:
        """Yield the batches from index `start` on, or this process's `share` of each; skipped batches are read and
        dropped."""
        source, number = self.open(epoch), -1
        try:
            for number, batch in enumerate(source):
                if number >= start:
                    checked = self.check(batch, number)
                    yield checked if share is None else sharedBatch(checked, share(checked.size))
            if number + 1 < start:
                raise DataError(f"wanted the {start} batches that the epoch had before, the iterable gave {number + 1}")
        finally:
            if isinstance(source, Generator):
                source.close()

    def check(self, batch: Any, number: int) -> Batch:
        if self.paired and not (isinstance(batch, (list, tuple)) and len(batch) in (2, 3)):
            raise DataError(f"batch {number + 1}: wanted a pair (data, target), got {kind(batch)}")
        data, target, *weights = batch if self.paired else (batch, None)
        try:
            inputs, targets = pairFrom(*self.names.inOrder(data, target))
            targets += [weightFrom(weight, len(inputs[0])) for weight in weights]
        except DataError as error:
            cure = "; of a list of samples, data, target = map(np.stack, zip(*samples)) makes arrays"
            raise DataError(f"batch {number + 1}: {error}{cure if np.isscalar(target) else ''}") from None
        if type(self.source) not in (list, tuple):
            inputs, targets = list(map(copyOf, inputs)), list(map(copyOf, targets))
        return Batch(inputs, targets, len(inputs[0]), isWeighed=bool(weights))


def sharedBatch(batch: Batch, part: slice) -> Batch:
    """Some of the samples of a batch."""
    data, target = [x[part] for x in batch.data], [t[part] for t in batch.target]
    return Batch(data, target, part.stop - part.start, batch.size, batch.isWeighed)


def copyOf(array: AnyArray) -> AnyArray:
    """A copy of an array in memory of its own; an array in a file has that already."""
    return array.copy() if isinstance(array, np.ndarray) or device.isDeviceArray(array) else array


def batchesFrom(
    data: Any,
    target: AnyArray | None,
    batchsize: int,
    paired: bool = True,
    names: Names = UNNAMED,
    isWeighed: bool = False,
    dropLast: bool = False,
) -> Arrays | Stream:
    """Return the training data as Arrays, or as a Stream if there are batches in place of data and target.

    `names`     the names under which inputs and targets may be passed as a dict
    `isWeighed` True if the last target has the weights of the samples; `dropLast`: see `Arrays`

    Raises    DataError if arrays come without the target that `paired` asks for
    """
    checkedSize(batchsize)
    if target is not None:
        return Arrays(data, target, batchsize, names, isWeighed, dropLast)
    isData = hasattr(data, "dtype") or hasattr(data, "__array__") or isSeveral(data) or isinstance(data, dict)
    if isData and paired:
        raise DataError(
            "wanted data and target, got data alone: give both, one after the other, also if they are the same"
        )
    if isData or isinstance(data, (list, tuple)) and not paired:
        return Arrays(data, None, batchsize, names)
    return Stream(data, paired, names)


def inOrder(data: Any, names: Sequence[str], what: str = "data") -> Any:
    """Convert a dict by the names of inputs or outputs to a list in their order; other values are returned unchanged.

    Raises    DataError for a missing or unknown name, and for arrays of different lengths
    """
    if not isinstance(data, dict):
        return data
    if not names:
        raise DataError(f"{what}: wanted an array, or a list of arrays, got a dict")
    if set(data) != set(names):
        raise DataError(
            f"{what}: wanted arrays for {', '.join(names)} by name, got {', '.join(map(str, data)) or 'none'}"
        )
    arrays = [plain(x, f"{what}[{n!r}]") if isinstance(x := data[n], (list, tuple)) else x for n in names]
    if isSeveral(arrays):
        checkLengths(dict(zip(names, arrays)), what)
    return arrays


def batchCount(samples: int, batchsize: int, dropLast: bool) -> int:
    """Return the number of batches in an epoch; with `dropLast` only full ones count.

    Raises    DataError if there is none
    """
    if dropLast and samples < batchsize:
        raise DataError(f"dropLast: wanted at least the {batchsize} samples of a batch, got {samples}")
    return samples // batchsize if dropLast else -(-samples // batchsize)


def groups(batches: Iterator[Batch], size: int) -> Iterator[list[Batch]]:
    """Up to `size` batches at a time."""
    group: list[Batch] = []
    for batch in batches:
        group.append(batch)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def takesEpoch(source: Callable) -> bool:
    """True if a function has a required positional argument."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(source).parameters.values()
    except (TypeError, ValueError):  # a built-in without a signature
        return False
    return any(p.kind in positional and p.default is p.empty for p in parameters)


def checkedSize(value: object, name: str = "batchsize", least: int = 1) -> int:
    """An integer of at least 1, or `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise DataError(f"{name}: wanted a whole number of at least {least}, got {value!r}")
    return int(value)


def kind(value: Any) -> str:
    """The kind of a value, in a few words."""
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} of {len(value)}"
    return f"array of shape {tuple(value.shape)}" if isArray(value) else type(value).__name__
