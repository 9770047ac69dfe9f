"""Fallback: run a step that cannot be compiled eagerly, and warn once where and why compiling failed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from puregraph.core.base.signals import isAsynchronous
from puregraph.core.errors import FormulaError, GraphWarning, PuregraphError, plural
from puregraph.core.errors.userwarning import warnUser
from puregraph.graph.steps import GraphStep
from puregraph.ops.ir.value import Call, CallOrigin
from puregraph.ops.native.llvm import jit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from puregraph.graph import Graph

REPORT = "results are the same, but slower; please report this with the graph, print(graph), so that it can be mended"
MAX_NAMED_NODES = 6  # most nodes that a warning names
WARNED: WeakKeyDictionary[Graph, set[str]] = WeakKeyDictionary()  # the warnings given so far, by graph


def isOwn(error: Exception) -> bool:
    """True if an exception is the user's: a fault of a graph or its shapes, out of memory, or from a signal handler.

    Other exceptions are faults of the compiler.
    """
    isUsers = isinstance(error, PuregraphError) and not isinstance(error, FormulaError)
    return isUsers or isinstance(error, (MemoryError, GraphWarning)) or isAsynchronous(error)


def warnOnce(graph: Graph, text: str) -> None:
    """Warn, unless the same warning was given for this graph."""
    warned = WARNED.setdefault(graph, set())
    if text not in warned:
        warned.add(text)
        warnUser(text, GraphWarning)


def noteHalves(graph: Graph) -> None:
    """Warn, once for each graph, if this machine multiplies no bfloat16, so that the permission changes nothing."""
    reason = jit.missing()
    if reason is None and not jit.multipliesBfloat16():
        reason = f"the processor ({jit.target().name}) has no AVX512-BF16"
    if reason is not None:
        warnOnce(graph, f'calcMode("bfloat16") changes nothing here: {reason}; steps calculate in float32')


def nodesIn(error: Exception, graph: Graph) -> str:
    """The nodes being compiled when an exception was raised, or all nodes of the graph: "at 'a', 'b': "."""
    nodes = dict.fromkeys(next(filter(None, map(list, map(nodesOf, framesOf(error)))), []))
    if not nodes:
        nodes = dict.fromkeys((s.path, s.label) for s in graph.steps(len(graph.inputs) or None).items)
    names = [f"'{path}' ({label})" for path, label in nodes]
    more = f" and {plural(len(names) - MAX_NAMED_NODES, 'node')} more" if len(names) > MAX_NAMED_NODES else ""
    return f"at {', '.join(names[:MAX_NAMED_NODES])}{more}: "


def framesOf(error: Exception) -> list[dict[str, Any]]:
    """The local variables of the frames that an exception passed through, innermost first."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame.f_locals)
        trace = trace.tb_next
    return frames[::-1]


def nodesOf(variables: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Path and label of the nodes whose calls and steps are local variables of a frame."""
    candidates = [*variables.values(), *getattr(variables.get("group"), "calls", ())]
    for x in candidates:
        if isinstance(x, GraphStep):
            yield x.path, x.label
        origin = x.origin if isinstance(x, Call) else x
        if isinstance(origin, CallOrigin) and origin.label:
            yield origin.path, origin.label
