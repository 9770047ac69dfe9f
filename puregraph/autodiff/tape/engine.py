"""The engine: gradients flow from seeds through a backward graph, each node once, all its contributions together.

Nodes run in the reverse of the order in which they were made, so every node runs after all its readers. What the
readers of one value contribute is combined in the order in which they ran forward, then by argument, which makes sums
repeat to the last bit and texts read in order. `None` is no gradient, and a node that gets none does not run. Nothing
is written to but sums that the engine itself made. Leaves receive theirs at the end: a pass that fails changes none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.autodiff.tape.gradmode import MODE
from puregraph.autodiff.tape.tapenode import GradientEdge, LeafAccumulator, TapeNode, get_gradient_edge, total
from puregraph.core.accumulate import combine, isArray, needPlain, seedLike, shapeOf
from puregraph.core.base.dtype import isNumeric
from puregraph.core.base.mutex import Mutex
from puregraph.core.errors import AutoDiffException, addLocation
from puregraph.core.hooks import HOOKS
from puregraph.core.tracer import Tracer

if TYPE_CHECKING:
    from puregraph.autodiff.tape.variable import Variable
    from puregraph.core.protocols import AnyArray

Add = Callable[[Any, Any], Any]
LOCK = Mutex()


class CycleError(AutoDiffException, ValueError):
    """The `next_functions` of nodes lead back to where they came from.

    >>> y = Variable(np.ones(2), requires_grad=True) * 2
    >>> y.grad_fn.next_functions = [GradientEdge(y.grad_fn, 0)]
    >>> try:
    ...     y.sum().backward()
    ... except CycleError as error:
    ...     print(type(error).__name__)
    CycleError
    """


def run(
    seeds: Sequence[tuple[GradientEdge, Any]],
    capture: Sequence[GradientEdge] | None = None,
    accumulate: Add | None = None,
    retain_graph: bool = False,
    create_graph: bool = False,
    stores: bool | None = None,
) -> list[Any]:
    """Send seeds backward through the graph and return the gradients at the edges of `capture`.

    `stores`: store gradients in leaves (those of `capture`, or all) and for `retain_grad`; by default only if nothing
    is captured.

    Raises    what a rule raises, with the name of its node; CycleError
    """
    before, MODE.enabled = MODE.enabled, create_graph
    try:
        return walk(seeds, capture, accumulate, retain_graph, capture is None if stores is None else stores)
    finally:
        MODE.enabled = before


def walk(
    seeds: Sequence[tuple[GradientEdge, Any]],
    capture: Sequence[GradientEdge] | None,
    add: Add | None,
    retain_graph: bool,
    stores: bool,
) -> list[Any]:
    """Run the backward pass in the current recording mode; see `run`."""
    order, wanted, pending = planned(seeds, capture)
    captured: dict[tuple[TapeNode, int], Any] = {}
    news: list[tuple[Any, list[Any]]] = []  # (receiver, gradients)
    ran: list[TapeNode] = []
    node: Any = None
    look = HOOKS.look
    try:
        for node in order:
            arriving = pending.pop(node)
            if type(node) is LeafAccumulator:
                if arriving:
                    parts = settled(node, arriving, add)
                    news.append((node.variable, parts))
                    if node in wanted:
                        captured[node, 0] = combine(parts, add)
                continue
            isOne = node.num_outputs == 1
            if not arriving or not isOne and not any(arriving):
                continue
            grads: tuple = (
                (total(arriving, add),) if isOne else tuple([total(contributions, add) for contributions in arriving])
            )
            if node.hooks or node.kept:
                grads = watched(node, grads, news)
            edges = node.edges
            if wanted:
                captured.update({(node, i): grads[i] for i in wanted.get(node, ())})
                if not any(target in pending for target, _ in edges):
                    continue
            results = node.apply(*grads)
            if type(results) is not tuple:
                results = (results,)
            if look is not None:
                look(node.name(), node, grads, results, True)
            if node.hooks:
                results = afterwards(node.hooks.get(None, ()), results, grads)
            if len(results) != len(edges):
                raise AutoDiffException(f"{node.name()} returned {len(results)} gradients, expected {len(edges)}")
            ran.append(node)
            for (target, number), g in zip(edges[::-1], results[::-1]):
                if g is not None and target in pending:
                    (pending[target] if target.num_outputs == 1 else pending[target][number]).append(g)
    except Exception as error:
        if not node.locates_errors:
            addLocation(error, f"at {node.name()}, backward")
        raise
    if stores:
        deliver(news)
    for node in () if retain_graph else ran:
        node.release()
    return [captured.get((edge.node, edge.output_nr)) for edge in capture or ()]  # type: ignore[arg-type]


def planned(
    seeds: Sequence[tuple[GradientEdge, Any]], capture: Sequence[GradientEdge] | None
) -> tuple[list[TapeNode], dict[TapeNode, set[int]], dict[TapeNode, Any]]:
    """Plan a pass: the nodes in execution order, the captured outputs, and the seeds as each node's contributions."""
    order = topological([edge.node for edge, _ in seeds if edge.node is not None])
    wanted: dict[TapeNode, set[int]] = {}
    if capture is not None:
        for edge in capture:
            wanted.setdefault(edge.node, set()).add(edge.output_nr)  # type: ignore[arg-type]
        order = leading(order, wanted)
    pending: dict[TapeNode, Any] = {n: [] if n.num_outputs == 1 else [[] for _ in range(n.num_outputs)] for n in order}
    for (node, number), g in reversed(seeds):
        if g is not None and node in pending:
            (pending[node] if node.num_outputs == 1 else pending[node][number]).append(g)
    return order, wanted, pending


