"""A Graph as JSON and back: no pickle, no evaluation, no import by name; classes only through a registry.

    {"version": 1,
     "modules": [{"class": "Linear", "args": [3, 4], "kwargs": {"name": "fc"}, "name": "fc"}, ...],
     "arrays":  {"fc.W": {"kind": "param", "shape": [3, 4], "dtype": "float32"}, ...},
     "ties": {"head.W": "fc.W"}, "absent": ["fc.b"]}

Every module is stored once, after those that it holds; the last one is the graph. Nodes refer to a module by its
index. A leaf is rebuilt from its constructor's arguments, a graph from its nodes.
"""

from __future__ import annotations

from typing import Any

from puregraph.core import initial
from puregraph.core.param import FixedState, Param, State

FORMAT_VERSION = 1
MAX_UNFOLDED_NODES = (
    2_000_000  # most nodes of the unfolded graph: nested graphs that use each other twice grow exponentially
)
KINDS = {"param": Param, "constant": FixedState, "state": State}
STARTS: dict[str, Any] = {
    "Constant": initial.Filled,
    "Normal": initial.Normal,
    "Uniform": initial.Uniform,
    "Orthogonal": initial.OrthogonalStart,
}
STARTNAMES = {start: name for name, start in STARTS.items()}
