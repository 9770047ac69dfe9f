"""SplitPass: a forward pass that keeps what its gradients read, and a backward pass that reads it, both compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from puregraph.autodiff.joint.addbackward import BackwardPassGraph
from puregraph.autodiff.joint.freeinggraph import FreeingGraph
from puregraph.autodiff.joint.gradientgraph import connected
from puregraph.autodiff.joint.remat import Outline
from puregraph.autodiff.joint.valuenames import _Target
from puregraph.compile.cache import Programs
from puregraph.compile.program import Program
from puregraph.core.accumulate import isArray
from puregraph.core.param import Param
from puregraph.graph import Graph


class KeepingGraph(FreeingGraph):
    """Gives a graph's outputs, then those forward values that its backward pass reads besides inputs and outputs.

    Shapes    as the graph's inputs -> its outputs, then the kept values
    Source    `ForwardPassGraph`
    """

    def __init__(self, backward: BackwardPassGraph, kept: list[int]):
        super().__init__()
        self.forwardGraph, flat = backward.forwardGraph, backward.forwardSteps
        entries, values = self.repeat(flat)
        edges = []
        for n in kept:
            isShape = n not in backward.read
            edges.append((self.grow(Outline(), [values[n]], f"outline:{flat.names[n]}"), 0) if isShape else values[n])
        self.labels = (*self.forwardGraph.outputNames, *[flat.names[n] for n in kept])
        self.link(entries, [*(values[n] for n in flat.outputs), *edges])

    def title(self) -> str:
        return f"forward pass of {self.forwardGraph.title()}"


class SplitPass:
    """Gradients of some inputs and parameters of a graph, in the current modes of its modules.

    `needs`    for each input, then for each of `params`, True if its gradient is wanted
    `check`    checks the inputs of the forward pass
    `read`     the parameters that the backward pass reads
    `returned` indices of the outputs that the backward pass reads, in the caller's memory

    Several forward passes may precede their backward passes: each returns the values that its backward pass needs.
    """

    def __init__(
        self,
        graph: Graph,
        needs: Sequence[bool],
        params: Sequence[Param],
        check: Callable[[list[Any]], None] | None = None,
    ):
        flat = graph.steps()
        chosen = [p for p, isWanted in zip(params, needs[len(flat.inputs) :]) if isWanted]
        numbers = {id(p): tuple(n for n, m, name in flat.params if getattr(m, name) is p) for p in chosen}
        wanted = [n for n, isWanted in zip(flat.inputs, needs) if isWanted]
        reached, _ = connected(flat, flat.outputs, [*wanted, *(n for ns in numbers.values() for n in ns)])
        ins = [_Target(flat.names[n], (n,)) for n in wanted if n in reached]
        ins += [_Target(flat.names[ns[0]], ns) for ns in numbers.values() if not reached.isdisjoint(ns)]
        self.isEmpty = not ins
        if self.isEmpty:
            return
        _, led = connected(flat, [], [n for target in ins for n in target.numbers])
        self.seeds = [
            [i for i, m in enumerate(flat.outputs) if m == n] for n in dict.fromkeys(flat.outputs) if n in led
        ]
        outs = [_Target(graph.outputNames[group[0]], (flat.outputs[group[0]],)) for group in self.seeds]
        self.backwardGraph = back = BackwardPassGraph(graph, outs, ins, set(range(flat.count)))
        self.count = len(flat.outputs)
        kept: list[int] = []
        self.sources: list[tuple[str, int]] = []
        for n in back.numbers:
            if n in flat.inputs:
                self.sources.append(("input", flat.inputs.index(n)))
            elif n in flat.outputs:
                self.sources.append(("output", flat.outputs.index(n)))
            else:
                self.sources.append(("kept", len(kept)))
                kept.append(n)
        self.returned = [i for kind, i in self.sources if kind == "output"]
        self.read = [getattr(*back.params_by_number[n]) for n in back.read if n in back.params_by_number]
        self.forwardGraph = KeepingGraph(back, kept)
        self.forwardPass, self.backwardPass = CompiledPass(self.forwardGraph, check), CompiledPass(back)
        order = {target.numbers: slot for slot, target in enumerate(ins)}
        keys = [*[(n,) for n in flat.inputs], *[numbers.get(id(p), ()) for p in params]]
        self.slots = [order.get(key, -1) for key in keys]  # by input, then by parameter; -1 if not reached

    def forward(self, arrays: list[Any]) -> tuple[list[Any], list[Any], bool]:
        """Return the outputs, the values for `backward`, and True if nothing else shares their memory."""
        values, isSeparate = self.forwardPass(arrays)
        return values[: self.count], values[self.count :], isSeparate

    def backward(
        self, arrays: list[Any], outputs: list[Any], kept: list[Any], grads: Sequence[Any]
    ) -> tuple[list[Any], bool]:
        """Return the gradients of inputs, then of parameters (None if not reached), and True if nothing else shares
        their memory."""
        pools = {"input": arrays, "output": outputs, "kept": kept}
        values = [pools[kind][i] for kind, i in self.sources]
        for group in self.seeds:
            present = [grads[i] for i in group if grads[i] is not None]
            y = outputs[group[0]]
            values.append(sum(present[1:], present[0]) if present else np.zeros_like(y, shape=y.shape))
        results, isSeparate = self.backwardPass(values)
        results = [*results, None]
        return [results[slot] for slot in self.slots], isSeparate


class CompiledPass:
    """A graph that is compiled for each shape and dtype; a call with those of the last call takes the shortest way.

    It runs eagerly for values that are not arrays, and for rare shapes. `check` checks the inputs of other calls.
    """

    def __init__(self, graph: Graph, check: Callable[[list[Any]], None] | None = None):
        self.graph, self.check, self.programs = graph, check, Programs(graph)
        self.last: Program | None = None

    def __call__(self, arrays: list[Any]) -> tuple[list[Any], bool]:
        """Return the outputs, and True if certainly nothing else shares their memory."""
        last = self.last
        result = None if last is None else last.runFast(arrays)
        isSeparate = result is not None
        if result is None:
            if self.check is not None:
                self.check(arrays)
            isPlain = all(map(isArray, arrays))
            self.last = last = self.programs.get(arrays) if isPlain else None
            result = self.graph(*arrays) if last is None else last.run(*arrays)
        return result if isinstance(result, list) else [result], isSeparate