def watched(node: TapeNode, grads: tuple, news: list[tuple[Any, list[Any]]]) -> tuple:
    """Pass a node's gradients through its hooks, and note those for `retain_grad`."""
    if node.hooks:
        grads = tuple([g if g is None else hooked(node.hooks.get(i, ()), g) for i, g in enumerate(grads)])
    if node.kept:
        news += [(v(), [grads[i]]) for i, kept in node.kept.items() for v in kept if grads[i] is not None]
    return grads


def deliver(news: list[tuple[Any, list[Any]]]) -> None:
    """Deliver gradients to leaves, in the order in which they ran forward."""
    with LOCK.lock:  # two threads may add to one leaf
        for variable, parts in reversed(news):
            if variable is not None:
                variable.receive(parts)


def settled(leaf: LeafAccumulator, gradients: list[AnyArray], add: Add | None) -> list[Any]:
    """Combine a leaf's contributions: their sum for an array or with `accumulate`; otherwise a list in order."""
    parts = [total(gradients, add)] if add is not None or isArray(gradients[0]) else gradients[::-1]
    return [hooked(leaf.hooks.get(0, ()), g) for g in parts] if leaf.hooks else parts


def topological(roots: list[TapeNode]) -> list[TapeNode]:
    """Every node behind some roots, each after all its readers."""
    seen = set(roots)
    stack = list(seen)
    inOrder = True
    while stack:
        node = stack.pop()
        number = node.sequence_nr
        for target, _ in node.edges:
            if target is not None:
                if target.sequence_nr >= number:
                    inOrder = False
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
    if inOrder:
        return sorted(seen, key=attrgetter("sequence_nr"), reverse=True)
    return relinked(seen)


def relinked(nodes: set[TapeNode]) -> list[TapeNode]:
    """Return the topological order of nodes with edges set by hand, which may lead to newer nodes.

    Raises    CycleError if there is a cycle
    """
    readers = dict.fromkeys(nodes, 0)
    for node in nodes:
        for target, _ in node.edges:
            if target is not None:
                readers[target] += 1
    ready = [(-node.sequence_nr, node) for node in nodes if not readers[node]]
    heapify(ready)
    order = []
    while ready:
        _, node = heappop(ready)
        order.append(node)
        for target, _ in node.edges:
            if target is not None:
                readers[target] -= 1
                if not readers[target]:
                    heappush(ready, (-target.sequence_nr, target))
    if len(order) < len(nodes):
        names = ", ".join(sorted(node.name() for node in nodes.difference(order)))
        raise CycleError(f"Cycle detected: next_functions lead from {names} back to themselves")
    return order


def leading(order: list[TapeNode], wanted: dict[TapeNode, set[int]]) -> list[TapeNode]:
    """Return the nodes that lead to a wanted one, in order."""
    lead = set(wanted)
    for node in reversed(order):
        if any(target in lead for target, _ in node.edges):
            lead.add(node)
    return [node for node in order if node in lead]


def hooked(hooks: Sequence[Callable[[Any], Any]], g: Any) -> Any:
    """Pass a gradient through hooks: each may return another one, or None to keep it."""
    for hook in list(hooks):
        new = hook(g)
        g = g if new is None else new
    return g


def afterwards(hooks: Sequence[Callable[..., Any]], results: tuple, grads: tuple[AnyArray, ...]) -> tuple:
    """Pass a node's results through its hooks, which may replace them."""
    for hook in list(hooks):
        new = hook(results, tuple(grads))
        results = results if new is None else tuple(new)
    return results


# Passes ---------------------------------------------------------------------------------------------------------------


