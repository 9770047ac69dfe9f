"""Verify: with PUREGRAPH_VERIFY=1, compare every step of a CPU program with numpy on the same operands."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from puregraph.compile.memory.outputs import StepOutput
from puregraph.compile.memory.planner import MemoryPlan
from puregraph.compile.runtime.bind import Bound, bound
from puregraph.compile.runtime.buffers import Buffers
from puregraph.compile.runtime.guardbands import GuardBands, VerifyError, named, titleOf, written
from puregraph.core.base.align import addressOf
from puregraph.ops.ir.value import ARRAYS, Call, Value, changed
from puregraph.ops.kernel import Halves, useFast
from puregraph.ops.native.llvm.bfloatpairs import roundedToBfloat16
from puregraph.ops.operation import declared

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray

VARIABLE = "PUREGRAPH_VERIFY"
POISON_BYTE = 255  # fills memory before it is written: NaN, -1 or True
LEAVES = ("input", "param", "state", *ARRAYS)  # roles of values that exist before the first step
RELATIVE, ABSOLUTE = 64, 16  # error bounds of float operations, in ulps of the element and of the largest element
ROUNDING_FACTOR = 32  # error bound in units of the difference between float32 and float64
EPS32, EPS64 = float(np.finfo(np.float32).eps), float(np.finfo(np.float64).eps)
MAX_PERTURBATIONS = 12  # perturbed evaluations before an element near a discontinuity is reported as wrong


def isOn() -> bool:
    """True if programs built from now on verify themselves."""
    return os.environ.get(VARIABLE, "").lower() in ("1", "on", "yes")


class Verifier(GuardBands):
    """Checks the steps of one program as they run.

    Before a step, every value that it reads must equal a shadow copy, which was taken when the value was computed, and
    its results are poisoned. After the step, its results must be those of numpy on the shadows. So a value that was
    never written, a value overwritten before its last use, and a wrong kernel are three different errors.

    `shadows`  by Value number, a copy of the Value as it was computed
    `inner`    by Value number, numpy's result for a Value that a fused step keeps in registers
    """

    def __init__(self, plan: MemoryPlan, memory: Buffers):
        self.plan, self.memory = plan, memory
        self.shadows: dict[int, np.ndarray] = {}
        self.inner: dict[int, np.ndarray] = {}
        self.writers: dict[int, str] = {}  # the step that computed a Value, by number
        self.steps: list[tuple[str, list[Value]]] = []  # the steps that ran, and the Values they wrote
        read = [*plan.schedule.kept(), *(v for call in plan.schedule.calls for v in operandsOf(call))]
        self.leaves = {v.root.number: v.root for v in read if v.root.role in LEAVES}

    def start(self) -> None:
        """Copy all existing values before the first step."""
        self.shadows, self.inner, self.writers, self.steps = {}, {}, {}, []
        self.refresh()

    def refresh(self) -> None:
        """Copy parameters, states and inputs."""
        for v in self.leaves.values():
            self.shadows[v.number] = self.array(v).copy()

    def around(self, number: int, call: Call, steps: list[Bound]) -> list[Bound]:
        """The calls of a step with checks before and after; native code runs inside guard bands."""
        title = titleOf(number, call)
        steps = super().around(number, call, steps)
        before = Bound(call, partial(self.before, title, call), [], {})
        return [before, *steps, Bound(call, partial(self.after, title, number, call), [], {})]

    def aroundHost(self, number: int, call: Call) -> tuple[list[Bound], list[Bound]]:
        return [], [Bound(None, self.refresh, [], {})]  # a Python call may change parameters

    def array(self, value: Value) -> np.ndarray:
        """The array of a Value in this run."""
        location = self.plan.locations.get(value.root.number)
        if isinstance(location, StepOutput):
            start = location.start - addressOf(location.owner) + value.offset
            return np.ndarray(value.shape, value.dtype, location.owner, start, value.strides)
        return self.memory(value)

    # Before and after a step ------------------------------------------------------------------------------------------

    def before(self, title: str, call: Call) -> None:
        """Check the operands, and poison the results."""
        operands = [v.root for v in operandsOf(call)]
        for v in operands:
            self.checkUnchanged(title, v)
        if call.kind.isNative:
            read = [self.array(v) for v in operands]
            for y in written(call):
                array = self.array(y)
                if not any(np.may_share_memory(array, x) for x in read):
                    poison(array)

    def checkUnchanged(self, title: str, value: Value) -> None:
        """Raise a VerifyError unless a Value has been computed and has not changed since."""
        if value.role in ("scalar", "object"):
            return
        kept, now = self.shadows.get(value.number), self.array(value)
        if kept is None:
            raise VerifyError(f"{title}: reads {named(value)}, which no step has written")
        if not same(kept, now):
            position = first(~equal(kept, now))
            maker = self.writers.get(value.number, "before the first step")
            others = [name for name, outs in self.since(value) if any(self.meets(y, value) for y in outs)]
            by = f"; overwritten by {', '.join(others)}" if others else ""
            raise VerifyError(
                f"{title}: reads {named(value)} of {maker}, which at {position} is no longer {kept[position]} "
                f"but {now[position]}{by}"
            )

    def since(self, value: Value) -> Iterator[tuple[str, list[Value]]]:
        """The steps after the one that made a Value."""
        maker = self.writers.get(value.number)
        names = [name for name, _ in self.steps]
        yield from self.steps[names.index(maker) + 1 if maker in names else 0 :]

    def meets(self, a: Value, b: Value) -> bool:
        """True if two Values share memory."""
        return a.number != b.number and np.may_share_memory(self.array(a), self.array(b))

    def after(self, title: str, number: int, call: Call) -> None:
        """Check the results against numpy, and copy them for their readers."""
        if call.kind.isNative:
            self.check(title, number, call)
        calls = call.function.calls if call.kind.isNative else [call]
        if any(c.kind.isOpaque or c.kind.isUpdate for c in calls):
            self.refresh()
        outs = written(call)
        for y in outs:
            self.shadows[y.number] = self.array(y).copy()
            self.writers[y.number] = title
        self.steps.append((title, outs))

    def finish(self) -> None:
        """Check after the last step that results have not changed and that parameters hold their computed values."""
        for v in self.plan.schedule.kept():
            self.checkUnchanged("the end of the program", v.root)
        for target, v in self.plan.schedule.stores:
            kept, now = self.array(v), np.asarray(target.array).reshape(v.shape)
            if not same(kept, now):
                position = first(~equal(kept, now))
                owner = type(target).__name__
                raise VerifyError(
                    f"the end of the program: {named(v)} should be stored in a {owner}; at {position} expected "
                    f"{kept[position]}, got {now[position]}"
                )

    # Against numpy ----------------------------------------------------------------------------------------------------

    def check(self, title: str, number: int, call: Call) -> None:
        """Raise a VerifyError unless the results of native code are those of the calls that it replaces."""
        calls = [*call.function.inlined, *call.function.calls]
        made = {y.number for c in calls for y in c.outs if y is not None}
        last = self.plan.last  # a result that is not read may share memory with another one
        results = [y for y in written(call) if y.number in made and last.get(y.number, -1) > number]
        if not results:
            return
        evaluated = partial(self.evaluated, calls, halves=any(work.halves for work in call.function.works))
        single = evaluated()
        self.inner |= {n: x for n, x in single.items() if n in made}
        references = [single]
        isExact = all(c.kind.isExact for c in calls)
        if not isExact:
            references.append(self.rounded(evaluated, single))
        wrong = self.wrongIn(results, references, isExact)
        if wrong is not None and not isExact:
            references += [evaluated(noise=np.random.default_rng(seed)) for seed in range(MAX_PERTURBATIONS)]
            wrong = self.wrongIn(results, references, isExact)
        if wrong is not None:
            y, position = wrong
            got, want = self.array(y)[position], single[y.number][position]
            raise VerifyError(f"{title}: {named(y)} at {position}: wanted {want}, as numpy has it, got {got}")

    def wrongIn(self, results: list[Value], references: list[Any], isExact: bool) -> tuple[Value, Any] | None:
        """The first result that is not near any of its references, and its first wrong position."""
        for y in results:
            wrong = far(self.array(y), [r[y.number] for r in references], isExact)
            if wrong.any():
                return y, first(wrong)
        return None

    def rounded(self, evaluated: Callable[..., dict[int, Any]], single: dict[int, Any]) -> dict[int, Any]:
        """A second reference, whose distance from the first is an estimate of rounding errors: the values in float64.

        A float64 value itself is moved by the error of float32, scaled to its own precision.
        """
        wide = evaluated(np.float64)
        doubles = [number for number, x in single.items() if x.dtype == np.float64]
        narrow = evaluated(np.float32) if doubles else {}
        for number in doubles:
            with np.errstate(all="ignore"):
                error = narrow[number] - single[number]
            wide[number] = single[number] + np.where(np.isfinite(error), error, 0) * (EPS64 / EPS32)
        return wide

    def evaluated(
        self, calls: Iterable[Call], dtype: DTypeLike | None = None, noise: Any = None, halves: bool = False
    ) -> dict[int, Any]:
        """All values of some calls, computed by numpy from the shadows; optionally in another dtype, or perturbed.

        With `halves`, what the calls multiply is rounded to bfloat16.
        """
        computed: dict[int, Any] = {}

        def cast(x: AnyArray) -> AnyArray:
            return x.astype(dtype) if dtype is not None and x.dtype in (np.float32, np.float64) else x

        def array(v: Value) -> AnyArray:
            if v.number not in computed:
                computed[v.number] = leaf(v)
            return computed[v.number]

        def leaf(v: Value) -> AnyArray:
            if v.base is not None and v.call is not None:
                arguments = [changed(a, array) for a in v.call.arguments]
                return v.call.function(*arguments, **{k: changed(a, array) for k, a in v.call.options.items()})
            if v.role == "scalar":
                return cast(self.memory(v).copy())
            if v.role in ARRAYS:
                return cast(np.asarray(v.source))
            kept = self.shadows.get(v.number)
            return cast(self.inner[v.number] if kept is None else kept)

        def factors(v: Value) -> np.ndarray:
            if v.dtype.kind != "f":
                return np.ones((), v.dtype)
            return (1 + noise.choice((-2.0, 0.0, 2.0), v.shape) * np.finfo(v.dtype).eps).astype(v.dtype)

        def operand(v: Value) -> AnyArray:
            x = array(v)
            if v.number in multiplied:
                x = roundedToBfloat16(np.asarray(x)).astype(x.dtype)
            # a sum is only as exact as its terms, even if it is small
            return x * factors(v) if isSum and v not in outs else x

        with np.errstate(all="ignore"), useFast(False):
            for call in calls:
                if call.kind.isView or call.kind.isStore:
                    continue
                outs = [y for y in call.outs if y is not None]
                for y in outs:
                    computed[y.number] = cast(np.empty(y.shape, y.dtype))
                isSum = noise is not None and (call.kind.isReduction or call.kind.isContraction)
                multiplied = {v.number for v in factorsOf(call)} if halves else set()
                for step in bound(call, operand, None):
                    step.function(*step.arguments, **step.options)
                for y in outs if noise is not None and not call.kind.isExact else ():
                    computed[y.number] *= factors(y)
        return computed


def operandsOf(call: Call) -> list[Value]:
    """The Values that a step reads, without scalars and objects."""
    byNumber = {v.number: v for v in call.values() if v is not None}
    return [v for v in byNumber.values() if v.role not in ("scalar", "object")]


def factorsOf(call: Call) -> list[Value]:
    """The factors that a call multiplies: the operands of a product, or those that a Kernel declares."""
    halves = declared(call.function, "halves")
    if call.kind.isContraction:
        return call.values()
    return [v for v in halves.of(call.arguments) if isinstance(v, Value)] if isinstance(halves, Halves) else []


def poison(array: np.ndarray) -> None:
    """Fill an array with poison: NaN, the largest integer, or an invalid boolean."""
    if array.dtype.kind == "f":
        array[...] = np.nan
    elif array.dtype.kind == "b":
        array.view(np.uint8)[...] = POISON_BYTE
    else:
        array[...] = np.iinfo(array.dtype).max


def equal(a: Any, b: Any) -> Any:
    """The elements at which two arrays are equal; NaN equals NaN."""
    isEqual = np.asarray(a == b)
    return isEqual | ((a != a) & (b != b)) if a.dtype.kind == "f" else isEqual


def same(a: AnyArray, b: Any) -> bool:
    """True if two arrays are equal in all elements."""
    return a.shape == b.shape and bool(equal(a, b).all())


def first(wrong: np.ndarray) -> tuple[int, ...]:
    """The first position at which `wrong` is True."""
    return tuple(map(int, np.argwhere(wrong)[0]))


def far(array: Any, references: list[Any], isExact: bool) -> np.ndarray:
    """The elements of an array that are neither near its first two references nor in the range of all of them."""
    if isExact or array.dtype.kind != "f":
        return ~np.logical_or.reduce([equal(array, np.asarray(r)) for r in references])
    x, around = array.astype(float), np.stack([np.broadcast_to(r, array.shape).astype(float) for r in references])
    with np.errstate(all="ignore"):
        isFinite = np.isfinite(around).all(axis=0) & np.isfinite(x)
        low, high = around.min(axis=0), around.max(axis=0)
        eps, base = np.finfo(array.dtype).eps, np.where(isFinite, around[0], 0)
        spread = np.where(isFinite, np.abs(around[:2] - around[0]).max(axis=0), 0)
        largest = np.abs(base).max(initial=0)
        typical = np.sqrt(np.mean(spread**2)) if spread.size else 0
        limit = ROUNDING_FACTOR * (spread + typical) + eps * (RELATIVE * np.abs(base) + ABSOLUTE * largest)
        limit += np.finfo(array.dtype).tiny
        near = isFinite & (x >= low - limit) & (x <= high + limit)
    return ~(near | np.logical_or.reduce([equal(x, r) for r in around]))
