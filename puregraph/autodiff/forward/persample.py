"""Per-sample gradients: what each sample of a batch contributes to the gradient of every parameter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from puregraph.autodiff.forward.samplekinds import COMMON, EACH, JOINT, SampleKinds
from puregraph.autodiff.forward.vmap import Samples, _Unknown
from puregraph.autodiff.functionalcall import Pure
from puregraph.base.signals import isAsynchronous
from puregraph.core.accumulate import combine, isArray, shapeOf
from puregraph.core.applied import asGrads
from puregraph.core.param import State
from puregraph.core.rules import RuleContext, gradientRule
from puregraph.device import toHost
from puregraph.errors import AutoDiffException, addLocation, show
from puregraph.graph.backward import inputNames
from puregraph.graph.steps import ABSENT, GraphStep
from puregraph.module import Module, checkGrads, isFloat

CLOSE = {2: 5e-2, 4: 1e-3, 8: 1e-8}  # by the bytes of a float: how far a sample alone may differ by rounding


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
    """The part of the gradient of every parameter that flows through each sample: `params[path][i]` of sample i.

        sum over i of params[path][i] = the gradient that `backward` gives

    `grad` is the gradient of the output (a list where there are several); without it the output must be one number. If
    that is a mean over the batch, as costs are, then a sample's part is 1 / n of the gradient of its own cost.

    One pass forward and one back over the whole batch give the gradients of all values; then each node's own rule gives
    those of its parameters, for all samples at once where that is known of the functions it uses, else sample by
    sample. Frozen parameters have none; the mode does not matter, and nothing moves. Each rule is tried on the first
    and the last sample alone, so that a module that mixes samples is noticed. `shared` names inputs that all samples
    have in common.

    Shapes    inputs (n, ...), grad as the outputs -> params (n, *shape), inputs as they are (those shared: (n, *shape))
    Source    Goodfellow 2015, arXiv:1510.01799; Rochette, Manoel, Tramel 2019, arXiv:1912.06015
    Raises    AutoDiffException naming the node that mixes samples, such as BatchNorm in trainMode
    """
    xs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    found = _Attribution(Pure(graph, xs), xs, frozenset(shared)).run(grad)
    return found if isinstance(inputs, (list, tuple)) else found._replace(inputs=found.inputs[0])


def grad_norms(gradients: PerSample | dict[str, Any]) -> Any:
    """The length of each sample's gradient, over all parameters: sqrt(sum g^2).

    Shapes    each gradient (n, ...) -> (n,)
    Source    Abadi et al. 2016, arXiv:1607.00133, algorithm 1
    """
    found = gradients.params if isinstance(gradients, PerSample) else gradients
    squares = [(g * g).reshape(len(g), -1).sum(axis=1) for g in found.values()]
    return np.sqrt(combine(squares or [None]))


class _Attribution(SampleKinds):
    """One batch, and what its samples contribute."""

    def __init__(self, pure: Pure, xs: list[Any], shared: frozenset[str]):
        super().__init__(pure, xs, shared)
        self.totals: dict[int, list[Any]] = {}

    # Backward -----------------------------------------------------------------------------------------------------

    def run(self, grad: Any) -> PerSample:
        """Back through all steps; the gradients of parameters and inputs."""
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
        found: dict[int, list[Any]] = {}
        for number, module, name in self.steps.params:
            if self.wanted.get(number):
                found.setdefault(id(getattr(module, name)), []).append(self.total(number))
        params = {path: self.sumOf(found.get(id(p), []), p.data) for path, p in self.pure.params.items() if p.trainable}
        return PerSample(params, [self.inputGrad(n) for n in self.steps.inputs])

    def divided(self, number: int) -> Any:
        """No sample has a part in the gradient of what does not depend on any."""
        raise AutoDiffException(f"{self.pure.title}: output '{self.steps.names[number]}' depends on no sample")

    def sumOf(self, grads: list[Any], like: Any) -> Any:
        there = [g for g in grads if g is not None]
        return combine(there) if there else np.zeros_like(like, shape=(self.count, *like.shape))

    def inputGrad(self, number: int) -> Any:
        x, g = self.values[number], self.total(number)
        if not isFloat(x):
            return None
        shape = x.shape if self.kind(number) == EACH else (self.count, *x.shape)
        return np.zeros_like(x, shape=shape) if g is None else g

    def add(self, number: int, grad: Any) -> None:
        if number and grad is not None:
            self.totals.setdefault(number, []).append(grad)

    def total(self, number: int) -> Any:
        """The whole gradient of a value; of a common one, with an axis of samples."""
        found = self.totals.get(number)
        if found is not None and len(found) > 1:
            found[:] = [combine(found)]
        return found[0] if found else None

    def pull(self, step: GraphStep, grads: list[Any], needs: list[bool]) -> None:
        """The gradients of a step's arguments from those of its outputs."""
        kinds = [self.kind(n) for n in step.args]
        if all(self.kind(n) == COMMON for n in step.outs):
            parts = [self.call(step, [part(g, i) for g in grads], needs) for i in range(self.count)]
            for number, need, *each in zip(step.args, needs, *parts):
                if need:
                    self.add(number, self.stacked(each, self.values[number]))
            return
        if any(self.kind(n) == JOINT for n in step.visible):
            self.checkJoint(step, kinds, {kind for kind, need in zip(kinds, needs) if need})
        self.checkAlone(step, grads, needs)
        own = [need and kind != COMMON for need, kind in zip(needs, kinds)]
        common = [need and kind == COMMON for need, kind in zip(needs, kinds)]
        if any(own):
            for number, need, g in zip(step.args, own, self.call(step, grads, own)):
                if need:
                    self.add(number, g)
        if any(common):
            for number, need, g in zip(step.args, common, self.shares(step, grads, common)):
                if need:
                    self.add(number, g)

    def call(self, step: GraphStep, grads: list[Any], needs: Sequence[bool], at: Sequence[Any] | None = None) -> tuple:
        """The gradient rule of a step, on all its values or others."""
        arguments, outputs = at or ([self.values[n] for n in step.args], [self.values[n] for n in step.outs])
        rule = gradientRule(
            step.module, tuple(map(bool, needs)), step.node.rule, RuleContext(step.node, self.pure.graph)
        )
        return asGrads(rule(grads[0] if len(grads) == 1 else list(grads), *arguments, *outputs), len(needs), step.label)

    def stacked(self, each: list[Any], like: Any) -> Any:
        """Gradients of the samples as one array."""
        return np.stack([np.zeros_like(like) if g is None else g for g in each])

    # Samples ------------------------------------------------------------------------------------------------------

    def shares(self, step: GraphStep, grads: list[Any], needs: list[bool]) -> list[Any]:
        """The gradients of what all samples have in common, with an axis of samples."""
        try:
            found = self.atOnce(step, grads, needs)
        except (_Unknown, TypeError, ValueError, IndexError):  # of a rule that does with shapes what is not known here
            found = None
        if found is None or not self.agree(step, grads, needs, found):
            parts = [self.single(step, grads, needs, i) for i in range(self.count)]
            found = [
                self.stacked(list(each), self.values[n]) if need else None
                for n, need, *each in zip(step.args, needs, *parts)
            ]
        return found

    def atOnce(self, step: GraphStep, grads: list[Any], needs: list[bool]) -> list[Any]:
        """The rule on all samples together.

        Raises    _Unknown if it uses a function of which that is not known
        """
        if any(not isArray(self.values[n]) for n in step.outs):
            raise _Unknown("what is no array")
        arguments = [each(self.values[n]) if self.kind(n) == EACH and n else self.values[n] for n in step.args]
        outputs = [each(self.values[n]) if self.batched.get(n) else self.values[n] for n in step.outs]
        made = self.call(step, [None if g is None else each(g) for g in grads], needs, (arguments, outputs))
        found: list[Any] = []
        g: Any
        for n, need, g in zip(step.args, needs, made):
            shape = (self.count, *shapeOf(self.values[n]))
            if need and g is not None:
                g = g.batch if isinstance(g, Samples) else np.broadcast_to(g, shape)
                if g.shape != shape:
                    raise _Unknown("a gradient of another shape")
            found.append(g if need else None)
        return found

    def agree(self, step: GraphStep, grads: list[Any], needs: list[bool], found: list[Any]) -> bool:
        """Whether the first and the last sample alone have the same gradients."""
        for i in {0, self.count - 1}:
            for need, g, one in zip(needs, found, self.single(step, grads, needs, i)):
                if need and ((g is None) is not (one is None) or (g is not None and not near(g[i], one, one))):
                    return False
        return True

    def single(self, step: GraphStep, grads: list[Any], needs: Sequence[bool], i: int) -> tuple:
        """The rule on one sample alone."""
        if self.kind(step.visible[0]) == EACH:
            grads = [part(g, i, True) for g in grads]
        return self.few(step, grads, needs, slice(i, i + 1))

    def few(self, step: GraphStep, grads: list[Any], needs: Sequence[bool], which: Any) -> tuple:
        """The rule on a few samples, with the gradients of their outputs."""
        arguments = [self.values[n][which] if self.kind(n) == EACH and n else self.values[n] for n in step.args]
        outputs = [self.values[n][which] if self.batched.get(n) else self.values[n] for n in step.outs]
        if not all(isArray(y) for y in outputs):  # a context of the whole batch is of no use for a few of it
            states = [False] * step.inputs + [isinstance(s, State) for s in step.module.ruleParams()]
            result = step.call(*[a.copy() if s else a for a, s in zip(arguments, states)])
            outputs = list(result) if type(result) is tuple else [result]
        return self.call(step, grads, needs, (arguments, outputs))

    def checkAlone(self, step: GraphStep, grads: list[Any], needs: list[bool]) -> None:
        """The first and the last sample have the same gradients alone and together, for any gradients of the outputs.

        Where a cost takes means, they have the same but for a factor.
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
        ends = slice(None, None, self.count - 1)  # both of them
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
                    raise self.mixes(step, "a sample alone has another gradient than together with others")

    def checkJoint(self, step: GraphStep, kinds: list[str], asked: set[str]) -> None:
        """What is made from all samples together is one number, and nothing that samples share has a part in it."""
        shapes = [shapeOf(self.values[n]) for n in step.visible]
        joined = [self.steps.names[n] for n, kind in zip(step.args, kinds) if kind == JOINT]
        if EACH in kinds and joined:
            raise self.mixes(step, f"it takes '{joined[0]}', which is made from all of them")
        if EACH in kinds and not all(s == () for s in shapes):
            symbols = ", ".join(show(self.symbols.get(n, s)) for n, s in zip(step.visible, shapes))
            raise self.mixes(step, f"for N samples it gives {symbols}, where N is not the first axis and no other")
        if COMMON in asked:
            raise self.mixes(step, "no sample has a part of its own in the gradient of its parameters")

    def mixes(self, step: GraphStep, why: str) -> AutoDiffException:
        """That a step mixes samples, and what to try."""
        hint = ""
        if step.module.isTraining and step.module.states:
            hint = "; it has statistics of the batch: use evalMode(), or a normalisation of each sample, as LayerNorm"
        return AutoDiffException(
            f"at '{step.path}' ({step.label}): it mixes the samples of a batch, which then have no gradients of their "
            f"own: {why}{hint}"
        )


def each(x: Any) -> Samples:
    """A batch as a batch of one for each sample."""
    return Samples(x.reshape(len(x), 1, *x.shape[1:]))


def part(x: Any, i: int, batch: bool = False) -> Any:
    """One sample; as a batch of one."""
    return None if x is None else x[i : i + 1] if batch else x[i]


def near(a: Any, b: Any, like: Any) -> bool:
    """Whether two arrays are equal, but for rounding."""
    if not a.size:
        return True
    largest, error = (float(toHost(abs(x).max())) for x in (like, a - b))
    return error <= CLOSE[a.dtype.itemsize] * largest + 1e-30


def wave(like: Any) -> Any:
    """Numbers of which no two are alike."""
    count = np.cumsum(np.ones_like(like, shape=(like.size,), dtype=np.float32))
    return np.cos(count * count).astype(like.dtype).reshape(like.shape)


def unit(g: Any) -> Any:
    """A gradient of length one; one of zeros stays."""
    length = np.sqrt((g * g).sum())
    return g / np.where(length > 0, length, 1)
