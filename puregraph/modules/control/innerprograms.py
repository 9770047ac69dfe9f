"""_InnerPrograms: the compiled passes of graphs inside a module, which compiled steps run in place of their nodes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from puregraph.autodiff.functionalcall import backwardOf
from puregraph.core.late import Late
from puregraph.core.param import FixedState, Param, State
from puregraph.graph import Graph
from puregraph.graph.graphholder import GraphHolder
from puregraph.ops.kernel import allowed

MAX_PASSES = 16  # combinations of graph, shapes and dtypes whose passes with gradients are compiled


class _CompiledPass:
    """A pass of a graph by programs, with the values that the gradients of its inputs and of some parameters need.

    `wanted` are the ids of these parameters.
    """

    def __init__(self, compiled: Any, inputs: list[Any], wanted: frozenset[int]):
        self.compiled, self.wanted = compiled, wanted
        self.values, self.sizes = compiled.forwardPass(inputs)

    @property
    def outputs(self) -> list[Any]:
        """The outputs of the graph."""
        return [self.values[n] for n in self.compiled.steps.outputs]

    def gradients(self, grads: list[Any]) -> tuple[list[Any], dict[int, Any]]:
        """Gradients of the inputs, and of the wanted parameters by id, from the gradients of the outputs."""
        inputs, paramGrads = self.compiled.gradients(list(grads), self.values, self.sizes)
        return inputs, {id(p): g for p, g in paramGrads if g is not None}


class _InnerPrograms:
    """The programs of the graphs that a module holds.

    A compiled step calls the rules of the module as Python. They run the graphs as programs: `outputs` in one program,
    which keeps nothing for gradients, `passed` in programs forward and back. Both return None where nodes have to run:
    in an eager pass, if a rule in the graphs writes to a state, or for arrays that are not those of the parameters.
    """

    programsOf: Any = Late("puregraph.compile.cache", "Programs")
    passesOf: Any = Late("puregraph.compile.partitioned", "PartitionedGraph")
    requestOf: Any = Late("puregraph.compile.trace.steprequest", "StepRequest")

    def __init__(self) -> None:
        self.byGraph: dict[int, Any] = {}
        self.passes: dict[Any, Any] = {}
        self.key: Any = None
        self.stored: list[Any] = []

    def __reduce__(self) -> Any:
        return _InnerPrograms, ()

    def canRun(self, holder: GraphHolder, arrays: Any) -> bool:
        """True if programs compute what nodes with these arrays of parameters and states compute."""
        if not allowed.programs:
            return False
        locations = holder.locations
        if self.key is not locations:
            self.key, self.stored = locations, holder.ruleArrays
            self.passes = {}
        isWritten = any(isinstance(s, State) and not isinstance(s, FixedState) for s in self.stored)
        pairs = zip(arrays, self.stored, strict=True)
        return not isWritten and all(a is s.array or isinstance(s, FixedState) for a, s in pairs)

    def outputs(self, holder: GraphHolder, graph: Graph, inputs: Any, arrays: Any) -> list[Any] | None:
        """The outputs of a graph."""
        if not self.canRun(holder, arrays):
            return None
        programs = self.byGraph.get(id(graph))
        if programs is None:
            programs = self.byGraph[id(graph)] = type(self).programsOf(graph)
        inputs = list(map(np.asarray, inputs))
        program = programs.get(inputs)
        if program is None:
            return None
        result = program.run(*inputs)
        return result if isinstance(result, list) else [result]

    def passed(
        self, holder: GraphHolder, graph: Graph, inputs: Any, arrays: Any, wanted: frozenset[int] | None = None
    ) -> _CompiledPass | None:
        """A pass of a graph, with gradients of its inputs and of parameters, by default of all that are trainable."""
        if not self.canRun(holder, arrays):
            return None
        inputs = list(map(np.asarray, inputs))
        chosen = wanted
        if chosen is None:
            chosen = frozenset([id(s) for s in self.stored if isinstance(s, Param) and s.trainable])
        key = id(graph), chosen, *((x.shape, x.dtype) for x in inputs)
        compiled = self.passes.get(key)
        if compiled is None or compiled.steps is not graph.steps():
            if len(self.passes) >= MAX_PASSES and key not in self.passes:
                return None
            request = type(self).requestOf(grads=(True,) * len(graph.outputs), updGrad=True)
            back = partial(backwardOf, graph, graph.steps(), True, chosen)
            shapes, dtypes = [x.shape for x in inputs], [x.dtype for x in inputs]
            compiled = self.passes[key] = type(self).passesOf(graph, shapes, dtypes, request, backOf=back)
        return _CompiledPass(compiled, inputs, chosen)
