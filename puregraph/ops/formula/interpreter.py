"""Interpreter: runs the expressions of formulas as a flat list of numpy calls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.core.base.dtype import isFloating, isNumeric, promoted
from puregraph.core.errors import DataError, DtypeError, FormulaError
from puregraph.core.tracer import tracerOf
from puregraph.ops.formula.expr import TRUTHS, Term, leaf, lower, rebuild, walk
from puregraph.ops.formula.optable import LOGICAL, TABLE

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray

BOOL = np.dtype(bool)
HINT = "Convert them with .astype('float32')"
BLOCK_ELEMENTS = 1 << 17  # elements of a block: larger numpy arrays are computed in blocks, which stay in the cache


def select(c: Any, a: Any, b: Any) -> AnyArray:
    """np.where; on large float32 arrays by bit masks, six times as fast as its mispredicted branches."""
    if type(c) is not np.ndarray or c.size < 4096 or c.dtype != bool or not a.dtype == b.dtype == np.float32:
        return np.where(c, a, b)
    a, b, mask = a.view(np.int32), b.view(np.int32), np.negative(c.view(np.int8), dtype=np.int32)
    return ((a ^ b) & mask ^ b).view(np.float32)


def exact(function: Any) -> Any:
    """A rounding function that leaves integers and booleans unchanged."""

    def rounded(x: Any, out: Any | None = None) -> Any:
        return function(x, out=out) if x.dtype.kind == "f" else np.bitwise_or(x, x, out=out)

    return rounded


ROUNDING = {function: exact(function) for function in (np.floor, np.ceil, np.rint, np.trunc)}


class EvalPlan(NamedTuple):
    """The part of an evaluation that depends on the arguments' dtypes."""

    casts: list[int]  # the registers to convert
    work: np.dtype[Any] | None  # the float type to compute in; None: each operation in numpy's type, for integers
    rest: list[Any]  # the registers after the arguments: numbers, then workspace for results
    back: np.dtype[Any] | None  # the float type of the results, if it differs from `work`
    results: list[np.dtype[Any]]  # the dtypes of the results


