"""OpenTrial: check nodes for any size against nodes for one size, by running both."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.core.errors import PuregraphError
from puregraph.core.shape import bind
from puregraph.onnx.onnxwriter import End, OnnxStep
from puregraph.onnx.protowalk import needed, readsOf
from puregraph.onnx.reader import fromOnnx

RELATIVE_TOLERANCE = 1e-4


class OpenTrial:
    """A trial run of a step's nodes on random data, with `sizes` for the symbols."""

    def __init__(self, step: OnnxStep, nodes: list[Any], sizes: dict[str, int]):
        self.step, self.nodes, self.sizes = step, nodes, sizes
        self.data = self.trialData()

    def trialData(self) -> dict[str, Any]:
        """Data for all names that nodes may read: inputs of the step and the model, weights, known lengths."""
        step, writer, rng = self.step, self.step.writer, np.random.default_rng(1)
        ends = [
            *zip(step.inputs, step.shapes, step.indtypes),
            *zip((writer.values[n] for n in writer.steps.inputs), writer.shapes, writer.intypes),
        ]
        data = dict(writer.weights.values())
        for name, shape, dtype in ends:
            if name is not None and name not in data and dtype is not None:
                sizes = bind(shape, self.sizes, complete=True)
                values = rng.random(sizes) + 0.5 if dtype.kind == "f" else np.zeros(sizes)
                data[name] = values.astype(dtype)
        for dim, name in writer.lengths.items():
            data[name] = np.array(bind((dim,), self.sizes), np.int64)
        return data

    def isLike(self, other: OnnxStep) -> bool:
        """True if another writer's nodes give the same outputs; sizes that they reject cannot occur in the model."""
        nodes = other.writer.nodes
        outputs = [name for name in self.step.outputs if any(name in node.output for node in nodes)]
        try:
            wanted = self.outputs(nodes, outputs)
        except PuregraphError:
            return True
        actual = self.outputs(self.nodes, outputs)
        return all(
            x.shape == y.shape and np.allclose(x, y, RELATIVE_TOLERANCE, RELATIVE_TOLERANCE, equal_nan=True)
            for x, y in zip(actual, wanted, strict=True)
        )

    def outputs(self, nodes: list[Any], names: list[str]) -> list[Any]:
        """Run nodes and return these outputs."""
        from onnx import helper

        nodes = needed(nodes, names)
        made = {name for node in nodes for name in node.output}
        read = dict.fromkeys(name for node in nodes for name in readsOf(node) if name not in made)
        inputs = [End(name, self.data[name].dtype, self.data[name].shape).info() for name in read]
        outputs = [helper.make_empty_tensor_value_info(name) for name in names]
        graph = helper.make_graph(nodes, "trial", inputs, outputs)
        domains = [helper.make_opsetid("", self.step.opset)]
        model = helper.make_model(graph, opset_imports=domains, ir_version=helper.find_min_ir_version_for(domains))
        integers = {name: self.data[name] for name in read if self.data[name].dtype.kind != "f"}
        floats = [self.data[name] for name in read if name not in integers]
        results = fromOnnx(model, values=integers, patterns=False)(floats)
        return list(results) if isinstance(results, (list, tuple)) else [results]
