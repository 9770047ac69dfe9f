"""ExporterNotes: which initializers PyTorch's newer exporter says are no parameters of the network."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

HIDDEN = -1e30  # elements below are of masks
ROLE = "pkg.torch.export.graph_signature.InputSpec.kind"
SOURCES = "pkg.onnxscript.optimizer."  # what the name of the note of sources begins with
NUMBERED = re.compile(r"val_\d+")


class ExporterNotes:
    """What is noted beside initializers: the role of each in the network, or what it was computed from."""

    def __init__(self, model: Any):
        self.isTorch = model.producer_name == "pytorch"
        infos = model.graph.value_info if self.isTorch else ()
        self.notes = {info.name: {each.key: each.value for each in info.metadata_props} for info in infos}

    def isConstant(self, name: str, array: np.ndarray) -> bool:
        """Whether an array is not trained: a buffer, or a number, mask or state that the exporter computed.

        A parameter of a layer among what it was computed from has a dot in its name, `fc.weight`; of a name without one
        it is not known whether it was a parameter or a value, of which a full array is the usual one.
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
        return isMask or isOwn and not any("." in each for each in sources)