class Interpreter:
    """A function of arrays, in the order of `names`, that computes several terms.

    Arguments and numbers are stored in registers; each operation reads registers and writes one, which is reused after
    its last reader. Equal terms are computed once. Computation is in the promoted type of the float arguments (float32
    for 16-bit floats, rounded once at the end); constants, integers and booleans are converted to it. Without a float
    argument nothing is converted: each operation has numpy's result type, so integers stay exact.
    """

    def __init__(self, terms: Sequence[Term], names: Sequence[str]):
        roots = [rebuild(t, {}, lower) for t in terms]
        order = walk(*roots)
        self.names, self.terms = tuple(names), tuple(terms)
        self.numbers = [t.value for t in order if t.op == "number"]
        leaves = [leaf(name) for name in names] + [t for t in order if t.op == "number"]
        registers = {t: i for i, t in enumerate(leaves)}
        missing = [t.value for t in order if t.op == "name" and t not in registers]
        if missing:
            raise FormulaError(
                f"wanted a formula of {', '.join(names) or 'no name'}, got one of {', '.join(missing)} too"
            )
        self.steps, self.size = _steps(order, roots, registers)
        self.integerSteps = [(ROUNDING.get(function, function), *rest) for function, *rest in self.steps]
        self.results = [registers[root] for root in roots]
        self.logical = [root.op in LOGICAL for root in roots]
        self.direct = bool(self.steps) and type(self.steps[-1][0]) is np.ufunc and self.logical == [False]
        self.reads = [{registers[t] for t in walk(root) if t.op == "name"} for root in roots]
        asNumber = {a for t in order for a, truth in zip(t.args, _truths(t)) if not truth}.union(roots)
        self.numeric = [leaf(name) in asNumber for name in names]  # a value used only as a condition may stay bool
        self.plans: dict[tuple[Any, ...], EvalPlan] = {}

    def __call__(self, *arrays: Any, out: Sequence[Any] | None = None) -> Sequence[Any]:
        if len(arrays) != len(self.names):
            wanted = f"{len(self.names)} arrays ({', '.join(self.names)})"
            raise FormulaError(f"a formula wants {wanted}, got {len(arrays)}")
        tracer = tracerOf(arrays)
        if tracer is not None:
            return tracer.handle(self, arrays, {})
        dtypes = tuple([getattr(a, "dtype", None) for a in arrays])
        plan = self.plans.get(dtypes) or self.plan(dtypes)
        if plan.work is None and any(type(a) is float for a in arrays):
            return self(*[np.float64(a) if type(a) is float else a for a in arrays], out=out)
        with np.errstate(all="ignore"):  # discarded branches overflow, and a GPU does not warn either
            done = None
            if len(self.steps) > 2 and isLarge(arrays):
                done = self.blockwise(plan, arrays, out)
            try:
                return self.evaluate(plan, arrays, out) if done is None else done
            except ValueError as error:
                if plan.work is None and "negative integer powers" in str(error):
                    raise DataError(f"a formula of integers: {error} {HINT}") from None
                raise

    def plan(self, dtypes: tuple[np.dtype | None, ...]) -> EvalPlan:
        """The cached plan for arguments of these dtypes."""
        plan = self.plans.get(dtypes)
        if plan is None:
            plan = self.plans[dtypes] = self.newPlan(dtypes)
        return plan

    def newPlan(self, dtypes: tuple[Any, ...]) -> EvalPlan:
        """Make the plan for arguments of these dtypes; None stands for a number.

        Raises    DtypeError for arguments that are not numbers
        """
        wrong = [f"{name} is {d}" for name, d in zip(self.names, dtypes) if d is not None and not isNumeric(d)]
        if wrong:
            raise DtypeError(f"a formula wants arrays of float, int or bool; {', '.join(wrong)}")
        floats = [d for d in dtypes if d is not None and isFloating(d)]
        if not floats and any(d is not None for d in dtypes):
            return self.integerPlan(dtypes)
        exact = promoted(floats) if floats else np.dtype(np.float64)
        work = np.promote_types(exact, np.float32)
        casts = [i for i, d in enumerate(dtypes) if d != work and self.numeric[i]]
        with np.errstate(all="ignore"):
            numbers = [work.type(value) for value in self.numbers]
        rest = numbers + [None] * (self.size - len(self.names) - len(numbers))
        results = [BOOL if logical else exact for logical in self.logical]
        return EvalPlan(casts, work, rest, exact if exact != work else None, results)

    def integerPlan(self, dtypes: tuple[object, ...]) -> EvalPlan:
        """The plan for arguments without floats: numpy's result types, taken from a run on ones.

        Raises    DtypeError for an operation that numpy does not support, such as the difference of booleans
        """
        rest = [*self.numbers, *[None] * (self.size - len(self.names) - len(self.numbers))]
        plan = EvalPlan([], None, rest, None, [])
        ones = [1 if d is None else np.ones(1, d) for d in dtypes]
        named = ", ".join(f"{name} {d}" for name, d in zip(self.names, dtypes) if d is not None)
        try:
            with np.errstate(all="ignore"):
                results = self.evaluate(plan, ones)
        except (TypeError, ValueError, OverflowError) as error:
            raise DtypeError(f"a formula has no result for {named}: {error}; convert with .astype('float32')") from None
        return plan._replace(results=[np.asarray(y).dtype for y in results])

    def evaluate(self, plan: EvalPlan, arrays: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        casts, work, rest, back, kinds = plan
        registers = [*arrays, *rest]
        if work is not None:
            for i in casts:
                a = registers[i]
                registers[i] = a.astype(work) if hasattr(a, "astype") else work.type(a)
        steps = self.steps if work is not None else self.integerSteps
        direct = out is not None and self.direct and back is None and bool(kinds) and out[0].dtype == kinds[0]
        for function, arguments, target in steps[:-1] if direct else steps:
            registers[target] = function(*arguments(registers))
        if out is not None and direct:
            function, arguments, _ = steps[-1]
            function(*arguments(registers), out=out[0])
            return out
        results = [registers[i] for i in self.results]
        if back is not None:
            results = [y if y.dtype == bool else y.astype(back) for y in results]
        if out is None:
            return results
        for target, y in zip(out, results):
            target[...] = y
        return out

    def blockwise(self, plan: EvalPlan, arrays: Sequence[Any], out: Sequence[Any] | None) -> Sequence[Any] | None:
        """`evaluate` in pieces of the first axis, or of all if contiguous; None where that cannot be done."""
        shapes = [np.shape(a) for a in arrays]
        shape = np.broadcast_shapes(*shapes)
        whole = {i for i, own in enumerate(shapes) if own == shape}
        inner = [a for a, own in zip(arrays, shapes) if own]
        if not all(type(a) is np.ndarray for a in inner) or not all(whole & reads for reads in self.reads):
            return None
        flat = all(a.shape == shape and a.flags.c_contiguous for a in inner)
        flat = flat and all(type(y) is np.ndarray and y.shape == shape and y.flags.c_contiguous for y in out or ())
        size = math.prod(shape)
        rows = size if flat else shape[0]
        step = max(1, BLOCK_ELEMENTS * rows // size)
        if step >= rows:
            return None
        parts = [a.reshape(-1) if flat and own else a for a, own in zip(arrays, shapes)]
        cut = [own == shape or (len(own) == len(shape) and own[0] == rows) for own in shapes]
        if out is None:
            out = [np.empty_like(arrays[min(whole)], dtype=dtype) for dtype in plan.results]
        targets = [y.reshape(-1) for y in out] if flat else out
        for start in range(0, rows, step):
            piece = slice(start, start + step)
            pieces = [a[piece] if sliced else a for a, sliced in zip(parts, cut)]
            self.evaluate(plan, pieces, [y[piece] for y in targets])
        return out


def isLarge(arrays: Sequence[AnyArray | float]) -> bool:
    """True if any array is processed in blocks."""
    for a in arrays:
        if type(a) is np.ndarray and a.size >= 2 * BLOCK_ELEMENTS:
            return True
    return False


def _truths(t: Term) -> tuple[bool, ...]:
    return TRUTHS.get(t.op, (False,) * len(t.args))


def _steps(order: list[Term], roots: list[Term], registers: dict[Term, int]) -> tuple[list[Any], int]:
    """(function, getter of its arguments, target) for every operation, and the number of registers."""
    last = {a: i for i, t in enumerate(order) for a in t.args}
    size, steps = len(registers), []
    free: list[int] = []
    for i, t in enumerate(order):
        if not t.args:
            continue
        read = [registers[a] for a in t.args]
        free += [registers[a] for a in dict.fromkeys(t.args) if a.args and last[a] == i and a not in roots]
        if not free:
            free, size = [size], size + 1
        registers[t] = free.pop()
        arguments = itemgetter(*read) if len(read) > 1 else itemgetter(slice(read[0], read[0] + 1))
        steps.append((select if t.op == "where" else TABLE[t.op].numpy, arguments, registers[t]))
    return steps, size
