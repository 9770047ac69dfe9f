"""Per-sample gradients: what each sample of a batch contributes to the gradient of every parameter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.autodiff.forward.samplekinds import COMMON, EACH, JOINT, SampleKinds
from puregraph.autodiff.forward.vmap import Samples, _Unknown
from puregraph.autodiff.functionalcall import Pure
from puregraph.core.accumulate import combine, isArray, shapeOf
from puregraph.core.applied import asGrads
from puregraph.core.base.signals import isAsynchronous
from puregraph.core.device import toHost
from puregraph.core.errors import AutoDiffException, addLocation, show
from puregraph.core.param import State
from puregraph.core.rules import RuleContext, gradientRule
from puregraph.graph.backward import inputNames
from puregraph.graph.module import Module, checkGrads, isFloat
from puregraph.graph.steps import ABSENT, GraphStep

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray

SAMPLE_TOLERANCE = {2: 5e-2, 4: 1e-3, 8: 1e-8}  # rounding tolerance for a single sample, by the bytes of a float


class PerSample(NamedTuple):
    """Gradients with an axis of samples first: of the parameters by path, and of the inputs.

    >>> from puregraph import Linear, Sequential
    >>> net, x = Sequential(Linear(3, 1, name="fc")), np.ones((5, 3), np.float32)
    >>> found = per_sample_gradients(net, x, np.ones((5, 1), np.float32))
    >>> type(found).__name__, {path: gradient.shape for path, gradient in found.params.items()}
    ('PerSample', {'fc.W': (5, 3, 1), 'fc.b': (5, 1)})
    """

    params: dict[str, Any]
    inputs: Any


def per_sample_gradients(graph: Module, inputs: Any, grad: Any = None, shared: Iterable[str] = ()) -> PerSample:
    """Compute each sample's contribution to every parameter's gradient: `params[path][i]` of sample i.

        sum over i of params[path][i] = the gradient of `backward`

    `grad` is the gradient of the output (a list for several outputs); without it the output must be one number. If that
    number is a mean over the batch, as for costs, a sample's contribution is 1 / n of the gradient of its own cost.

    One forward and one backward pass over the batch compute the gradients of all values. Each node's rule then computes
    its parameters' gradients: for all samples at once if its functions support that, otherwise sample by sample. Frozen
    parameters have none. The mode does not matter, and no state changes. Each rule is also run on the first and the
    last sample alone, to detect modules that mix samples. `shared` names inputs that all samples share.

    Shapes    inputs (n, ...), grad as the outputs -> params (n, *shape), inputs unchanged (shared ones: (n, *shape))
    Source    Goodfellow 2015, arXiv:1510.01799; Rochette, Manoel, Tramel 2019, arXiv:1912.06015
    Raises    AutoDiffException naming the node that mixes samples, such as BatchNorm in trainMode
    """
    xs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    result = _Attribution(Pure(graph, xs), xs, frozenset(shared)).run(grad)
    return result if isinstance(inputs, (list, tuple)) else result._replace(inputs=result.inputs[0])


def grad_norms(gradients: PerSample | dict[str, Any]) -> AnyArray:
    """Compute the norm of each sample's gradient over all parameters: sqrt(sum g^2).

    Shapes    each gradient (n, ...) -> (n,)
    Source    Abadi et al. 2016, arXiv:1607.00133, algorithm 1
    """
    params = gradients.params if isinstance(gradients, PerSample) else gradients
    squares = [(g * g).reshape(len(g), -1).sum(axis=1) for g in params.values()]
    return np.sqrt(combine(squares or [None]))


class _Attribution(SampleKinds):
    """The gradient contributions of a batch's samples."""

    def __init__(self, pure: Pure, xs: list[AnyArray], shared: frozenset[str]):
        super().__init__(pure, xs, shared)
        self.totals: dict[int, list[Any]] = {}

    # Backward -----------------------------------------------------------------------------------------------------

    def run(self, grad: Any) -> PerSample:
        """Run backward through all steps; return the gradients of parameters and inputs."""
        outputs = self.pure.outputs(self.values)
        for number, g in zip(self.steps.outputs, checkGrads(grad, outputs, self.pure.title)):
            if g is not None:
                self.add(number, g if self.kind(number) != COMMON else self.divided(number))
        for step in reversed(self.steps.items):
            grads = [self.total(n) for n in step.visible]
            needs = self.needs(step, self.wanted)
            if any(needs) and not all(g is None for g in grads):
                try:
                    self.pull(step, grads, needs)
                except AutoDiffException:
                    raise
                except Exception as error:
                    addLocation(error, f"at '{step.path}' ({step.label}), backward, sample by sample")
                    raise
        contributions: dict[int, list[Any]] = {}
        for number, module, name in self.steps.params:
            if self.wanted.get(number):
                contributions.setdefault(id(getattr(module, name)), []).append(self.total(number))
        params = {
            path: self.sumOf(contributions.get(id(p), []), p.data)
            for path, p in self.pure.params.items()
            if p.trainable
        }
        return PerSample(params, [self.inputGrad(n) for n in self.steps.inputs])

    def divided(self, number: int) -> Any:
        """Refuse the gradient of an output that depends on no sample."""
        raise AutoDiffException(f"{self.pure.title}: output '{self.steps.names[number]}' depends on no sample")

    def sumOf(self, grads: list[AnyArray], like: AnyArray) -> Any:
        there = [g for g in grads if g is not None]
        return combine(there) if there else np.zeros_like(like, shape=(self.count, *like.shape))

    def inputGrad(self, number: int) -> AnyArray | None:
        x, g = self.values[number], self.total(number)
        if not isFloat(x):
            return None
        shape = x.shape if self.kind(number) == EACH else (self.count, *x.shape)
        return np.zeros_like(x, shape=shape) if g is None else g

    def add(self, number: int, grad: AnyArray | None) -> None:
        if number and grad is not None:
            self.totals.setdefault(number, []).append(grad)

    def total(self, number: int) -> AnyArray | None:
        """Sum the gradient of a value; a value common to all samples has an axis of samples."""
        contributions = self.totals.get(number)
        if contributions is not None and len(contributions) > 1:
            contributions[:] = [combine(contributions)]
        return contributions[0] if contributions else None

    def pull(self, step: GraphStep, grads: list[Any], needs: list[bool]) -> None:
        """Add the gradients of a step's arguments, from its output gradients."""
        kinds = [self.kind(n) for n in step.args]
        if all(self.kind(n) == COMMON for n in step.outs):
            parts = [self.call(step, [part(g, i) for g in grads], needs) for i in range(self.count)]
            for number, need, *sampleGrads in zip(step.args, needs, *parts):
                if need:
                    self.add(number, self.stacked(sampleGrads, self.values[number]))
            return
        if any(self.kind(n) == JOINT for n in step.visible):
            self.checkJoint(step, kinds, {kind for kind, need in zip(kinds, needs) if need})
        self.checkAlone(step, grads, needs)
        varying = [need and kind != COMMON for need, kind in zip(needs, kinds)]
        common = [need and kind == COMMON for need, kind in zip(needs, kinds)]
        if any(varying):
            for number, need, g in zip(step.args, varying, self.call(step, grads, varying)):
                if need:
                    self.add(number, g)
        if any(common):
            for number, need, g in zip(step.args, common, self.shares(step, grads, common)):
                if need:
                    self.add(number, g)

    def call(self, step: GraphStep, grads: list[Any], needs: Sequence[bool], at: Sequence[Any] | None = None) -> tuple:
        """Run the gradient rule of a step, on its values or on others."""
        arguments, outputs = at or ([self.values[n] for n in step.args], [self.values[n] for n in step.outs])
        rule = gradientRule(
            step.module, tuple(map(bool, needs)), step.node.rule, RuleContext(step.node, self.pure.graph)
        )
        return asGrads(rule(grads[0] if len(grads) == 1 else list(grads), *arguments, *outputs), len(needs), step.label)

    def stacked(self, sampleGrads: list[AnyArray], like: AnyArray) -> AnyArray:
        """Stack the samples' gradients into one array."""
        return np.stack([np.zeros_like(like) if g is None else g for g in sampleGrads])

    # Samples ------------------------------------------------------------------------------------------------------

    def shares(self, step: GraphStep, grads: list[AnyArray], needs: list[bool]) -> list[AnyArray | None]:
        """Compute the gradients of values that all samples share, with an axis of samples."""
        try:
            gradients = self.atOnce(step, grads, needs)
        except (_Unknown, TypeError, ValueError, IndexError):  # a rule with unsupported shape arithmetic
            gradients = None
        if gradients is None or not self.agree(step, grads, needs, gradients):
            parts = [self.single(step, grads, needs, i) for i in range(self.count)]
            gradients = [
                self.stacked(list(sampleGrads), self.values[n]) if need else None
                for n, need, *sampleGrads in zip(step.args, needs, *parts)
            ]
        return gradients

    def atOnce(self, step: GraphStep, grads: list[Any], needs: list[bool]) -> list[AnyArray | None] | None:
        """Run the rule on all samples together.

        Raises    _Unknown if it uses a function without a rule for samples
        """
        if any(not isArray(self.values[n]) for n in step.outs):
            raise _Unknown("a value that is no array")
        arguments = [samplesOf(self.values[n]) if self.kind(n) == EACH and n else self.values[n] for n in step.args]
        outputs = [samplesOf(self.values[n]) if self.batched.get(n) else self.values[n] for n in step.outs]
        made = self.call(step, [None if g is None else samplesOf(g) for g in grads], needs, (arguments, outputs))
        gradients: list[Any] = []
        g: Any
        for n, need, g in zip(step.args, needs, made):
            shape = (self.count, *shapeOf(self.values[n]))
            if need and g is not None:
                g = g.batch if isinstance(g, Samples) else np.broadcast_to(g, shape)
                if g.shape != shape:
                    raise _Unknown("a gradient of another shape")
            gradients.append(g if need else None)
        return gradients

    def agree(
        self, step: GraphStep, grads: list[AnyArray], needs: list[bool], gradients: list[AnyArray | None]
    ) -> bool:
        """True if the first and the last sample, run alone, have the same gradients."""
        for i in {0, self.count - 1}:
            for need, g, alone in zip(needs, gradients, self.single(step, grads, needs, i)):
                if need and ((g is None) is not (alone is None) or (g is not None and not near(g[i], alone, alone))):
                    return False
        return True

    def single(self, step: GraphStep, grads: list[Any], needs: Sequence[bool], i: int) -> tuple:
        """Run the rule on one sample."""
        if self.kind(step.visible[0]) == EACH:
            grads = [part(g, i, True) for g in grads]
        return self.few(step, grads, needs, slice(i, i + 1))

    def few(self, step: GraphStep, grads: list[AnyArray], needs: Sequence[bool], which: Any) -> tuple:
        """Run the rule on a few samples, with their output gradients."""
        arguments = [self.values[n][which] if self.kind(n) == EACH and n else self.values[n] for n in step.args]
        outputs = [self.values[n][which] if self.batched.get(n) else self.values[n] for n in step.outs]
        if not all(isArray(y) for y in outputs):  # a context of the full batch does not fit a few samples
            states = [False] * step.inputs + [isinstance(s, State) for s in step.module.ruleParams()]
            result = step.call(*[a.copy() if s else a for a, s in zip(arguments, states)])
            outputs = list(result) if type(result) is tuple else [result]
        return self.call(step, grads, needs, (arguments, outputs))

    def checkAlone(self, step: GraphStep, grads: list[AnyArray], needs: list[bool]) -> None:
        """Check that the first and the last sample have equal gradients alone and together, for any output gradients.

        For a cost that takes a mean, they may differ by a common factor.
        """
        names, indices = inputNames(step.module, step.inputs), step.module.indices
        trial = [
            i < step.inputs
            and n != ABSENT
            and self.kind(n) == EACH
            and isFloat(self.values[n])
            and names[i] not in indices
            for i, n in enumerate(step.args)
        ]
        if self.count < 2 or not any(trial):
            return
        isCost = self.kind(step.visible[0]) == JOINT
        ends = slice(None, None, self.count - 1)  # the first and the last sample
        tries = list(grads) if isCost else [None if g is None else wave(g[ends]) for g in grads]
        try:
            with np.errstate(all="ignore"):
                both = self.few(step, tries, trial, ends)
                alone = [
                    self.few(step, tries if isCost else [part(g, k, True) for g in tries], trial, slice(i, i + 1))
                    for k, i in enumerate((0, self.count - 1))
                ]
        except Exception as error:
            if isAsynchronous(error):
                raise
            raise self.mixes(step, f"its gradient rule cannot be run on one of them alone: {error}") from error
        for need, whole, *ones in zip(trial, both, *alone):
            for k, one in enumerate(ones if need else ()):
                if whole is None and one is None:
                    continue
                a = None if whole is None else whole[k : k + 1]
                if a is not None and one is not None and isCost:
                    a, one = unit(a), unit(one)
                if a is None or one is None or a.shape != one.shape or not near(a, one, one):
                    raise self.mixes(step, "the gradient of a sample depends on the others")

    def checkJoint(self, step: GraphStep, kinds: list[str], asked: set[str]) -> None:
        """Check that values made from all samples together are single numbers, independent of shared values."""
        shapes = [shapeOf(self.values[n]) for n in step.visible]
        joined = [self.steps.names[n] for n, kind in zip(step.args, kinds) if kind == JOINT]
        if EACH in kinds and joined:
            raise self.mixes(step, f"it takes '{joined[0]}', which is made from all of them")
        if EACH in kinds and not all(s == () for s in shapes):
            symbols = ", ".join(show(self.symbols.get(n, s)) for n, s in zip(step.visible, shapes))
            raise self.mixes(step, f"for N samples it returns {symbols}; only the first axis may be N")
        if COMMON in asked:
            raise self.mixes(step, "the gradient of its parameters cannot be divided among the samples")

    def mixes(self, step: GraphStep, why: str) -> AutoDiffException:
        """The error for a step that mixes samples, with a hint."""
        hint = ""
        if step.module.isTraining and step.module.states:
            hint = "; it uses batch statistics: call evalMode(), or normalize each sample, as LayerNorm does"
        return AutoDiffException(
            f"at '{step.path}' ({step.label}): it mixes the samples of a batch, so there are no gradients per sample: "
            f"{why}{hint}"
        )


def samplesOf(x: AnyArray) -> Samples:
    """Return Samples that are each a batch of one."""
    return Samples(x.reshape(len(x), 1, *x.shape[1:]))


def part(x: AnyArray, i: int, batch: bool = False) -> AnyArray:
    """One sample; with `batch`, as a batch of one."""
    return None if x is None else x[i : i + 1] if batch else x[i]


def near(a: Any, b: Any, like: Any) -> bool:
    """True if two arrays are equal up to rounding."""
    if not a.size:
        return True
    largest, error = (float(toHost(abs(x).max())) for x in (like, a - b))
    return error <= SAMPLE_TOLERANCE[a.dtype.itemsize] * largest + 1e-30


def wave(like: AnyArray) -> AnyArray:
    """An array of distinct numbers."""
    count = np.cumsum(np.ones_like(like, shape=(like.size,), dtype=np.float32))
    return np.cos(count * count).astype(like.dtype).reshape(like.shape)


def unit(g: AnyArray) -> AnyArray:
    """A gradient of length one; one of zeros stays."""
    length = np.sqrt((g * g).sum())
    return g / np.where(length > 0, length, 1)
