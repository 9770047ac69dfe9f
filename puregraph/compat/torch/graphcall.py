"""GraphCall: a graph called on tensors, and CallRecord: one call, until its backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from puregraph.autodiff.forward.forwardmode import deeper, moving, tangentOf
from puregraph.autodiff.functionalcall import backwardOf
from puregraph.compat.torch.autogradfunctions import callFunction
from puregraph.compat.torch.sharing import Sharing
from puregraph.compat.torch.splitpass import SplitPass, run
from puregraph.compat.torch.tensors import asArray, asTensor
from puregraph.compile.cache import Programs
from puregraph.core.applied import checkMode, modified
from puregraph.core.base.dtype import isFloating
from puregraph.core.base.mutex import Mutex
from puregraph.core.errors import DataError, DtypeError, addLocation, plural
from puregraph.core.versioning import COUNTER
from puregraph.graph import Graph
from puregraph.graph.lastpass import MODE

Needs = tuple[bool, ...]


class GraphCall:
    """A graph on tensors: compiled for each mode, shape and choice of gradients, if its own parameters are used.

    Parameters of others, as `torch.func.functional_call` gives them, are computed with eagerly.
    """

    def __init__(self, graph: Graph, sharing: Sharing, isCompiled: bool):
        self.graph, self.sharing, self.isCompiled = graph, sharing, isCompiled
        self.flat, self.names = sharing.flat, graph.arguments
        self.params = [slot.stored for slot in sharing.params]
        self.numbers: dict[int, list[int]] = {}  # of each Param and State, by identity
        for number, module, name in self.flat.params:
            self.numbers.setdefault(id(getattr(module, name)), []).append(number)
        self.draws = [
            (number, getattr(module, name))
            for number, module, name in self.flat.params
            if getattr(module, name) is not None and getattr(module, name).dtype.kind in "iu"
        ]
        self.programs: dict[list[bool], Any] = {}
        self.mutex = Mutex()
        self.mark: Any = None
        self.modes: tuple[bool, ...] = ()

    def __call__(self, tensors: Sequence[Any]) -> Any:
        """The output tensor, or a tuple of several.

        Raises    DataError, ShapeError, DtypeError for inputs that do not fit
        """
        import torch

        params, buffers, isOwn = self.sharing.gather()
        arrays = self.arraysOf(tensors)
        stored = None if isOwn and self.isCompiled else self.storedOf(params, buffers, isOwn)
        if torch.is_grad_enabled():
            for tensor in (*tensors, *params):
                if tensor.requires_grad:
                    function = callFunction().apply
                    return function(self, arrays, stored, len(tensors), *tensors, *params)
        outputs = self.inferred(arrays) if stored is None else self.valuesOf(arrays, stored)[1]
        made = [asTensor(y) for y in separate(outputs, arrays)]
        return made[0] if len(made) == 1 else tuple(made)

    # Inputs -----------------------------------------------------------------------------------------------------------

    def arraysOf(self, tensors: Sequence[Any]) -> list[Any]:
        """The inputs as arrays over the same memory, checked as the graph checks them."""
        if len(tensors) != len(self.names):
            raise DataError(
                f"{self.graph.title()}: wanted {plural(len(self.names), 'tensor')} ({', '.join(self.names)}), "
                f"got {len(tensors)}"
            )
        arrays = list(map(asArray, tensors))
        try:
            self.graph.checkData(arrays, self.flat)
        except DtypeError as error:
            addLocation(error, "of tensors: x.to(torch.float32) converts one, module.to(torch.float64) the graph")
            raise
        return arrays

    def storedOf(self, params: list[Any], buffers: list[Any], isOwn: bool) -> dict[int, Any]:
        """The arrays of parameters and states by number, of tensors that may be others than the graph's."""
        slots = (*self.sharing.params, *self.sharing.buffers)
        stored = {n: getattr(m, name).materialize() for n, m, name in self.flat.params if getattr(m, name) is not None}
        if not isOwn:
            for slot, tensor in zip(slots, (*params, *buffers)):
                stored.update(dict.fromkeys(self.numbers[id(slot.stored)], asArray(tensor)))
        return stored

    # Running ----------------------------------------------------------------------------------------------------------

    def modesNow(self) -> tuple[bool, ...]:
        """The mode of every step."""
        mark = COUNTER.version
        if mark is not self.mark:
            self.modes, self.mark = tuple(map(MODE, self.flat.items)), mark
        return self.modes

    def kept(self, key: Any, make: Any) -> Any:
        """Return the program for a key; make it on first use, in one thread at a time."""
        made = self.programs.get(key)
        if made is None:
            with self.mutex.lock:
                made = self.programs.get(key)
                if made is None:
                    made = self.programs[key] = make()
        return made

    def compileFor(self, shapes: list[tuple[int, ...]]) -> None:
        """Compile forward passes for inputs of these shapes: with gradients of all floats, and without."""
        arrays = [np.zeros(shape, dtype) for shape, dtype in zip(shapes, self.graph.inputTypes(len(shapes)))]
        needs = tuple([isFloating(array.dtype) for array in arrays])
        split = self.split(needs, tuple([param.trainable for param in self.params]))
        if not split.isEmpty:
            split.forwards.get(arrays)
        self.programsOf().get(arrays)

    def programsOf(self) -> Programs:
        """The programs of the graph itself, in the modes of now."""
        return self.kept(self.modesNow(), lambda: Programs(self.graph))

    def inferred(self, arrays: list[Any]) -> list[Any]:
        """The outputs alone."""
        return run(self.programsOf(), self.graph, arrays)

    def split(self, inputs: Needs, params: Needs) -> SplitPass:
        """The compiled passes for a choice of gradients, in the modes of now."""
        chosen = [p for p, isWanted in zip(self.params, params) if isWanted]
        return self.kept((self.modesNow(), inputs, params), lambda: SplitPass(self.graph, inputs, chosen))

    def record(self, *arguments: Any) -> CallRecord:
        """Run forward, and keep what the backward pass takes."""
        return CallRecord(self, *arguments)

    def valuesOf(self, arrays: list[Any], stored: dict[int, Any]) -> tuple[list[Any], list[Any]]:
        """All values of an eager pass, and the outputs."""
        values = self.flat.run(arrays, stored)
        return values, [values[n] for n in self.flat.outputs]


