"""Autocast: store and multiply the results of modules that allow it in 16 bits; other values stay float32.

    y = half(x) half(W),    summed in float32

Formulas and reductions always compute in float32, so for them only the storage of a value changes. Products,
convolutions, pooling, attention and cells need all factors in one dtype: a formula converts a value before its first
such use; all weights are converted together at the start. Functions without 16-bit code read and write float32 as
before. bfloat16 values, which have the range of float32, stay bfloat16 when they are only copied.

Parameters, their gradients, states, sums, costs and outputs are always float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compile.gpu.lower.copylaunch import moved
from puregraph.compile.gpu.lower.kernelcalls import launchesOf, libraryOf
from puregraph.compile.gpu.lower.librarycalls import productOf
from puregraph.compile.gpu.passes.fusedoptimizer import FusedFormula
from puregraph.compile.passes.nestlines import GPU
from puregraph.compile.trace.updaterule import UpdateScalars
from puregraph.core.tracer import astype
from puregraph.ops.cuda.runtime.preprocess import BFLOAT16
from puregraph.ops.formula import Formula
from puregraph.ops.ir.strides import contiguous, isDense
from puregraph.ops.ir.value import Call, CallOrigin, Value, changed
from puregraph.ops.kernel import ANYFLOATS, MAKES, READSFLOATS, Halves
from puregraph.ops.operation import declared

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule

FLOAT = np.dtype(np.float32)
HALVES: dict[str, Any] = {"float16": np.dtype(np.float16), "bfloat16": BFLOAT16}


def autocast(schedule: Schedule) -> Schedule:
    """Store values in 16 bits if their modules allow it."""
    if any(call.origin.precision in HALVES for call in schedule.calls):
        Autocast(schedule).run()
    return schedule


class Autocast:
    """Rewrites the calls of one schedule. A call whose dtypes change makes new Values.

    `kept`    the replacements of Values, by number
    `others`  copies of Values in other dtypes, and `views` of the copies, by number and dtype
    `wanted`  the dtypes of Values to store in 16 bits
    `exact`   by number, the Values that stay float32 unless another dtype is wanted
    """

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        self.calls: list[Call] = []
        self.kept: dict[int, Value] = {}
        self.others: dict[tuple[int, str], Value] = {}
        self.views: dict[tuple[int, int], Value] = {}
        self.weights: dict[str, list[tuple[Value, Value]]] = {}
        stays = {v.root.number for _, v in schedule.stores}
        self.ends = {v.root.number for v in (*schedule.outputs, *schedule.inputGrads) if v is not None}
        self.wanted: dict[int, Any] = {}
        self.exact = {v.number for v in (*schedule.gradients, *(v for _, v in schedule.paramGrads))} | stays | self.ends
        for call in schedule.calls:
            if call.kind.isReduction or declared(call.function, "halves") == READSFLOATS:
                self.exact.update(v.root.number for v in call.values())
            for y in call.outs:
                kind = None if y is None else schedule.precisions.get(y.number)
                if kind is not None and y.root.number not in stays and isFloat(y.root) and y.root.role == "made":
                    self.wanted[y.root.number] = HALVES.get(kind)

    def run(self) -> None:
        schedule = self.schedule
        for call in schedule.calls:
            self.take(call)
        schedule.outputs = [self.plain(v) for v in schedule.outputs]
        schedule.inputGrads = [self.plain(v) for v in schedule.inputGrads]
        schedule.paramGrads = [(p, self.now(v)) for p, v in schedule.paramGrads]
        schedule.stores = [(target, self.now(v)) for target, v in schedule.stores]
        schedule.calls = [*weightCasts(self.weights, self.calls), *self.calls]

    def take(self, call: Call) -> None:
        """Rewrite the next call."""
        halves = declared(call.function, "halves")
        if call.kind.isView:
            if self.now(call.outs[0].root) is call.outs[0].root:
                self.calls.append(call)
        elif call.kind.isElementwise or call.kind.isReduction or call.kind.isFill or halves == ANYFLOATS:
            self.formulas(call)
        elif call.kind.isContraction:
            self.product(call)
        elif call.kind.isExact:
            self.move(call)
        elif halves == READSFLOATS or type(call.function) in (UpdateScalars, FusedFormula):
            self.add(call, self.made(call, self.now))
        elif halves is not None:
            (self.cells if halves.results is None else self.kernel)(call, halves)
        else:
            self.keepFloat(call)

    # Values -----------------------------------------------------------------------------------------------------------

    def new(self, like: Value, dtype: np.dtype) -> Value:
        """A new Value of the same layout in another dtype."""
        self.schedule.count += 1
        role = "object" if like.role == "object" else "made"
        return Value(self.schedule.count, like.shape, dtype, scaled(like, dtype), role, like.name)

    def now(self, v: Value) -> Value:
        """The replacement of a Value, or the Value itself."""
        root = self.kept.get(v.root.number, v.root)
        return v if root is v.root else root if v.base is None else self.seen(v, root)

    def plain(self, v: Value | None) -> Any:
        """A Value in float32, if it is a float."""
        return None if v is None else self.to(v, FLOAT)

    def to(self, v: Value, dtype: np.dtype) -> Value:
        """A Value in a dtype, if it is a float."""
        x = self.now(v)
        if not isFloat(v) or x.dtype == dtype:
            return x
        source = x.root if isDense(x.root.shape, x.root.strides, x.root.dtype.itemsize) else x
        key = source.number, dtype.name
        if key not in self.others:
            self.others[key] = self.copy(source, dtype)
        return self.others[key] if x is source else self.seen(x, self.others[key])

    def copy(self, x: Value, dtype: np.dtype) -> Value:
        """A Value converted to another dtype; weights are converted at the start."""
        y = self.new(x, dtype)
        if x.role == "param":
            self.weights.setdefault(dtype.name, []).append((x, y))
        else:
            self.calls.append(cast(x, y, CallOrigin(x.name) if x.call is None else x.call.origin))
        return y

    def seen(self, v: Value, root: Value) -> Value:
        """The view v of its base, as a view of another Value that has the base's elements."""
        key = v.number, root.number
        if key not in self.views:
            made: Any = v.call
            of, *others = made.arguments
            view = self.views[key] = self.new(v, root.dtype)
            view.base, view.offset = root, v.offset // v.dtype.itemsize * root.dtype.itemsize
            source = root if of.base is None else self.seen(of, root)
            view.call = Call(made.function, (source, *others), made.options, [view], "view", made.origin)
            self.calls.append(view.call)
        return self.views[key]

    # Calls ------------------------------------------------------------------------------------------------------------

    def made(self, call: Call, now: Callable[[Value], Value], kinds: list[Any] | None = None) -> Call:
        """The call on the new Values with results of these dtypes (None: unchanged)."""
        arguments, options = changed(call.arguments, now), {k: changed(a, now) for k, a in call.options.items()}
        kinds = kinds or [None] * len(call.outs)
        before = {v.number for v in call.values()}
        after = {v.number for v in Call(None, arguments, options, [], call.kind, call.origin).values()}
        if before == after and all(k is None or k == y.dtype for k, y in zip(kinds, call.outs)):
            return call
        outs = [None if y is None else self.new(y, k or y.dtype) for y, k in zip(call.outs, kinds)]
        replacement = Call(call.function, arguments, options, outs, call.kind, call.origin, call.several)
        for y in outs:
            if y is not None:
                y.call = replacement
        return replacement

    def add(self, call: Call, replacement: Call) -> None:
        """Replace a call."""
        self.calls.append(replacement)
        for y, new in zip(call.outs, replacement.outs):
            if y is not None and new is not y:
                self.kept[y.number] = new
            if y is not None and y.number in self.ends:
                self.to(y, FLOAT)  # right after it is computed

    def kindOf(self, y: Value | None) -> np.dtype | None:
        """The dtype to store a result in; None: unchanged."""
        return None if y is None else self.wanted.get(y.number)

    def keepFloat(self, call: Call) -> None:
        """Add a call that reads and writes float32, and convert its results if wanted."""
        replacement = self.made(call, self.plain)
        self.calls.append(replacement)
        for y, new in zip(call.outs, replacement.outs):
            if y is None:
                continue
            kind = self.kindOf(y)
            if new is not y:
                self.kept[y.number] = new
            if kind is not None:
                half = self.kept[y.number] = self.new(new, kind)
                self.calls.append(cast(new, half, call.origin))
                self.others[half.number, FLOAT.name] = new

    def formulas(self, call: Call) -> None:
        """Add formulas and reductions, which read and write any dtype."""
        bias = self.biasOf(call)

        def now(v: Value) -> Value:
            return self.now(v) if bias is None or v.root.role != "param" else self.to(v, bias)

        replacement = self.made(call, now, [self.kindOf(y) or self.between(y, call) for y in call.outs])
        isFree = declared(call.function, "halves") == ANYFLOATS and launchesOf(replacement, [])[0] is not None
        if replacement is call or isFree or GPU.lines(replacement) is not None:
            self.add(call, replacement)
        else:
            self.keepFloat(call)

    def between(self, y: Value, call: Call) -> Any:
        """The dtype of a module's intermediate: bfloat16 if the call reads a bfloat16 value of the same size."""
        isOurs = call.origin.precision == "bfloat16" and call.kind.isElementwise and y.dtype == FLOAT
        if not isOurs or y.number in self.exact:
            return None
        return BFLOAT16 if any(self.now(v).dtype == BFLOAT16 and v.size == y.size for v in call.values()) else None

    def biasOf(self, call: Call) -> np.dtype | None:
        """The dtype of a product that a parameter is added to: a library that fuses the addition needs one dtype."""
        if call.function is np.add and call.origin.phase == "forward" and call.origin.precision in HALVES:
            for v in call.values():
                x = self.now(v)
                made = None if x.call is None or not isHalf(x) else x.call.function
                if made is np.matmul or declared(made, "epilogue") is not None:
                    return x.dtype
        return None

    def product(self, call: Call) -> None:
        """Add a matrix product; a float32 result may have 16-bit factors."""
        half, y = HALVES.get(call.origin.precision), call.outs[0]
        if half is not None and all(map(isFloat, (*call.values(), y))):
            kind = self.kindOf(y) or (half if call.origin.phase == "forward" else FLOAT)
            replacement = self.made(call, lambda v: self.to(v, half), [kind if kind == half else FLOAT])
            if productOf(replacement) is not None:
                self.add(call, replacement)
                return
        self.keepFloat(call)

    def move(self, call: Call) -> None:
        """Add a call that only copies: elements keep their dtype, or become 16 bits if any of them are."""
        values, y = call.values(), call.outs[0]
        kinds, half = {self.now(v).dtype for v in values}, HALVES.get(call.origin.precision)
        kind = self.kindOf(y) or (half if half in kinds else kinds.pop() if len(kinds) == 1 else FLOAT)
        if isFloat(y) and all(map(isFloat, values)):
            replacement = self.made(call, lambda v: self.to(v, kind), [kind])
            if replacement is call or moved(replacement) is not None:
                self.add(call, replacement)
                return
        self.keepFloat(call)

    def kernel(self, call: Call, halves: Halves) -> None:
        """Add a Kernel that multiplies or pools in one dtype; weight gradients are float32 if a library allows it."""
        half, factors, makes = HALVES.get(call.origin.precision), halves.of(call.arguments), halves.results or 0
        if half is not None and all(type(v) is Value and isFloat(v) for v in (*factors, *call.outs[:makes])):
            numbers = {v.number for v in factors}
            isExact = declared(call.function, "weight") == MAKES and not self.isPlanned(call, half)
            for kind in (FLOAT, half) if isExact else (half,):
                kinds = [kind if i < makes else None for i in range(len(call.outs))]
                replacement = self.made(call, lambda v: self.to(v, half) if v.number in numbers else self.now(v), kinds)
                if launchesOf(replacement, [])[0] is not None:
                    self.add(call, replacement)
                    return
        self.keepFloat(call)

    def cells(self, call: Call, halves: Halves) -> None:
        """Add cells over time steps: inputs and weights in 16 bits, other values as they are stored."""
        half = HALVES.get(call.origin.precision)
        if half is not None and all(map(isFloat, [y for y in call.outs if y is not None])):
            numbers = {v.number for v in halves.of(call.arguments)}
            kinds = [self.kindOf(y) for y in call.outs]
            replacement = self.made(call, lambda v: self.to(v, half) if v.number in numbers else self.now(v), kinds)
            if launchesOf(replacement, [])[0] is not None:
                self.add(call, replacement)
                return
        self.keepFloat(call)

    def isPlanned(self, call: Call, half: Any) -> bool:
        """True if a library computes a call in 16 bits, with a 16-bit result."""
        replacement = self.made(call, lambda v: self.to(v, half), [half] * len(call.outs))
        return libraryOf(replacement, replacement.outs[0]) is not NotImplemented


