"""OnnxBackend: the backend for the test cases of `onnx.backend.test`."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.onnx.reader import fromOnnx


class GraphRep:
    """A model as a graph that runs."""

    def __init__(self, graph: Any, sequences: list[bool]):
        self.graph, self.sequences = graph, sequences

    def run(self, inputs: Any, **options: Any) -> tuple:
        """Run the graph; returns the outputs in order."""
        arrays = list(inputs.values()) if isinstance(inputs, dict) else list(inputs)
        with np.errstate(all="ignore"):
            outputs = self.graph(*arrays)
        values = list(outputs) if isinstance(outputs, list) else [outputs]
        if sum(self.sequences) == 1:  # the only sequence gets all other outputs
            first, count = self.sequences.index(True), len(values) - len(self.sequences) + 1
            values[first : first + count] = [values[first : first + count]]
        return tuple(values)


def onnxBackend() -> Any:
    """The backend class for `onnx.backend.test.BackendTest`, which runs models as graphs on a CPU."""
    from onnx.backend.base import Backend

    class OnnxBackend(Backend):
        """Runs models as graphs."""

        @classmethod
        def prepare(cls, model: Any, device: str = "CPU", **options: Any) -> Any:
            sequences = [info.type.WhichOneof("value") == "sequence_type" for info in model.graph.output]
            return GraphRep(fromOnnx(model), sequences)

        @classmethod
        def supports_device(cls, device: str) -> bool:
            return device == "CPU"

    return OnnxBackend
