"""SampleKinds: classify the values of a graph as per-sample, common to all samples, or computed from all jointly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.autodiff.functionalcall import Pure
from puregraph.core.accumulate import shapeOf
from puregraph.core.base.signals import isAsynchronous
from puregraph.core.dim import Dim
from puregraph.core.errors import AutoDiffException, show
from puregraph.core.param import Param
from puregraph.graph.backward import inputNames
from puregraph.graph.module import isFloat
from puregraph.graph.steps import GraphStep

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray
    from puregraph.core.shape import Shape

N = Dim("N")
EACH, COMMON, JOINT = "each", "common", "joint"


class SampleKinds:
    """The values of one pass over a batch, classified.

    A value holds one entry per sample (`EACH`), is the same for all samples (`COMMON`: parameters and values computed
    from them), or is computed from all samples together (`JOINT`: a cost).
    """

    def __init__(self, pure: Pure, xs: list[AnyArray], shared: frozenset[str]):
        self.pure, self.steps = pure, pure.steps
        self.kinds: dict[int, str] = {}
        self.symbols: dict[int, Any] = {}
        self.batched: dict[int, bool] = {}
        self.count = self.enter(xs, shared)
        self.values = pure.run(xs)
        for step in self.steps.items:
            self.classify(step)
        self.wanted = self.requirements()

    def enter(self, xs: list[AnyArray], shared: frozenset[str]) -> int:
        """Note which inputs have an axis of samples. Returns the number of samples."""
        names = [self.steps.names[n] for n in self.steps.inputs]
        names = [name.rpartition(".")[2] if self.pure.graph is not self.pure.subject else name for name in names]
        unknown = shared - set(names)
        if unknown:
            raise AutoDiffException(
                f"{self.pure.title} has no input {', '.join(map(repr, sorted(unknown)))}; it has {', '.join(names)}"
            )
        counts = [x.shape[0] for name, x in zip(names, xs) if name not in shared and x.ndim]
        if not counts:
            raise AutoDiffException(f"{self.pure.title}: no input has an axis of samples")
        for number, name, x in zip(self.steps.inputs, names, xs):
            if name not in shared and x.shape[:1] != (counts[0],):
                raise AutoDiffException(
                    f"{self.pure.title}: wanted {counts[0]} samples first in input '{name}', got {show(x.shape)}; "
                    f"if all samples share it, say shared=('{name}',)"
                )
            self.kinds[number] = COMMON if name in shared else EACH
            self.symbols[number] = x.shape if name in shared else (N, *x.shape[1:])
        return counts[0]

    def kind(self, number: int) -> str:
        return self.kinds.get(number, COMMON)  # parameters and states are common

    def classify(self, step: GraphStep) -> None:
        """Classify the outputs of a step, by its shape rule with a symbol for the number of samples."""
        numbers = step.args[: step.inputs]
        kinds = {self.kind(n) for n in numbers if n}
        if EACH not in kinds:
            self.kinds.update(dict.fromkeys(step.outs, JOINT if JOINT in kinds else COMMON))
            self.symbols.update({n: shapeOf(self.values[n]) for n in step.outs})
            return
        shapes = self.shapesOf(step, [self.symbols.get(n, shapeOf(self.values[n])) if n else None for n in numbers])
        self.symbols.update(zip(step.outs, shapes))
        self.batched.update({n: isEach(s) for n, s in zip(step.outs, shapes)})
        isPerSample = JOINT not in kinds and all(map(isEach, shapes[: len(step.visible)]))
        self.kinds.update(dict.fromkeys(step.outs, EACH if isPerSample else JOINT))

    def shapesOf(self, step: GraphStep, inputShapes: list[Shape | None]) -> list[Shape]:
        """The output shapes with N samples; if the shape rule does not support symbols, from the actual sizes."""
        hidden = step.outs[len(step.visible) :]
        try:
            shapes = step.module.dataShapeFrom(*inputShapes)
            shapes = shapes if isinstance(shapes, list) else [shapes]
            inner = step.module.hiddenShapeFrom(*inputShapes) if hidden else []
            return [*shapes, *inner]
        except Exception as error:
            if isAsynchronous(error):
                raise
            shapes = [shapeOf(self.values[n]) for n in step.outs]
            return [(N, *s[1:]) if s[:1] == (self.count,) else s for s in shapes]

    def requirements(self) -> dict[int, bool]:
        """Return by number True if a value needs a gradient."""
        steps = self.steps
        wanted = {n: isFloat(self.values[n]) for n in steps.inputs}
        for number, module, name in steps.params:
            stored = getattr(module, name)
            wanted[number] = isinstance(stored, Param) and stored.trainable
        for step in steps.items:
            wanted.update(dict.fromkeys(step.outs, any(self.needs(step, wanted))))
        return wanted

    def needs(self, step: GraphStep, wanted: dict[int, bool]) -> list[bool]:
        """Return for each argument of a step True if it gets a gradient."""
        names, indices = inputNames(step.module, step.inputs), step.module.indices
        return [bool(wanted.get(n)) and not (i < step.inputs and names[i] in indices) for i, n in enumerate(step.args)]


def isEach(shape: Shape) -> bool:
    """True if the first axis, and no other, counts samples."""
    return len(shape) > 0 and shape[0] == N and not any(isinstance(d, Dim) for d in shape[1:])