class CallRecord:
    """One call of a graph on tensors: what its backward pass takes, and the checks that it is still right.

    `returned` are indices of outputs whose memory the backward pass reads, `readsInputs` of inputs
    """

    def __init__(
        self, call: GraphCall, arrays: list[Any], stored: dict[int, Any] | None, needs: Needs, params: Sequence[Any]
    ):
        self.call, self.arrays, self.stored, self.params = call, arrays, stored, params
        count = len(arrays)
        self.inputNeeds, self.paramNeeds = needs[:count], needs[count:]
        self.modes = call.modesNow()
        self.draws = {number: state.materialize().copy() for number, state in call.draws}
        self.versions = [tensor._version for tensor in params]
        self.split: SplitPass | None = None
        if stored is None:
            self.split = split = call.split(self.inputNeeds, self.paramNeeds)
        if stored is None and not split.isEmpty:
            outputs, self.kept = split.forward(arrays)
            owners = set(map(ownerOf, self.kept))
            read = {*split.returned, *(i for i, y in enumerate(outputs) if ownerOf(y) in owners)}
        elif stored is None:
            outputs, read = call.inferred(arrays), set()
        else:
            self.values, outputs = call.valuesOf(arrays, stored)
            read = set(range(len(outputs)))
        self.outputs = separate(outputs, arrays)
        self.returned = sorted(read)

    def check(self) -> None:
        """Going backward is right as long as parameters and modes are as they were.

        Raises    PuregraphError naming the parameter that was modified in place, or the module in another mode
        """
        if self.call.modesNow() != self.modes:
            for step, train in zip(self.call.flat.items, self.modes):
                checkMode(step.module, train, step.path)
        versions = [tensor._version for tensor in self.params]
        if versions != self.versions:
            read = None if self.split is None else list(map(id, self.split.read))
            for slot, before, now in zip(self.call.sharing.params, self.versions, versions):
                if before != now and (read is None or id(slot.stored) in read):
                    raise modified(slot.path.rpartition(".")[0], "", slot.path.rpartition(".")[2])

    def gradients(self, grads: Sequence[Any]) -> list[Any]:
        """The gradients of all inputs, then of all parameters, as arrays; None where there is none."""
        self.check()
        if all(g is None for g in grads) or self.split is not None and self.split.isEmpty:
            return [None] * (len(self.inputNeeds) + len(self.paramNeeds))
        chosen = [p for p, isWanted in zip(self.call.params, self.paramNeeds) if isWanted]
        if self.split is not None:
            inputs, params = self.split.backward(self.arrays, self.outputs, self.kept, grads)
        else:
            back = backwardOf(self.call.graph, self.call.flat, any(self.inputNeeds), frozenset(map(id, chosen)))
            inputs, pairs = back.gradients(list(grads), self.values, shows=False)
            byId = {id(p): g for p, g in pairs}
            params = [byId.get(id(p)) for p in chosen]
            inputs = [g if isWanted else None for g, isWanted in zip(inputs, self.inputNeeds)]
        left = iter(params)
        results = [*inputs, *[next(left) if isWanted else None for isWanted in self.paramNeeds]]
        return separate(results, [*self.arrays, *grads])

    def secondGradients(self, grads: Sequence[Any], vectors: Sequence[Any]) -> list[Any]:
        """The gradients of <v, gradient>, of the inputs, the parameters and the output gradients: forward over reverse.

        Source    Pearlmutter 1994, Fast Exact Multiplication by the Hessian, Neural Computation 6(1)
        Raises    AutoDiffException for a rule whose tangent is not known
        """
        self.check()
        call, flat, count = self.call, self.call.flat, len(self.arrays)
        chosen = [p for p, isWanted in zip(call.params, self.paramNeeds) if isWanted]
        stored = dict(self.stored) if self.stored is not None else call.storedOf([], [], True)
        isParam = {id(p) for p in call.params}
        states = {n: array.copy() for n, array in stored.items() if n in self.stateNumbers(isParam)}
        stored.update({**states, **{n: array.copy() for n, array in self.draws.items()}})
        directions = {n: v for p, v in zip(call.params, vectors[count:]) for n in call.numbers[id(p)]}
        with deeper() as level:
            duals = [moving(x, v, level) for x, v in zip(self.arrays, vectors)]
            values = flat.run(duals, {n: moving(x, directions.get(n), level) for n, x in stored.items()})
            back = backwardOf(call.graph, flat, True, frozenset(map(id, chosen)))
            inputs, pairs = back.gradients(list(grads), values, shows=False)
            byId = {id(p): tangentOf(g, level) for p, g in pairs}
            ofInputs = [tangentOf(g, level) for g in inputs]
            ofGrads = [None if g is None else tangentOf(values[n], level) for n, g in zip(flat.outputs, grads)]
        ofParams = [byId.get(id(p)) for p in call.params]
        return separate([*ofInputs, *ofParams, *ofGrads], [*self.arrays, *grads, *vectors])

    def stateNumbers(self, isParam: set[int]) -> set[int]:
        """The numbers of all states."""
        return {n for n, module, name in self.call.flat.params if id(getattr(module, name)) not in isParam}


def separate(arrays: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Arrays that share no memory with others, nor with each other: those that would are copied."""
    owners = {ownerOf(x) for x in others}
    made: list[Any] = []
    for y in arrays:
        if y is not None:
            y = np.asarray(y) if isinstance(y, np.generic) else y
            owner = ownerOf(y)
            if owner in owners or isinstance(y, np.ndarray) and not y.flags.writeable:
                y = y.copy()
            owners.add(owner)
        made.append(y)
    return made


def ownerOf(array: Any) -> int:
    """The identity of the array whose memory an array is, or is a view of."""
    base = getattr(array, "base", None)
    while isinstance(base, np.ndarray):
        array, base = base, base.base
    return id(array)
