"""GraphCall: a graph called on tensors, and CallRecord: one call, until its backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.autodiff.forward.forwardmode import deeper, moving, tangentOf
from puregraph.autodiff.functionalcall import backwardOf
from puregraph.compat.torch.autogradfunctions import callFunction, tensorsOf
from puregraph.compat.torch.sharing import Sharing
from puregraph.compat.torch.splitpass import CompiledPass, SplitPass
from puregraph.compat.torch.tensors import asArray
from puregraph.core.applied import checkMode, modified
from puregraph.core.base.dtype import isFloating
from puregraph.core.base.mutex import Mutex
from puregraph.core.errors import DataError, DtypeError, addLocation, plural
from puregraph.core.versioning import COUNTER
from puregraph.graph import Graph
from puregraph.graph.lastpass import MODE

if TYPE_CHECKING:
    import torch

Needs = tuple[bool, ...]


class GraphCall:
    """A graph on tensors: compiled for each mode, shape and choice of gradients, if its own parameters are used.

    Calls with replaced parameters, as by `torch.func.functional_call`, run eagerly.
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

    def __call__(self, tensors: Sequence[Any]) -> torch.Tensor | tuple[torch.Tensor, ...]:
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
                    return callFunction().apply((self, arrays, stored), *tensors, *params)
        isSeparate = False
        if stored is None:
            outputs, isSeparate = self.outputsAlone()(arrays)
        else:
            outputs = self.valuesOf(arrays, stored)[1]
        made = tensorsOf(outputs if isSeparate else separate(outputs, arrays))
        return made[0] if len(made) == 1 else made

    # Inputs -----------------------------------------------------------------------------------------------------------

    def arraysOf(self, tensors: Sequence[Any]) -> list[Any]:
        """The inputs as arrays over the same memory."""
        if len(tensors) != len(self.names):
            raise DataError(
                f"{self.graph.title()}: wanted {plural(len(self.names), 'tensor')} ({', '.join(self.names)}), "
                f"got {len(tensors)}"
            )
        return list(map(asArray, tensors))

    def check(self, arrays: list[Any]) -> None:
        """Check inputs as the graph checks them; those of a program's shapes and dtypes need none.

        Raises    ShapeError, DtypeError for inputs that do not fit
        """
        try:
            self.graph.checkData(arrays, self.flat)
        except DtypeError as error:
            addLocation(error, "of tensors: x.to(torch.float32) converts one, module.to(torch.float64) the graph")
            raise

    def storedOf(self, params: Sequence[object], buffers: Sequence[object], isOwn: bool) -> dict[int, Any]:
        """Return the arrays of parameters and states by number, from tensors that may replace the graph's own."""
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
        split = self.split((*[isFloating(array.dtype) for array in arrays], *[p.trainable for p in self.params]))
        if not split.isEmpty:
            split.forwardPass.programs.get(arrays)
        self.outputsAlone().programs.get(arrays)

    def outputsAlone(self) -> CompiledPass:
        """Return the forward pass without gradients, in the current modes."""
        return self.kept(self.modesNow(), lambda: CompiledPass(self.graph, self.check))

    def split(self, needs: Needs) -> SplitPass:
        """Return the compiled passes for a choice of gradients, in the current modes."""
        return self.kept((self.modesNow(), needs), lambda: SplitPass(self.graph, needs, self.params, self.check))

    def record(self, *arguments: Any) -> CallRecord:
        """Run forward, and store the inputs of the backward pass."""
        return CallRecord(self, *arguments)

    def valuesOf(self, arrays: list[Any], stored: dict[int, Any]) -> tuple[list[Any], list[Any]]:
        """All values of an eager pass, and the outputs."""
        self.check(arrays)
        values = self.flat.run(arrays, stored)
        return values, [values[n] for n in self.flat.outputs]


class CallRecord:
    """One call of a graph on tensors: the inputs of its backward pass, and the checks that these are still valid.

    `returned` are indices of outputs whose memory the backward pass reads
    """

    def __init__(
        self,
        call: GraphCall,
        arrays: list[Any],
        stored: dict[int, Any] | None,
        needs: Needs,
        params: Sequence[Any],
    ):
        self.call, self.arrays, self.stored, self.params, self.needs = call, arrays, stored, params, needs
        self.modes = call.modesNow()
        self.draws = {number: state.materialize().copy() for number, state in call.draws}
        self.versions = [tensor._version for tensor in params]
        self.split = split = call.split(needs) if stored is None else None
        self.returned: Sequence[int] = ()
        isSeparate = False
        if split is None:
            self.values, outputs = call.valuesOf(arrays, stored or {})
            self.returned = range(len(outputs))
        elif split.isEmpty:
            outputs, isSeparate = call.outputsAlone()(arrays)
        else:
            outputs, self.kept, isSeparate = split.forward(arrays)
            self.returned = split.returned
            if not isSeparate:
                owners = set(map(ownerOf, self.kept))
                self.returned = [i for i, y in enumerate(outputs) if i in self.returned or ownerOf(y) in owners]
        self.outputs = outputs if isSeparate else separate(outputs, arrays)

    def check(self) -> None:
        """Check that parameters and modes are unchanged since the forward pass.

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
        if self.split is not None and self.split.isEmpty or grads[0] is None and all(g is None for g in grads):
            return [None] * len(self.needs)
        if self.split is not None:
            results, isSeparate = self.split.backward(self.arrays, self.outputs, self.kept, grads)
            return results if isSeparate else separate(results, [*self.arrays, *grads])
        count = len(self.arrays)
        chosen = [p for p, isWanted in zip(self.call.params, self.needs[count:]) if isWanted]
        back = backwardOf(self.call.graph, self.call.flat, any(self.needs[:count]), frozenset(map(id, chosen)))
        inputs, pairs = back.gradients(list(grads), self.values, shows=False)
        byId = {id(p): g for p, g in pairs}
        results = [*inputs, *[byId.get(id(p)) for p in self.call.params]]
        results = [g if isWanted else None for g, isWanted in zip(results, self.needs)]
        return separate(results, [*self.arrays, *grads])

    def secondGradients(self, grads: Sequence[Any], vectors: Sequence[object]) -> list[Any]:
        """The gradients of <v, gradient>, of the inputs, the parameters and the output gradients: forward over reverse.

        Source    Pearlmutter 1994, Fast Exact Multiplication by the Hessian, Neural Computation 6(1)
        Raises    AutoDiffException for a rule whose tangent is not known
        """
        self.check()
        call, flat, count = self.call, self.call.flat, len(self.arrays)
        chosen = [p for p, isWanted in zip(call.params, self.needs[count:]) if isWanted]
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