def backward(
    variables: Any,
    grad_variables: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
    accumulate: Add | None = None,
) -> None:
    """Add d(sum of grad_variable * v)/dleaf to the `grad` of every leaf behind these Variables.

    `grad_variables`  one gradient per Variable; optional for a single number (it is 1) and for values other than arrays
    `retain_graph`    keep the residuals of the rules for another pass; default: as `create_graph`
    `create_graph`    record the pass itself, so that gradients can be differentiated again
    `inputs`          only these Variables or GradientEdges get their gradient
    `accumulate`      how contributions are combined in this pass, in place of `puregraph.core.accumulate.accumulate`

    Raises    AutoDiffException for a Variable without a gradient, TypeError for any other type
    """
    seeds = seedsFor(variables, grad_variables)
    retain = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        run(seeds, None, accumulate, retain, create_graph)
        return
    wanted = listed(inputs)
    if not wanted:
        raise AutoDiffException("backward: inputs is empty; leave it out to mean every leaf")
    edges = [edgeOf(v) for v in wanted]
    for edge in edges:
        if not isinstance(edge.node, LeafAccumulator):
            raise AutoDiffException(
                f"backward: inputs must be leaves, got one that {edge.node} made; `grad` takes any Variable"
            )
    run(seeds, edges, accumulate, retain, create_graph, stores=True)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
    accumulate: Add | None = None,
) -> tuple:
    """Compute and return the gradients of outputs with respect to inputs (Variables or GradientEdges); store nothing.

    Arrays come back as arrays, with `create_graph` as Variables that can be differentiated again.

    Raises    AutoDiffException for an input that the outputs do not depend on, unless `allow_unused`: then None
    """
    wanted = listed(inputs)
    edges = [edgeOf(v) for v in wanted]
    seeds = seedsFor(outputs, grad_outputs)
    retain = create_graph if retain_graph is None else retain_graph
    gradients = run(seeds, edges, accumulate, retain, create_graph)
    for position, (v, g) in enumerate(zip(wanted, gradients)):
        if g is None and not allow_unused:
            raise AutoDiffException(
                f"grad: the outputs do not depend on input {position}, {v!r:.80}; allow_unused=True gives None for it"
            )
    if create_graph:
        kind: Any = next(type(v) for v in (*wanted, *listed(outputs), *gradients) if isinstance(v, Tracer))
        return tuple([kind(g) if isArray(g) and not isinstance(g, Tracer) else g for g in gradients])
    return tuple([g.copy() if isArray(g) else g for g in gradients])  # never a caller's seed or shared memory


def listed(value: Any) -> list[Any]:
    """Wrap a single Variable, edge or gradient in a list; copy a sequence."""
    isOne = isinstance(value, (Tracer, GradientEdge, str)) or not isinstance(value, Sequence)
    return [value] if isOne else list(value)


def edgeOf(value: Variable) -> GradientEdge:
    """The edge of a Variable, or an edge itself."""
    if isinstance(value, GradientEdge):
        return value
    if not hasattr(value, "edge"):
        raise TypeError(f"wanted a Variable or a GradientEdge, got {type(value).__name__}")
    return get_gradient_edge(value)


def seedsFor(outputs: Any, grads: Any) -> list[tuple[GradientEdge, Any]]:
    """Pair each output's edge with its gradient."""
    listedOutputs = listed(outputs)
    isRow = isinstance(getattr(outputs, "data", None), list)  # one Variable whose gradient is a list
    gradients = [None] * len(listedOutputs) if grads is None else [grads] if isRow else listed(grads)
    if len(gradients) != len(listedOutputs):
        raise AutoDiffException(f"wanted {len(listedOutputs)} gradients, one per output, got {len(gradients)}")
    seeds = []
    for v, g in zip(listedOutputs, gradients):
        edge = edgeOf(v)
        seeds.append((edge, seed(getattr(v, "data", None), g)))
    return seeds


def seed(value: Any, g: Any) -> Any:
    """The gradient that a pass starts with at a value: of an array in its shape and dtype, one number for all of it.

    Raises    AutoDiffException for a gradient of another shape, or for none where there is more than one number
    """
    needPlain(g, "backward, the gradient")
    if not isArray(value):
        return seedLike(value) if g is None else g
    if type(g) is np.ndarray and not isNumeric(g.dtype) or isinstance(g, (str, complex)):
        kind = getattr(g, "dtype", type(g).__name__)
        raise AutoDiffException(f"wanted a gradient of {value.dtype}, got {kind}: convert it with .astype")
    if g is None:
        if value.size != 1:
            raise AutoDiffException(
                f"grad can be implicitly created only for scalar outputs, got shape {shapeOf(value)}: give one"
            )
        return seedLike(value)[()] if isinstance(value, np.generic) else seedLike(value)
    if isinstance(g, Tracer):
        if g.shape != value.shape:
            raise AutoDiffException(f"wanted a gradient of shape {shapeOf(value)}, got {shapeOf(g)}")
        return g if g.dtype == value.dtype else g.astype(value.dtype)
    if np.ndim(g) and np.shape(g) != shapeOf(value):
        raise AutoDiffException(f"wanted a gradient of shape {shapeOf(value)}, got {np.shape(g)}")
    if isArray(g) and g.dtype == value.dtype and shapeOf(g) == shapeOf(value):
        return g
    return np.full_like(value, g)[()] if isinstance(value, np.generic) else np.full_like(value, g)
