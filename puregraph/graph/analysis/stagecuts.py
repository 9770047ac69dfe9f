"""Stage cuts: cut a graph into stages of about equal load, with few bytes between them."""

from __future__ import annotations

import numpy as np

from puregraph.core.errors import GraphError
from puregraph.core.param import State
from puregraph.core.shape import symbols, valueOf
from puregraph.graph.analysis.footprint import Footprint
from puregraph.graph.graphsegment import Crossings
from puregraph.graph.lookup import few

LOAD_TOLERANCE = 1.05  # the largest load accepted to send fewer bytes, relative to the smallest possible
EVEN_LOAD_WEIGHT = 1e-6  # weight of an even load, relative to the most bytes over a cut: it only breaks ties


class StageCuts:
    """The possible cuts of a graph, one before each step, and the cost of its steps.

    `flops`, `nbytes`  by step: operations; bytes of its outputs, and of parameters at their first use
    `crossing`         by cut, the bytes that cross it
    `refused`          by impossible cut, the reason

    The load of a stage is the mean of its share of all operations and its share of all bytes, including the bytes that
    cross its first cut.
    """

    def __init__(self, footprint: Footprint, crossings: Crossings):
        self.footprint, self.crossings, steps = footprint, crossings, footprint.steps
        self.flops = np.array([float(line.flops) for line in footprint.lines])
        held = {id(p): p.nbytes for step in steps.items for p in step.module.params.values()}
        kept = [[held.pop(id(p), 0) for p in step.module.params.values()] for step in steps.items]
        self.nbytes = np.array([float(sum(sizes) + line.nbytes) for sizes, line in zip(kept, footprint.lines)])
        count = len(steps.items)
        self.crossing = np.zeros(count + 1)
        for number, readers in crossings.readers.items():
            made = crossings.made.get(number, count)
            if made >= 0 or crossings.isCarried:
                self.crossing[made + 1 : readers[-1][0] + 1] += float(footprint.sizes.get(number, 0))
        self.refused = dict[int, str]()
        self.keepTogether()

    def keepTogether(self) -> None:
        """Refuse cuts that would change results, or that cannot run."""
        steps, footprint = self.footprint.steps, self.footprint
        uses: dict[int, list[int]] = {}
        for index, step in enumerate(steps.items):
            for number in step.stored:
                uses.setdefault(number, []).append(index)
        params: dict[int, list[int]] = {}
        for number, module, name in steps.params:
            stored = getattr(module, name)
            if isinstance(stored, State):
                self.refuse(uses[number][0], uses[number][-1], f"'{steps.names[number]}', a state, is on both sides")
            elif stored is not None:
                params.setdefault(id(stored), []).append(number)
        for numbers in params.values():
            order = [index for number in numbers for index in uses[number]]
            if len(order) > 2:  # of three gradients, only the last one of the sum may be in another stage
                last = order[-1] if order[-1] == max(order) else min(order)
                others = [index for index in order if index != last] or order
                name = steps.names[numbers[0]]
                self.refuse(min(others), max(others), f"'{name}' has several readers on both sides")
        for number, readers in self.crossings.readers.items():
            shape = footprint.shapes.get(number)
            made = self.crossings.made.get(number, -1)
            isKnown = shape is not None and valueOf(shape) is not None
            if isKnown or shape is None or symbols(shape):
                self.refuse(made, readers[-1][0], f"'{steps.names[number]}' has a size that depends on the data")

    def refuse(self, first: int, last: int, why: str) -> None:
        """Refuse all cuts after step `first` up to the one before `last`."""
        for cut in range(max(first + 1, 1), min(last, len(self.footprint.steps.items) - 1) + 1):
            self.refused.setdefault(cut, why)

    def best(self, count: int, last: int | None = None) -> list[int]:
        """Return the first steps of the stages, and the end; no stage begins after step `last`.

        The largest load is within five percent of the smallest possible; among such cuts, the fewest bytes cross.

        Raises    GraphError if there are not enough cuts
        """
        end = len(self.footprint.steps.items)
        free = [c for c in range(1, end if last is None else last + 1) if c not in self.refused]
        if len(free) < count - 1:
            why = f": {few(list(dict.fromkeys(self.refused.values())))}" if self.refused else ""
            title = self.footprint.graph.title()
            raise GraphError(f"stages: {title} can be cut in {len(free) + 1} at most, wanted {count}{why}")
        bounds = np.array([0, *free, end])
        load = self.loads(bounds)
        least = np.full(len(bounds), np.inf)
        least[0] = 0.0
        for _ in range(count):
            least = (np.maximum(least[:, None], load)).min(0)
        most = least[-1] * LOAD_TOLERANCE
        sent, back = np.full(len(bounds), np.inf), []
        sent[0] = 0.0
        for _ in range(count):
            price = self.crossing[bounds][None, :] + EVEN_LOAD_WEIGHT * max(self.crossing.max(), 1.0) * load**2
            cost = np.where(load <= most, sent[:, None] + price, np.inf)
            back.append(cost.argmin(0))
            sent = cost.min(0)
        chosen = [len(bounds) - 1]
        for choice in reversed(back):
            chosen.append(int(choice[chosen[-1]]))
        return [int(bounds[i]) for i in reversed(chosen)]

    def loads(self, bounds: np.ndarray) -> np.ndarray:
        """The load of a stage between each pair of cuts; inf if the first is not before the second."""

        def shares(cost: np.ndarray, before: np.ndarray) -> np.ndarray:
            ends = np.concatenate([[0.0], np.cumsum(cost)])[bounds]
            return (ends[None, :] - ends[:, None] + before[:, None]) / max(ends[-1], 1.0)

        entering = np.where(bounds > 0, self.crossing[bounds], 0.0)
        mean = (shares(self.flops, np.zeros(len(bounds))) + shares(self.nbytes, entering)) / 2
        return np.where(bounds[None, :] > bounds[:, None], mean, np.inf)
