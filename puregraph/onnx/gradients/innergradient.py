"""InnerGradient: the gradients of a graph that a module holds, as nodes of an inner graph."""

from __future__ import annotations

from typing import Any

from puregraph.autodiff.joint.addbackward import JointGraph, names_of
from puregraph.autodiff.joint.gradientgraph import connected
from puregraph.autodiff.joint.valuenames import _Target
from puregraph.graph import Graph
from puregraph.onnx.onnxwriter import End, ModelWriter, OnnxStep


class Ways:
    """The inputs, by number, and parameters, by id, that the gradients of some outputs of a graph reach."""

    def __init__(self, graph: Graph, outputs: list[int], inputs: list[int], params: list[Any]):
        self.names = names_of(graph)
        flat = self.names.flat
        stored: dict[int, list[int]] = {}
        for number, param in self.names.params.items():
            stored.setdefault(id(param), []).append(number)
        wanted = [flat.inputs[i] for i in inputs]
        by = {id(param): stored[id(param)] for param in params if id(param) in stored}
        ends = [flat.outputs[i] for i in outputs]
        reached, led = connected(flat, ends, [*wanted, *(n for numbers in by.values() for n in numbers)])
        self.outputs = [i for i in outputs if flat.outputs[i] in led]
        self.inputs = [i for i in inputs if flat.inputs[i] in reached]
        self.params = {key: tuple(numbers) for key, numbers in by.items() if not reached.isdisjoint(numbers)}


class InnerGradient:
    """The gradients of a graph's inputs and parameters, from the named gradients of its outputs.

    `ends` are names, dtypes and shapes of the inputs; `seeds` are the output gradients, by position. `writer` holds
    the written nodes, and `step` adds more.
    """

    def __init__(self, step: OnnxStep, graph: Graph, ends: list[End], seeds: dict[int, End], ways: Ways):
        self.step = step.inside(step.writer.blank())
        self.inputs: dict[int, str] = {}
        self.params: dict[int, str] = {}
        self.write(graph, ends, seeds, ways)

    @property
    def writer(self) -> ModelWriter:
        """The writer of the nodes."""
        return self.step.writer

    def write(self, graph: Graph, ends: list[End], seeds: dict[int, End], ways: Ways) -> None:
        """Write the nodes, and note the names of the gradients; write nothing if no gradient reaches anything."""
        if not ways.inputs and not ways.params:
            return
        flat = ways.names.flat
        outputGrads = self.summed({i: seeds[i] for i in ways.outputs}, flat.outputs)
        outputs = [_Target(f"output{i}", (flat.outputs[i],)) for i in outputGrads]
        inputs = [_Target(f"input{i}", (flat.inputs[i],)) for i in ways.inputs]
        params = [_Target(f"param{i}", numbers) for i, numbers in enumerate(ways.params.values())]
        joint = JointGraph(graph, outputs, [*inputs, *params], set(range(flat.count)))
        every = [*ends, *outputGrads.values()]
        names, dtypes, shapes = map(list, zip(*every))
        before = self.writer.nodes
        inside = self.writer.within(joint, names, shapes, dtypes)
        inside.nodes[:0] = before
        self.step = self.step.inside(inside)
        gradNames = [str(inside.values[n]) for n in inside.steps.outputs[len(flat.outputs) :]]
        self.inputs = dict(zip(ways.inputs, gradNames))
        self.params = dict(zip(ways.params, gradNames[len(ways.inputs) :]))

    def summed(self, seeds: dict[int, End], numbers: list[int]) -> dict[int, End]:
        """One gradient per output value: gradients of outputs that are the same value are added."""
        totals: dict[int, tuple[int, End]] = {}
        for i, end in seeds.items():
            if numbers[i] in totals:
                first, other = totals[numbers[i]]
                totals[numbers[i]] = first, end._replace(name=self.step.op("Add", other.name, end.name))
            else:
                totals[numbers[i]] = i, end
        return dict(totals.values())
