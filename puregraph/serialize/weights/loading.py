"""Loading: convert the arrays of a foreign file to those of a graph, by a map of names.

graph.load("resnet50.safetensors", names="torchvision")
graph.load(torchModule.state_dict(), names={"encoder.{i}": "block{i+1}"}, prefix="model.")
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.core.base.dtype import isFloating
from puregraph.core.errors import ArgumentError, CheckpointError, PuregraphError, quote, show
from puregraph.core.param import Param
from puregraph.graph import Graph
from puregraph.graph.lookup import nearest
from puregraph.serialize.loadreport import ArraySource, LoadReport, match
from puregraph.serialize.weights.maps import READY, readyMap
from puregraph.serialize.weights.namemap import NameLink, NameMap, Names
from puregraph.serialize.weights.parametrized import parametrizedAdvice
from puregraph.serialize.weights.proposal import layoutOf, proposeNames
from puregraph.serialize.weights.weightfile import StoredTensor, WeightFile

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from puregraph.core.protocols import AnyArray

MAX_LISTED_ROWS = 20  # most rows of a proposed map in an error
MAX_MAPPED_ARRAYS = 5000  # most arrays of a file for which ready maps are tried


class MappedArray(NamedTuple):
    """An array of a graph that a file holds: the link of their names, and its index in the link.

    `shape`  its shape in the graph, or in the file if that does not fit; `note` then describes the expected shape
    """

    shape: tuple[int, ...]
    dtype: str
    note: str
    isFitting: bool
    link: NameLink
    number: int


class MappedWeights(ArraySource):
    """The arrays of a foreign file by path in a graph. Shapes are compared before an element is read."""

    partial = True

    def __init__(self, weights: Mapping[str, StoredTensor], graph: Graph | None, names: Names = None, prefix: str = ""):
        self.weights, self.names, self.prefix = weights, names, prefix
        self.source = weights.source if isinstance(weights, WeightFile) else "the given arrays"
        self.tensors = {name[len(prefix) :]: weights[name] for name in weights if name.startswith(prefix)}
        if prefix and not self.tensors:
            near = ", ".join(map(quote, nearest(prefix, list(weights), 3)))
            raise CheckpointError(f"none of its names begins with prefix={prefix!r:.60}; it has {near}")
        self.arrays: dict[str, Any] = dict(self.tensors)
        self.kinds: dict[str, str] = {}
        self.ties: dict[str, str] = {}
        if graph is not None:
            self.map = mapFrom(names, graph, layoutOf(weights))
            self.assign(graph)

    def assign(self, graph: Graph) -> None:
        """Find the arrays of the file for those of the graph."""
        rows = [(path, array) for kind in ("params", "states") for path, array, _ in graph.stored(kind)]
        self.shapes = {path: tuple(array.shape) for path, array in rows}
        self.kinds = {path: "params" if isinstance(array, Param) else "states" for path, array in rows}
        used: set[str] = set()
        self.arrays, self.expected = {}, {}
        for link in self.map.links(graph, self.tensors):
            if all(name in self.tensors for name in link.files):
                used.update(link.files)
                self.arrays.update((path, self.mapped(link, i)) for i, path in enumerate(link.paths))
            else:
                missing = next(name for name in link.files if name not in self.tensors)
                self.expected.update((path, missing) for path in link.paths)
        idle = {name: tensor for name, tensor in self.tensors.items() if name not in used}
        self.ignored = [name for name in idle if self.map.ignores(name)]
        self.unused = {name: tensor for name, tensor in idle.items() if not self.map.ignores(name)}

    def mapped(self, link: NameLink, number: int) -> MappedArray:
        """Compare the shapes of a link's arrays in the file with those that the graph asks for."""
        path = link.paths[number]
        stored = [self.tensors[name] for name in link.files]
        try:
            wanted = link.how.fileShapes([self.shapes[path] for path in link.paths], len(stored))
        except (CheckpointError, ValueError, IndexError) as error:
            return MappedArray(
                stored[0].shape, stored[0].dtype, f" as {quote(stored[0].name)}, {error}", False, link, 0
            )
        for tensor, shape in zip(stored, wanted):
            if tuple(tensor.shape) != tuple(shape):
                note = f" as {quote(tensor.name)}" + (
                    f", wanted {show(shape)} there" if shape != self.shapes[path] else ""
                )
                return MappedArray(tuple(tensor.shape), tensor.dtype, note, False, link, 0)
        return MappedArray(self.shapes[path], stored[0].dtype, f" as {quote(stored[0].name)}", True, link, number)

    def fits(self, path: str, shape: tuple[int, ...], dtype: DTypeLike) -> bool:
        array = self.arrays[path]
        isSame = array.isFitting and tuple(array.shape) == tuple(shape)
        return isSame and all(converts(self.tensors[name].dtype, dtype) for name in array.link.files)

    def read(self, path: str, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        _, _, _, _, link, number = self.arrays[path]
        files = [self.values(self.tensors[name]) for name in link.files]
        result = link.how.toGraph(files, [self.shapes[path] for path in link.paths])[number]
        return converted(result, np.dtype(dtype), link.files[0])

    def values(self, tensor: StoredTensor) -> np.ndarray:
        """The elements of an array of the file, with half precision widened."""
        values = np.asarray(tensor.read())
        if values.shape != tuple(tensor.shape):
            raise CheckpointError(f"{quote(tensor.name)} is {show(values.shape)}, declared was {show(tensor.shape)}")
        return values.astype(np.float32) if isFloating(values.dtype) and values.dtype.itemsize < 4 else values

    def check(self, paths: Any) -> None:
        """Do nothing: the reader of the format has verified the file."""

    def extra(self) -> None:
        """Return None: such files hold only arrays."""

    def graph(self) -> Graph:
        raise CheckpointError(
            f"it holds {len(self.tensors)} arrays and no network; make the network and load them into it: "
            f"net.load({self.where()}), or with names= and prefix= for other names"
        )

    def close(self) -> None:
        if isinstance(self.weights, WeightFile):
            self.weights.close()

    def where(self) -> str:
        """The file, as an argument of `load`."""
        return repr(self.source) if isinstance(self.weights, WeightFile) else "arrays"

    # Advice -----------------------------------------------------------------------------------------------------------

    def advice(self, graph: Graph, report: LoadReport) -> str:
        """Return the call that would load the file completely; or a proposed map of names, for the user to check."""
        parametrized = parametrizedAdvice(sorted(self.unused))
        if parametrized:
            return f"\n  {parametrized}"
        calls = self.completeCalls(graph)
        if calls:
            several = "\n  the file holds several state dicts that fit; choose one with prefix=:" if calls[1:] else ""
            return several + "".join(f"\n  {call} loads all of it" for call in calls)
        lines = "\n  net.load(path, strict=False) loads what fits"
        if self.names is not None:
            return lines
        proposed = proposeNames(graph, self.tensors)
        top = NameMap(proposed.rows[:MAX_LISTED_ROWS], proposed.layout)
        more = len(proposed.rows) - MAX_LISTED_ROWS
        if not proposed.rows:
            return lines
        return f"{lines}\n  a map by order, shapes and names, to be checked and given as names=:\n{top!r}" + (
            f"\n  and {more} more rows: puregraph.weights.proposeNames(net, path)" if more > 0 else ""
        )

    def completeCalls(self, graph: Graph) -> list[str]:
        """The calls of `load` that load everything: one, or one for each of several state dicts."""
        if self.prefix or len(self.tensors) > MAX_MAPPED_ARRAYS:
            return []
        ways: tuple[Names, ...] = (None, *READY) if self.names is None else (self.names,)
        calls = []
        for group in self.prefixGroups(len(graph.params)):
            options = ((names, prefix) for prefix in group for names in ways)
            way = next((way for way in options if self.completes(graph, *way)), None)
            if way is not None:
                names, prefix = way
                given = f", names={names!r}" if names is not None else ""
                calls.append(f"net.load({self.where()}{given}" + (f", prefix={prefix!r})" if prefix else ")"))
                if not prefix:
                    break
        return calls

    def prefixGroups(self, count: int) -> list[list[str]]:
        """The prefixes to try: those of all names; then those of the names under a first key, of at least `count`."""
        groups: dict[str, list[str]] = {}
        for name in self.tensors:
            groups.setdefault(name.partition(".")[0], []).append(name)
        parts = [names for names in groups.values() if len(names) >= max(count, 1)] if len(groups) > 1 else []
        return [["", *commonPrefixes(self.tensors)], *map(commonPrefixes, parts)]

    def completes(self, graph: Graph, names: Names, prefix: str) -> bool:
        """True if everything fits with this map and prefix."""
        try:
            other = MappedWeights(self.tensors, graph, names, prefix)
            return match(Blind(other), graph, {**graph.params, **graph.states})[0].complete
        except PuregraphError:
            return False


def commonPrefixes(texts: Iterable[str]) -> list[str]:
    """The prefixes that all names share, longest first."""
    parts = commonprefix(list(texts)).split(".")[:-1]
    return [".".join(parts[:n]) + "." for n in range(len(parts), 0, -1)]


class Blind:
    """A source whose arrays are not compared by their elements."""

    def __init__(self, source: MappedWeights) -> None:
        self.inner = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def read(self, path: str, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        return np.zeros(())


def mapFrom(names: Names, graph: Graph, layout: str = "torch") -> NameMap:
    """Convert an argument `names` to a map: a map, a dict, the name of a ready map, or None for the graph's own paths.

    Raises    ArgumentError for anything else
    """
    if names is None:
        return NameMap(layout=None)
    if isinstance(names, NameMap):
        return names
    if isinstance(names, str):
        return readyMap(names, graph)
    if isinstance(names, Mapping):
        return NameMap(names, layout)
    raise ArgumentError(f"names: wanted a NameMap, a dict or one of {', '.join(map(repr, READY))}, got {names!r:.60}")


def converts(stored: str, wanted: Any) -> bool:
    """True if numbers of a file can become those of a graph: floats floats, whole numbers whole numbers."""
    try:
        kind = np.dtype(stored).kind
    except TypeError:
        kind = "f"  # bfloat16, float8 and blocks are read as float32
    wanted = np.dtype(wanted)
    return isFloating(wanted) if kind in "fV" else kind == wanted.kind or kind in "iu" and wanted.kind in "iu"


def converted(values: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
    """Copy values to another dtype.

    Raises    CheckpointError if the dtype cannot hold them
    """
    with np.errstate(over="ignore", invalid="ignore"):
        copy = np.array(values, dtype, order="C")
    if values.dtype != dtype:
        isFloat = isFloating(dtype)
        lost = np.isinf(copy).sum() > np.isinf(values).sum() if isFloat else not np.array_equal(copy, values)
        if lost:
            raise CheckpointError(f"{quote(name)} holds {values.dtype} numbers that {dtype} cannot hold")
    return copy


def storedFrom(arrays: Mapping[str, AnyArray]) -> Mapping[str, StoredTensor]:
    """Convert arrays by name, of numpy, torch or any library whose arrays numpy can read, to stored tensors.

    Raises    ArgumentError naming a value that is not an array
    """
    if isinstance(arrays, WeightFile):
        return arrays
    return {checkedName(name): storedTensor(name, array) for name, array in arrays.items()}


def checkedName(name: object) -> str:
    """A name, which is a text."""
    if not isinstance(name, str):
        raise ArgumentError(f"wanted names of arrays as texts, got {name!r:.60}")
    return name


def storedTensor(name: str, array: Any) -> StoredTensor:
    """Wrap an array as a stored tensor, which is read on loading."""
    if isinstance(array, StoredTensor):
        return array
    if isinstance(array, Mapping):
        raise ArgumentError(f"{quote(name)} is a dict itself: give that one, arrays[{name!r}]")
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise ArgumentError(f"wanted an array for {quote(name)}, got {type(array).__name__}")
    dtype = str(array.dtype).removeprefix("torch.")

    def fetch() -> np.ndarray:
        if not hasattr(array, "detach"):
            return np.asarray(array)
        plain = array.detach().cpu()
        return np.asarray((plain.float() if dtype in ("bfloat16", "float16") else plain).numpy())

    return StoredTensor(name, tuple(array.shape), dtype, fetch)
