"""ExporterNotes: finds initializers that are not trained, and equal weights that the exporter merged."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from puregraph.onnx.onnxvalue import OnnxValue
from puregraph.onnx.protowalk import layerOf

HIDDEN = -1e30  # elements below are of masks
ROLE = "pkg.torch.export.graph_signature.InputSpec.kind"
SOURCES = "pkg.onnxscript.optimizer."  # prefix of the name of the note about sources
COMPUTED = "onnx::"  # prefix of arrays that the older exporter computed
NUMBERED = re.compile(r"val_\d+")


class ExporterNotes:
    """Notes about initializers: the role of each in the network, or the values it was computed from.

    Exporters merge weights that are equal. PyTorch's older one leaves an Identity with the name of each, and puregraph
    merges none; of others it is not known, and equal are above all the zeros and ones that layers begin with.

    `aliases`   further names of matrices that PyTorch's older exporter transposed: they were one weight, used twice
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
        """True if a node stands for a weight that was equal to another one."""
        return node.op_type == "Identity" and node.output[0] in self.copies

    def isMerged(self, array: np.ndarray) -> bool:
        """True if a weight that several layers read may be several equal weights that the exporter merged."""
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
        isMask = bool((array < HIDDEN).any())
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
        """An array of the model, and who shares it."""
        value = OnnxValue.of(name, array, isWeight)
        share(value, readers.get(name, []))
        if value.isShared and self.notes.isMerged(array):
            value.isMerged, value.isShared, value.isSplit = True, False, False
        return value

    def withCopies(self, proto: Any, inputs: list[Any], path: str, builder: Any) -> list[Any]:
        """The inputs of a node, with a copy of each merged weight for each layer. A layer may be at several nodes that
        share another weight, or whose inputs are made by one module."""
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


def share(value: OnnxValue, readers: list[Any]) -> None:
    """Note that several nodes read a weight, or one that follows from it."""
    if value.isWeight and not value.isMerged and len(readers) > 1:
        value.isShared = True
        value.isSplit = value.isSplit or None in readers or len(set(readers)) > 1