def cast(x: Value, y: Value, origin: CallOrigin) -> Call:
    """A call that converts x to y."""
    origin = origin._replace(phase="backward") if origin.phase == "update" else origin
    y.call = Call(astype, (x, y.dtype), {}, [y], "pointwise", origin)
    return y.call


def weightCasts(weights: dict[str, list[tuple[Value, Value]]], calls: list[Call]) -> list[Call]:
    """The calls that convert all weights that are read, in one launch if possible."""
    casts: list[Call] = []
    read = {v.root.number for call in calls for v in call.values()}
    for copies in weights.values():
        pairs = [(x, y) for x, y in copies if y.number in read]
        if pairs:
            xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
            call = FusedFormula("half", Formula("x")).call(xs, ys, CallOrigin("weights"))
            hasLaunches = call.function.launches(call) is not NotImplemented
            casts += [call] if hasLaunches else [cast(x, y, CallOrigin(x.name)) for x, y in pairs]
    return casts


def isFloat(v: Value) -> bool:
    """True if a Value is float32, which may be stored in 16 bits; float16 programs do not change."""
    return v.dtype == FLOAT


def isHalf(v: Value) -> bool:
    """True if a Value is stored in 16 bits."""
    return v.dtype in HALVES.values()


def scaled(v: Value, dtype: np.dtype) -> tuple[int, ...]:
    """The strides for the same layout in another dtype, without gaps."""
    size = v.dtype.itemsize
    if v.base is None and not isDense(v.shape, v.strides, size):
        return contiguous(v.shape, dtype.itemsize)
    return tuple([s // size * dtype.itemsize for s in v.strides])
