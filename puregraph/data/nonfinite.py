"""Nonfinite: which arrays of a batch hold NaN or infinity, and what to do about a cost that does."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.core import device
from puregraph.core.base.dtype import isFloating
from puregraph.data.batches import Batch


def named(batch: Batch) -> list[tuple[str, Any]]:
    """Return the arrays of a batch with names for messages: data, target; or data[0], data[1] for several."""
    pairs = []
    for what, arrays in (("data", batch.data), ("target", batch.target)):
        pairs += [(what if len(arrays) == 1 else f"{what}[{i}]", x) for i, x in enumerate(arrays)]
    return pairs


def blamed(batch: Batch | None) -> str:
    """Name the arrays of a batch that are not finite, with the first such sample; empty if all are finite."""
    faulty = []
    for name, x in [] if batch is None else named(batch):
        if isFloating(x.dtype):
            wrong = device.toHost(~np.isfinite(x))
            if wrong.any():
                faulty.append(f"{name} (sample {np.argwhere(wrong)[0][0]})" if wrong.ndim else name)
    if not faulty:
        return ""
    holds = f"hold{'s' * (len(faulty) == 1)} values that are not finite"
    return f"{' and '.join(faulty)} of this batch {holds}; np.argwhere(~np.isfinite(x)) says where"


def remedy(batch: Batch | None) -> str:
    """Suggest a remedy for a cost that is not finite."""
    return blamed(batch) or (
        "lower the learning rate, clip the gradient, or look at the data; "
        "with detect_anomaly(), from puregraph.autodiff, names the node that made it"
    )
