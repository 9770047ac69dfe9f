"""CachedGraph: a language model that computes new tokens alone and keeps the keys and values of those before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core import device
from puregraph.core.initial import SEED
from puregraph.data.batches import Batch
from puregraph.graph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules.attention import Attention
from puregraph.modules.embedding import Embedder, Position
from puregraph.modules.operators import Add
from puregraph.modules.rotary import Rotary
from puregraph.train.decoding.rowcache import RowCache
from puregraph.train.modes import inMode
from puregraph.train.objective import Objective

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray

ROUNDING_TOLERANCE = 1e-4  # relative to the largest score: smaller differences are rounding errors
PADDING_MULTIPLE = 16  # prompts are padded to a multiple of this, so that few lengths are compiled
TRIAL = (5, 3)  # tokens of the two passes that check a graph


class CachedGraph:
    """The graph of a causal language model with a `RowCache` for the keys and the values of each attention.

    `graph` takes ids (n, t), the number of earlier tokens of each text (n,), and, where the network has a table of
    positions, those of the ids (n, t). It has the modules, and so the weights, of the network; the caches are its own.
    """

    def __init__(self, net: Graph, samples: int, length: int, compile: bool = True):
        self.net, self.samples, self.length = net, samples, length
        self.caches: list[RowCache] = []
        self.positions: Any = None
        self.seen: list[list[int]] = []  # the tokens whose keys and values are in the caches
        with SEED.undisturbed():
            self.offset = Input(name="token offset").node()
            self.graph = self.rebuilt()
        self.objective = Objective(self.graph, compile=compile)

    def rebuilt(self) -> Graph:
        """Return the network with caches and positions."""
        steps = self.net.steps(1)
        ids = Input(name="token ids").node()
        rows = {id(row.step): row for row in self.net.infer((self.samples, min(2, self.length))).rows}
        values: dict[int, Any] = {steps.inputs[0]: ids}
        for step in steps.items:
            parents = [values.get(n) for n in step.args[: step.inputs]]
            node = self.nodeFor(step.module, parents, rows[id(step)], step.path.replace(".", " "))
            several = len(step.visible) > 1
            values.update({n: (node, i) if several else node for i, n in enumerate(step.visible)})
        inputs = [ids, self.offset, *([] if self.positions is None else [self.positions])]
        return Graph(inputs, [values[n] for n in steps.outputs], name=self.net.name)

    def nodeFor(self, module: Any, parents: list[Any], row: Any, path: str) -> Any:
        """Return the node that does for new tokens what a module at this path does for all."""
        if isinstance(module, Position):
            return self.positionsAdded(module, parents[0], path)
        if isinstance(module, Rotary):
            return module.node(parents[0], offset=self.offset, name=path)
        if isinstance(module, Attention) and module.causal and all(p is None for p in parents[3:]):
            caches = ((parents[i], row.inshapes[i], row.dtypes[0], f"{path} {'qkv'[i]}") for i in (1, 2))
            k, v = (self.kept(*each) for each in caches)
            attention = Attention(True, module.scale, window=module.window, cap=module.cap, lse=module.hasLse)
            attention.sinks = module.sinks
            return attention.node(parents[0], k, v, offset=self.offset, name=path)
        count = next((i for i, p in enumerate(parents) if p is None), len(parents))
        rest = zip(module.arguments[count:], parents[count:])
        return module.node(*parents[:count], name=path, **{name: p for name, p in rest if p is not None})

    def positionsAdded(self, module: Position, x: Any, path: str) -> Any:
        """Return x plus the rows of the table at the positions."""
        if self.positions is None:
            self.positions = Input(name="token positions").node()
        table = Embedder(*module.W.shape)
        table.W = module.W
        return Add().node(x, table.node(self.positions, name=f"{path} rows"), name=path)

    def kept(self, rows: Any, shape: Any, dtype: Any, name: str) -> Any:
        """Return a cache to which these rows are written."""
        self.caches.append(RowCache(self.samples, shape[1], self.length, shape[3], dtype or "float32"))
        return self.caches[-1].node(rows, self.offset, name=name)

    # Running ----------------------------------------------------------------------------------------------------------

    def run(self, ids: np.ndarray, offset: np.ndarray, isCompiled: bool = True) -> AnyArray:
        """Compute the scores (n, t, vocabulary) of ids (n, t) behind `offset` tokens; the result is on the device."""
        data = [ids, offset]
        if self.positions is not None:
            data.append(np.minimum(offset[:, None] + np.arange(ids.shape[1]), self.length - 1))
        return self.objective.run(self.objective.prepare(Batch(data, [], len(ids))), isCompiled)[1][0]

    def scores(self, texts: list[list[int]]) -> np.ndarray:
        """Return the scores of each text's next token (n, vocabulary), on the host, in float64.

        If each text is one token longer than before, or as long, only the last tokens are computed.
        """
        ends = np.array([len(text) - 1 for text in texts])
        isNext = len(self.seen) == len(texts) and all(map(isContinued, texts, self.seen))
        self.seen = []  # unknown while a pass runs
        if isNext:
            last = self.run(np.array([text[-1:] for text in texts]), ends)[:, 0]
        else:
            width = min(-(-int(ends.max() + 1) // PADDING_MULTIPLE) * PADDING_MULTIPLE, self.length)
            ids = np.zeros((len(texts), width), np.int64)
            for row, text in enumerate(texts):
                ids[row, : len(text)] = text
            last = self.run(ids, np.zeros(len(texts), np.int64))[np.arange(len(texts)), ends]
        self.seen = [list(text) for text in texts]
        return device.toHost(last).astype(np.float64)

    def reorder(self, parents: list[int]) -> None:
        """Give each row the keys and values of another: row i those of row parents[i]."""
        if parents != list(range(len(parents))):
            end = max(map(len, self.seen))
            for cache in self.caches:
                array = cache.cache.materialize()
                array[:, :, :end] = array[parents, :, :end]
            self.seen = [list(self.seen[parent]) for parent in parents]

    def isExact(self, vocabulary: int) -> bool:
        """Run some tokens at once and in two passes: True if the scores agree.

        A module that mixes tokens in another way, such as a convolution, or sees those behind, gives other scores.
        """
        count = min(sum(TRIAL), self.length)
        ids = np.tile(np.arange(1, count + 1) * 7 % vocabulary, (self.samples, 1))
        cut = min(TRIAL[0], count - 1)
        with inMode(False, self.net, self.graph):
            y = self.net(device.toDevice(ids))
            spans = [(low, high) for low, high in ((0, cut), (cut, count)) if low < high]
            parts = [self.run(ids[:, low:high], np.full(self.samples, low), False) for low, high in spans]
        y, z = (device.toHost(x).astype(np.float64) for x in (y, np.concatenate(parts, axis=1)))
        return bool(np.abs(y - z).max(initial=0) <= ROUNDING_TOLERANCE * np.abs(y).max(initial=0))


def isContinued(text: list[int], before: list[int]) -> bool:
    """True if a text is an earlier one, or has one token more."""
    return len(text) - len(before) in (0, 1) and text[: len(before)] == before
