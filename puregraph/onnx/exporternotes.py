"""ExporterNotes: finds initializers that are not trained, and equal weights that the exporter merged."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from puregraph.onnx.onnxvalue import OnnxValue
from puregraph.onnx.protowalk import layerOf

MASK_SCORE = -1e30  # an array with a smaller element is a mask
ROLE = "pkg.torch.export.graph_signature.InputSpec.kind"
SOURCES = "pkg.onnxscript.optimizer."  # prefix of the note that lists what an array was computed from
COMPUTED = "onnx::"  # prefix of the names of arrays that the older exporter computed
NUMBERED = re.compile(r"val_\d+")


class ExporterNotes:
    """Notes of the exporter about initializers: their role in the network, or the values they were computed from.

    Exporters merge equal weights. PyTorch's older exporter leaves an Identity for each merged weight; puregraph merges
    none. For other exporters, a weight of equal elements, such as initial zeros and ones, is taken to be merged.

    `aliases`   further names of matrices that PyTorch's older exporter transposed: one weight that is used twice
    """

    def __init__(self, model: Any):
        self.isTorch = model.producer_name == "pytorch"
        infos = model.graph.value_info if self.isTorch else ()
        isOlder = self.isTorch and not any(len(node.metadata_props) for node in model.graph.node)
        self.isMerging = not isOlder and model.producer_name != "puregraph"
        ranks = {tensor.name: len(tensor.dims) for tensor in model.graph.initializer} if isOlder else {}
        same = [node for node in model.graph.node if node.op_type == "Identity" and ranks.get(node.input[0], 0) > 0]
        again = [node for node in same if node.output[0].startswith(COMPUTED) and ranks[node.input[0]] > 1]
        self.aliases = {node.output[0]: node.input[0] for node in again}
        self.copies = {node.output[0] for node in same} - self.aliases.keys()
        self.notes = {info.name: {entry.key: entry.value for entry in info.metadata_props} for info in infos}

    def isCopy(self, node: Any) -> bool:
        """True if a node stands for a weight that the exporter merged with an equal one."""
        return node.op_type == "Identity" and node.output[0] in self.copies

    def isMerged(self, array: np.ndarray) -> bool:
        """True if a weight that several layers read may have been several equal weights before export."""
        return self.isMerging and array.size > 0 and bool((array == array.flat[0]).all())

    def isConstant(self, name: str, array: np.ndarray) -> bool:
        """True if an array is not trained: a buffer, or a number, mask or state that the exporter computed.

        If the array was computed from a layer's parameter, a source has a dot in its name, as in `fc.weight`. A source
        without a dot may be a parameter or a value; a filled array is usually a value.
        """
        if not self.isTorch or array.dtype.kind != "f":
            return False
        note = self.notes.get(name, {})
        if ROLE in note:
            return note[ROLE] != "PARAMETER"
        isMask = bool((array < MASK_SCORE).any())
        computed = next((text for key, text in note.items() if key.startswith(SOURCES)), None)
        if computed is None:
            return bool(NUMBERED.fullmatch(name)) and (array.size == 1 or isMask)
        sources = re.findall(r"'([^']*)'", computed)
        isFull = bool((array == array.flat[0]).all()) if array.size else True
        isOwn = isFull or all(map(NUMBERED.fullmatch, sources))
        return isMask or isOwn and not any("." in source for source in sources)


class MergedWeights:
    """Finds the shared arrays of a model, and copies merged ones."""

    def __init__(self, notes: ExporterNotes):
        self.notes = notes
        self.copies: dict[Any, OnnxValue] = {}

    def weight(self, name: str, array: np.ndarray, isWeight: bool, readers: dict[str, list[Any]]) -> OnnxValue:
        """The value of an array of the model, marked as shared or merged according to its readers."""
        value = OnnxValue.of(name, array, isWeight)
        share(value, readers.get(name, []))
        if value.isShared and self.notes.isMerged(array):
            value.isMerged, value.isShared, value.isSplit = True, False, False
        return value

    def withCopies(self, proto: Any, inputs: list[Any], path: str, builder: Any) -> list[Any]:
        """The inputs of a node, with each merged weight replaced by this layer's copy. Nodes belong to one layer if
        they share another weight, or read outputs of the same module."""
        if not any(v is not None and v.isMerged for v in inputs):
            return inputs
        layer = layerOf(proto) if any(v is not None and v.isShared for v in inputs[1:]) else None
        layer = layer or next((m for m in map(builder.tiedMaker, inputs) if m is not None), None)
        result = list(inputs)
        for i, value in enumerate(inputs):
            if value is not None and value.isMerged:
                copy = OnnxValue.of(value.name, value.array, value.isWeight)
                copy.isShared = layer is not None
                result[i] = self.copies.setdefault((value.name, i, layer or path), copy)
        return result


def share(value: OnnxValue, readers: Sequence[Any]) -> None:
    """Mark a weight, or a value computed from one, as shared if it has several readers."""
    if value.isWeight and not value.isMerged and len(readers) > 1:
        value.isShared = True
        value.isSplit = value.isSplit or None in readers or len(set(readers)) > 1
