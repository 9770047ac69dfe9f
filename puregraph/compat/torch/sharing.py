"""Sharing: parameters and states of a graph as tensors over the same memory, in a tree of torch modules by path."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

from puregraph.compat.torch.tensors import asArray, asTensor
from puregraph.core.base.dtype import isFloating
from puregraph.core.errors import DeviceError, GraphError
from puregraph.core.param import FixedState, Param
from puregraph.core.versioning import COUNTER, LastUpdate
from puregraph.graph import Graph

NONE: tuple[Any, int] = (None, -1)  # no gradient, at no address


class SharedTensor:
    """A tensor in a module of torch, and the Param or State whose memory it has.

    `made`  a gradient of the backward pass under way and its address, at which torch may leave it
    """

    def __init__(self, path: str, stored: Any, table: dict[str, Any], name: str):
        self.path, self.stored, self.table, self.name = path, stored, table, name
        self.array: Any = None
        self.address = 0
        self.made = NONE

    @property
    def tensor(self) -> Any:
        """The tensor that is there now."""
        return self.table[self.name]

    def join(self) -> None:
        """Let tensor and array share memory again; a replaced array wins over a replaced tensor."""
        tensor, array = self.tensor, self.stored.materialize()
        if array is self.array and tensor.data_ptr() == self.address:
            return
        if array is self.array:  # the tensor was replaced
            array[...] = asArray(tensor)
        self.lend(tensor)

    def lend(self, tensor: Any) -> None:
        """Point a tensor at the array."""
        shared = asTensor(self.stored.data)  # a lease: compiled steps expect it to be written to
        tensor.data = shared
        self.array, self.address = self.stored.array, tensor.data_ptr()


class Sharing:
    """The parameters and states of a graph as tensors; `params` and `buffers` are their slots, in the graph's order.

    Constants (`FixedState`) stay in the graph. An array that several modules share is one tensor, under each name.

    `leavesGrads`  gradients that torch accumulates become the parameters' `grad`
    """

    def __init__(self, graph: Graph, root: Any):
        self.graph, self.flat = graph, graph.steps()
        self.leavesGrads, self.lastUpdate = False, -1
        self.params: list[SharedTensor] = []
        self.buffers: list[SharedTensor] = []
        slots: dict[int, SharedTensor] = {}
        for kind in ("params", "states"):
            for path, stored, _ in graph.stored(kind):
                if not isinstance(stored, FixedState):
                    self.register(root, path, stored, slots)
        self.join()

    def register(self, root: Any, path: str, stored: Any, slots: dict[int, SharedTensor]) -> None:
        """Put a tensor of a Param or State into the module that its path names."""
        import torch

        *parents, name = path.split(".")
        holder = root
        for parent in parents:
            holder = holder._modules.setdefault(parent, torch.nn.Module())  # any name: register_module refuses "type"
        isParam = isinstance(stored, Param)
        table = holder._parameters if isParam else holder._buffers
        known = slots.get(id(stored))
        if known is not None:
            table[name] = known.tensor
            return
        tensor = asTensor(stored.data)
        table[name] = torch.nn.Parameter(tensor, requires_grad=stored.trainable) if isParam else tensor
        slots[id(stored)] = slot = SharedTensor(path, stored, table, name)
        (self.params if isParam else self.buffers).append(slot)
        slot.lend(table[name])

    def join(self) -> None:
        """Have all tensors share the memory of the graph's arrays, after either was replaced.

        Raises    GraphError if the graph was changed; DeviceError for tensors on another device
        """
        self.mark = COUNTER.version  # read first, so that a later change is seen
        if self.graph.steps() is not self.flat:
            raise GraphError(f"{self.graph.title()} was changed since asModule: make the module of torch anew")
        for slot in (*self.params, *self.buffers):
            slot.join()
        slots = (*self.params, *self.buffers)
        self.tables = [(slot.table, slot.name) for slot in slots]
        self.tensors = [slot.tensor for slot in slots]
        self.addresses = [slot.address for slot in slots]

    def follow(self) -> None:
        """Give the graph the dtype that the tensors were converted to, and share memory again."""
        tensors = [slot.tensor for slot in (*self.params, *self.buffers)]
        elsewhere = next((t.device for t in tensors if t.device.type not in ("cpu", "cuda")), None)
        if elsewhere is not None:
            raise DeviceError(
                f"{self.graph.title()}: its parameters are in puregraph's memory, and cannot be on {elsewhere}"
            )
        floats = {asArray(slot.tensor).dtype for slot in self.params if isFloating(slot.stored.dtype)}
        if len(floats) == 1 and (dtype := floats.pop()) != self.graph.dtype:
            kept = [(slot, asArray(slot.tensor).copy()) for slot in (*self.params, *self.buffers)]
            self.graph.calcMode(dtype)
            for slot, values in kept:
                slot.stored.materialize()[...] = values
                slot.lend(slot.tensor)
        self.join()

    def gather(self) -> tuple[list[Any], list[Any], bool]:
        """The tensors of parameters and buffers now, and whether they are the graph's own memory."""
        tensors = [table[name] for table, name in self.tables]
        isSame = all(map(is_, tensors, self.tensors))
        if isSame and (COUNTER.version is not self.mark or [t.data_ptr() for t in tensors] != self.addresses):
            self.join()
        count = len(self.params)
        return tensors[:count], tensors[count:], isSame

    def noteGradients(self, tensors: Sequence[Any], arrays: Sequence[Any]) -> None:
        """Note the parameters' first gradients after an update: tensors over the memory of arrays, left in `grad`."""
        if self.leavesGrads and self.lastUpdate != LastUpdate.version:
            self.lastUpdate = LastUpdate.version
            for slot, tensor, array in zip(self.params, tensors, arrays):
                if tensor is not None and tensor.is_contiguous():
                    slot.made = array, tensor.data_ptr()
