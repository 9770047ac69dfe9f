"""Rule cache: the rule programs of eager passes, by module configuration and by the layout of the arguments."""

from __future__ import annotations

from collections import OrderedDict
from itertools import chain
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from puregraph.compile.rules.formulaprogram import FormulaProgram
from puregraph.compile.rules.ruleprogram import RuleProgram
from puregraph.compile.runtime.buffers import Workspace
from puregraph.compile.runtime.compilelock import compiling
from puregraph.compile.runtime.errstate import raises
from puregraph.compile.trace.memo import MemoKeys
from puregraph.core.base.signals import isAsynchronous
from puregraph.core.errors import PuregraphError
from puregraph.core.versioning import COUNTER
from puregraph.graph.backward import Gradient, isOwn
from puregraph.graph.module import Module
from puregraph.graph.rulecalls import NativeRules

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from puregraph.core.rules import Rule
    from puregraph.ops.formula.interpreter import Interpreter

MAX_RULES = 256  # rules whose programs are kept, each for a configuration of a module
MAX_LAYOUTS = 16  # layouts that a rule is compiled for; arguments of further ones are left to numpy
MAX_SHAPES = 256  # layouts that an optimizer's update is compiled for: those of parameters
REALS = {np.dtype(np.float32), np.dtype(np.float64)}
Programs = dict[Any, Any]  # by the layout of the arguments, a RuleProgram, or None where numpy computes the rule


class RuleCache:
    """Runs large calls of this library's rules as programs, which are compiled on first use.

    Rules of a user's class, views, and rules that cannot be traced are left to numpy. A decision holds for as long as
    it is kept, so that equal arguments give equal bits.
    """

    def __init__(self) -> None:
        self.workspace = Workspace()
        self.rules: OrderedDict[Any, Programs] = OrderedDict()
        self.keys: WeakKeyDictionary[Module, tuple[Any, Any]] = WeakKeyDictionary()

    def run(self, module: Module, arguments: Sequence[Any]) -> tuple | None:
        """The results of a module's forward rule, or of a Gradient's gradient rule. None: numpy computes them."""
        largest = 0
        for x in arguments:
            if x is not None:
                if type(x) is not np.ndarray:
                    return None
                largest = max(largest, x.nbytes)
        if largest < NativeRules.leastBytes or raises():
            return None
        key = self.keyOf(module)
        if key is None:
            return None
        layout = tuple([None if x is None else (x.shape, x.strides, x.dtype) for x in arguments])
        program = self.programFor(key, layout, MAX_LAYOUTS, RuleProgram, module, arguments)
        return None if program is None else program(arguments)

    def gradient(
        self, module: Module, rule: Rule, needs: tuple[bool, ...], grad: Any, values: Sequence[Any]
    ) -> tuple | None:
        """One gradient per argument by a module's gradient rule, None where `needs` has False. None: numpy does it."""
        arguments = [*(grad if len(module.outputNames) > 1 else [grad]), *values]
        of = Gradient(module, needs, rule, [x is not None for x in arguments])
        results = self.run(of, [x for x in arguments if x is not None])
        if results is None:
            return None
        grads: list[Any] = [None] * len(needs)
        for i, new in zip(of.wanted, results):
            grads[i] = new
        return tuple(grads)

    def formulas(self, function: Interpreter, arguments: Sequence[Any], outs: Sequence[Any]) -> bool:
        """Compute formulas of large arrays, and write them to `outs`; False if numpy has to."""
        dtypes = {y.dtype for y in outs}
        if min(y.nbytes for y in outs) < NativeRules.leastBytes or len(dtypes) > 1 or not dtypes <= REALS:
            return False
        (work,) = dtypes
        arrays = [x if type(x) is np.ndarray and x.ndim else np.asarray(x, work) for x in arguments]
        if any(type(x) is not np.ndarray or x.dtype != work for x in (*arrays, *outs)):
            return False
        layout = tuple([(x.shape, x.strides) for x in (*arrays, *outs)])
        program = self.programFor((function, work), layout, MAX_SHAPES, FormulaProgram, function, arrays, outs)
        return program is not None and program.write(arrays, outs)

    def programFor(self, key: Any, layout: Any, most: int, kind: Callable[..., RuleProgram], *parts: Any) -> Any:
        """The program of a rule for arguments of this layout, one of at most `most`; None: numpy computes it."""
        programs = self.rules.get(key)
        if programs is None:
            if len(self.rules) >= MAX_RULES:
                self.rules.popitem(last=False)  # the rule that was added first
            programs = self.rules.setdefault(key, {})
        program = programs.get(layout, self)
        if program is self:
            program = self.compiled(programs, layout, kind, *parts) if len(programs) < most else None
        return program

    def compiled(self, programs: Programs, layout: Any, kind: Callable[..., RuleProgram], *parts: Any) -> Any:
        """Compile a rule for arguments of this layout; None if numpy has to compute it."""
        try:
            with compiling():
                if layout not in programs:  # another thread may have compiled it meanwhile
                    programs[layout] = self.attempt(kind, *parts)
                return programs[layout]
        except PuregraphError:  # a rule that is being traced, or a signal handler meanwhile, runs a pass
            return None

    def attempt(self, kind: Callable[..., RuleProgram], rule: Any, *arrays: Sequence[Any]) -> RuleProgram | None:
        """A program of a rule; None if it cannot be compiled."""
        if not all(x is None or x.dtype.isnative and min(x.strides, default=0) >= 0 for x in chain(*arrays)):
            return None
        try:
            return kind(rule, *arrays, self.workspace)
        except Exception as error:
            if isAsynchronous(error):
                raise
            return None

    def keyOf(self, module: Module) -> Any:
        """Everything that the calls of a rule depend on besides its arguments; None if numpy computes it."""
        if type(module) is not Gradient:
            return self.ofModule(module)
        of = module.of
        key = self.ofModule(of) if isOwn(module.rule, of) else None
        return None if key is None else (key, module.needed, module.present, type(of).updateGrad)

    def ofModule(self, module: Module) -> Any:
        """The configuration of a module, computed again once an attribute of any module was set."""
        mark = COUNTER.version  # read first, so that a later change is detected
        known = self.keys.get(module)
        if known is None or known[0] is not mark:
            known = self.keys[module] = mark, configuration(module)
        key: Any = known[1]
        return key if key is None or key[0] is type(module).updateData else configuration(module)


def configuration(module: Module) -> Any:
    """The class of a module with its rule, mode and attributes; None if numpy computes its rules.

    That is so for a user's class, for views, for modules that run a graph, and if an attribute can only be compared by
    identity.
    """
    kind, attributes = type(module), vars(module)
    isOurs = kind.__module__.startswith("puregraph.") and kind.updateData.__module__.startswith("puregraph.")
    if not isOurs or module.views or module.isGraph or module.exchanges or "updateData" in attributes:
        return None
    if any(isinstance(a, Module) and a.isGraph for a in attributes.values()):
        return None
    key = MemoKeys().of(module)
    return None if holdsIdentity(key) else (kind.updateData, key)


def holdsIdentity(key: Any) -> bool:
    """True if a part of a key is the identity of an object."""
    return type(key) is tuple and (key[:1] == ("id",) or any(map(holdsIdentity, key)))


CACHE = RuleCache()
