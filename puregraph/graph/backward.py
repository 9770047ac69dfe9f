"""BackwardGraph: the backward pass as a graph, made ahead of time from a forward one. `Graph.backward` runs it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import compress, repeat
from typing import TYPE_CHECKING, Any

from puregraph.core.accumulate import combine, shapeOf
from puregraph.core.applied import asGrads
from puregraph.core.base.cachedproperty import CachedProperty
from puregraph.core.errors import AutoDiffException, PuregraphError, need, show
from puregraph.core.linkednode import Edge
from puregraph.core.param import Param
from puregraph.core.rules import Rule, RuleContext, gradientRule
from puregraph.core.traversal import weakenReader
from puregraph.graph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.lookup import few
from puregraph.graph.module import Module, checkGrads, isFloat
from puregraph.graph.node import Node
from puregraph.graph.steps import ABSENT, GraphStep, Steps, inputNames

if TYPE_CHECKING:
    import numpy as np

    from puregraph.core.linkednode import Parents
    from puregraph.core.protocols import AnyArray
    from puregraph.core.shape import Shape


class ForwardValue(Input):
    """y = x: a value of the forward pass, or a parameter, as an input of the backward graph.

    Shapes    x any -> y the same
    Source    the residuals of reverse-mode differentiation; Griewank, Walther 2008, ch. 3
    """


class Gradient(Module):
    """dx = rule(dy, x, y): the gradient rule of one forward node, as a module of its own.

    Takes the gradients of the node's outputs, its arguments and its outputs; gives the gradients of those arguments
    that need one.

    Shapes    dy, x, y any -> dx as x
    Source    the vector-Jacobian product; Griewank, Walther 2008, ch. 3
    """

    def __init__(self, of: Module, needs: tuple[bool, ...], rule: Rule, present: list[bool]):
        super().__init__()
        self.of, self.needed, self.rule = of, needs, rule
        self.wanted = tuple(i for i, n in enumerate(needs) if n)
        self.grads = len(of.outputNames)
        self.present = None if all(present) else tuple(present)
        names = argumentNames(of, len(needs))
        self.names = tuple(f"d{names[i]}" for i in self.wanted)

    @property
    def outputNames(self) -> tuple[str, ...]:
        return self.names

    @CachedProperty
    def readsData(self) -> list[bool]:
        """For each gradient, argument and output, True if the rule reads its data, False if at most its shape."""
        of = self.of
        reads = of.reads if isOwn(self.rule, of) else getattr(self.rule, "reads", None)
        inputs = inputNames(of, len(self.needed) - len(of.ruleNames))
        names = [None] * self.grads + [*inputs, *of.ruleNames, *of.outputNames, *of.hidden]
        return [name is None or reads is None or name in reads for name in names]

    def complete(self, values: tuple) -> Any:
        """Return the values with None inserted for absent ones."""
        if self.present is None:
            return values
        left = iter(values)
        return tuple([next(left) if there else None for there in self.present])

    def dataShapeFrom(self, *shapes: Shape) -> Shape | list[Shape]:
        known = self.complete(shapes)[self.grads :]
        results = [known[i] for i in self.wanted]
        return results if len(results) > 1 else results[0]

    def dataTypeFrom(self, *dtypes: np.dtype | None) -> Any:
        known = self.complete(dtypes)[self.grads :]
        results = [known[i] for i in self.wanted]
        return results if len(results) > 1 else results[0]

    def updateData(self, *values: Any) -> tuple:
        values = self.complete(values)
        grads, arguments = values[: self.grads], values[self.grads :]
        if all(g is None for g in grads):
            return (None,) * len(self.wanted)
        results = asGrads(
            self.rule(grads[0] if self.grads == 1 else list(grads), *arguments),
            len(self.needed),
            type(self.of).__name__,
        )
        for i in self.wanted:
            if results[i] is not None and shapeOf(results[i]) != shapeOf(arguments[i]):
                need(
                    False,
                    f"its gradient rule to give shape {show(shapeOf(arguments[i]))} for argument {i}",
                    shapeOf(results[i]),
                )
        return tuple([results[i] for i in self.wanted])

    def flopsFrom(self, *shapes: Any) -> Any:
        inputs = self.complete(shapes)[self.grads : self.grads + len(self.needed) - len(self.of.ruleNames)]
        return self.of.flopsFrom(*inputs) * (sum(self.needed) if self.of.ruleNames else 1)

    def brief(self) -> str:
        return f"gradient of {self.of.brief()}"


class Accumulate(Module):
    """y = g1 + g2 + ...: the gradient of a value that several nodes read, in the order in which they ran.

    Shapes    every g the same -> y the same
    Source    the chain rule; Griewank, Walther 2008, ch. 3
    """

    keepsDtype = True

    def dataShapeFrom(self, *shapes: Shape) -> Shape:
        return shapes[0]

    def updateData(self, *grads: Any) -> Any:
        return (combine([g for g in grads if g is not None] or [None]),)

    def updateGrad(self, grad: Any, *values: Any, needs: tuple[bool, ...]) -> tuple:
        return tuple([grad if wanted else None for wanted in needs])


class BackwardGraph(Graph):
    """The backward pass of a graph as a graph: Gradient nodes, and Accumulate where a value has several readers.

    Its inputs are the output gradients and the forward values that the rules read. Its outputs are the gradients of the
    forward graph's inputs and parameters. The forward nodes' links are not changed.

    Called with the gradient of the output, it computes the gradient of the input from the forward graph's last pass.

    Shapes    as the forward graph's outputs -> as its inputs
    Source    AnalogVNN's BackwardGraph
    Raises    AutoDiffException if a node has no gradient rule; PuregraphError when called before a forward pass

    >>> net = Sequential(Linear(3, 2, name="fc"), Relu(name="relu"))
    >>> print(BackwardGraph(net))
    <BackwardGraph of Sequential: 2 nodes, d:relu -> grad:fc.dx, grad:fc.dW, grad:fc.db>
      grad:relu  gradient of Relu          <- d:relu, fc
      grad:fc    gradient of Linear(3, 2)  <- grad:relu, fc.x, fc.W
    """

    def __init__(
        self,
        graph: Graph,
        updGrad: bool = True,
        updParamGrads: bool = True,
        steps: Steps | None = None,
        name: str | None = None,
    ):
        Module.__init__(self, name)
        self.forwardGraph = graph
        self.forwardSteps = steps or graph.steps()
        self.version = 0
        self.build(updGrad, updParamGrads)

    # Building ---------------------------------------------------------------------------------------------------------

    def build(self, updGrad: bool, updParamGrads: bool) -> None:
        """Make the nodes, from the output gradients back to the gradients of inputs and parameters."""
        flat = self.forwardSteps
        stored = {number: getattr(module, name) for number, module, name in flat.params}
        wanted = dict.fromkeys(flat.inputs if updGrad else ())
        wanted |= dict.fromkeys(n for n, module, _ in flat.params if updParamGrads and self.asks(module, stored[n]))
        self.follow(self.plan(flat.outputs, wanted))
        self.inputGrads = [self.total(n) if updGrad else None for n in flat.inputs]
        self.paramGrads = [(p, self.total(n)) for n, p in stored.items() if n in wanted]
        outputs = [e for e in (*self.inputGrads, *(e for _, e in self.paramGrads)) if e is not None]
        used = set(behind(outputs))
        self.numbers = [n for n, node in self.values.items() if node in used]
        self.link([*self.seeds, *(self.values[n] for n in self.numbers)], outputs)

    def plan(self, targets: list[int], wanted: Iterable[int]) -> list[tuple[int, GraphStep, Gradient]]:
        """List the steps from targets back to wanted values, last first, each with its rule; no node is made yet."""
        flat = self.forwardSteps
        self.targets, self.reached = targets, set(targets)
        wants = self.requirements(wanted)
        planned = []
        for index in range(len(flat.items) - 1, -1, -1):
            step = flat.items[index]
            needs, hasGrad = wants[step], [n in self.reached for n in step.visible]
            if any(needs) and any(hasGrad):
                present = [*hasGrad, *(n != ABSENT for n in (*step.args, *step.outs))]
                context = RuleContext(step.node, self.forwardGraph, self, tuple(hasGrad))
                try:
                    rule = gradientRule(step.module, needs, step.node.rule, context)
                except AutoDiffException as error:
                    raise AutoDiffException(f"at '{step.path}' ({step.label}): {error}") from None
                module = Gradient(step.module, needs, rule, present)
                planned.append((index, step, module))
                self.reached.update(step.args[i] for i in module.wanted)
        return planned

    def follow(self, plan: list[tuple[int, GraphStep, Gradient]]) -> None:
        """Make the nodes of a plan, from the gradients of its targets on."""
        self.values: dict[int, Node] = {}
        self.gradientNodes: dict[GraphStep, Node] = {}
        self.contributions: dict[int, list[tuple[tuple[int, int], Edge]]] = defaultdict(list)
        self.seeds = [self.seed(index) for index in range(len(self.targets))]
        for index, step, module in plan:
            node = self.gradientNode(step, module)
            for slot, argument in enumerate(module.wanted):
                self.contributions[step.args[argument]].append(((index, argument), (node, slot)))

    def requirements(self, wanted: Iterable[int]) -> dict[GraphStep, tuple[bool, ...]]:
        """For each step, which of its arguments need a gradient: those through which a wanted value is reached."""
        requires = dict.fromkeys(wanted, True)
        needs = {}
        for step in self.forwardSteps.items:
            needs[step] = needsOf(step, requires)
            if any(needs[step]):
                requires.update(dict.fromkeys(step.visible, True))
        return needs

    def grow(self, module: Module, parents: Parents, name: str) -> Node:
        """Make a node with the name of its value, which may contain dots."""
        node = Node(module, parents)
        node.rename = name
        weakenReader(node)
        return node

    def asks(self, module: Any, param: Any) -> bool:
        """True if a module's parameter gets a gradient."""
        return module.wants(param)

    def seed(self, index: int) -> Node:
        """Make the input node for the gradient of one output; a value that is an output twice has two."""
        flat = self.forwardSteps
        number = self.targets[index]
        again = f"[{index}]" if number in self.targets[:index] else ""
        node = self.grow(Input(), None, f"d:{flat.names[number]}{again}")
        self.contributions[number].append(((len(flat.items), index), (node, 0)))
        return node

    def warnLeftOut(self) -> None:
        """Give no warning: an output gradient may be unused, if no wanted gradient depends on it."""

    def total(self, number: int) -> Edge | None:
        """The edge with the summed gradient of a value; None if no gradient reaches it."""
        terms = self.contributions.get(number, [])
        if len(terms) > 1:
            edges = [edge for _, edge in sorted(terms, key=lambda c: c[0])]
            terms = [((0, 0), (self.grow(Accumulate(), edges, f"sum:{self.forwardSteps.names[number]}"), 0))]
            self.contributions[number] = terms
        return terms[0][1] if terms else None

    def gradientNode(self, step: GraphStep, module: Gradient) -> Node:
        """The node that runs the gradient rule of a step."""
        grads = [self.total(n) for n in step.visible]
        sources = [*grads, *self.taken(step, module, grads)]
        node = self.grow(module, [s for s in sources if s is not None], f"grad:{step.path}")
        self.gradientNodes[step] = node
        return node

    def taken(self, step: GraphStep, module: Gradient, grads: list[Edge | None]) -> list[Edge | None]:
        """Return the edges of a step's arguments and outputs, which its gradient rule takes."""
        return [self.value(n) for n in (*step.args, *step.outs)]

    def value(self, number: int) -> Edge | None:
        """The edge of a forward value."""
        if number == ABSENT:
            return None
        if number not in self.values:
            self.values[number] = self.grow(ForwardValue(), None, self.forwardSteps.names[number])
        return self.values[number], 0

    def unfold(self, sizes: list[int]) -> Steps:
        """Unfold like any graph; its nodes' results are stored on the forward nodes only."""
        steps = super().unfold(sizes)
        steps.keepsData = False
        outs = {step.node: step.outs for step in steps.items}
        self.shown = []
        for step in self.forwardSteps.items:
            node = self.gradientNodes.get(step)
            numbers = outs.get(node, ()) if node is not None else ()
            wanted = node.module.wanted if node is not None else ()
            routes = [(i, n) for i, n in zip(wanted, numbers) if i < step.inputs]
            self.shown.append((step.node, step.inputs, routes))
        indexOf = {number: index for index, number in enumerate(self.forwardSteps.inputs)}
        entered = [(node, numbers[0]) for node, numbers in self.forwardSteps.shown if len(numbers) == 1]
        self.shownInputs = [(node, indexOf[number]) for node, number in entered if number in indexOf]
        return steps

    # Running ----------------------------------------------------------------------------------------------------------

    def gradients(
        self,
        grads: list[Any],
        values: list[Any],
        shows: bool = True,
        run: Callable[..., list[Any]] | None = None,
    ) -> tuple[list[Any], list[tuple[Param, Any]]]:
        """Compute the gradients of the inputs, and (parameter, gradient) pairs, from output gradients and a pass.

        The gradient is None for a trainable parameter that no output gradient reaches.

        Without `shows` the forward nodes keep their previous gradients. `run` replaces the execution: it maps this
        graph's input values to all of its values.
        """
        results = (run or self.steps().run)([*grads, *[values[n] for n in self.numbers]], outside=len(grads))
        inputs, params = self.collected(results)
        for index, number in enumerate(self.forwardSteps.inputs):
            if not isFloat(values[number]):
                inputs[index] = None
        if shows:
            self.show(results, inputs)
        return inputs, params

    def collected(self, results: list[AnyArray]) -> tuple[list[Any], list[tuple[Param, Any]]]:
        """Pick the input gradients, and (parameter, gradient) pairs, from all values of a pass."""
        remaining = iter([results[n] for n in self.steps().outputs])
        inputs = [None if edge is None else next(remaining) for edge in self.inputGrads]
        params: dict[int, tuple[Param, Any]] = {}
        for param, edge in self.paramGrads:
            new = None if edge is None else next(remaining)
            _, old = params.get(id(param), (param, None))
            params[id(param)] = param, old if new is None else new if old is None else old + new
        return inputs, list(params.values())

    def show(self, results: list[AnyArray], inputs: list[AnyArray | None]) -> None:
        """Set `grad` of every forward node to the gradient of its inputs; None if there is none."""
        for node, count, routes in self.shown:
            grads = [None] * count
            for argument, number in routes:
                grads[argument] = results[number]
            node.grad = grads[0] if count == 1 else grads
        for node, index in self.shownInputs:
            node.grad = inputs[index]

    def __call__(self, *gradient: Any, **keywords: Any) -> Any:
        last = self.forwardGraph.last
        if last is None or last.steps is not self.forwardSteps:
            raise PuregraphError(
                f"{self.title()}: no forward pass has been performed yet: call the forward graph first"
            )
        last.check()
        outputs = [last.values[n] for n in last.steps.outputs]
        grads: Any = gradient[0] if len(gradient) == 1 else list(gradient) or None
        inputs, _ = self.gradients(checkGrads(grads, outputs, self.title()), last.values)
        return inputs[0] if len(inputs) == 1 else inputs

    def sources(self, step: GraphStep, steps: Steps) -> list[str]:
        """The values that a step reads; without values of which it reads only the shape."""
        return [steps.names[n] for n in readsOf(step)]

    def __repr__(self) -> str:
        seeds = [self.paths.get(node, node.name) for node in self.seeds]
        return f"<{self.title()}: {self.nodeCount()}, {few(seeds)} -> {few(self.outputNames)}>"

    def title(self) -> str:
        return f"BackwardGraph of {self.forwardGraph.title()}"

    def __reduce__(self) -> tuple:
        raise TypeError(f"{self.title()} is made from its forward graph: copy or pickle that, and make it again")


def needsOf(step: GraphStep, requires: dict[int, bool]) -> tuple[bool, ...]:
    """Per argument of a step: true if it gets a gradient, because some wanted gradient depends on it."""
    names, skipped = step.module.arguments, (*step.module.indices, *step.module.masks)
    if step.module.isDiscrete:
        return (False,) * len(step.args)
    return tuple(
        [
            requires.get(n, False) and not (skipped and i < step.inputs and names[min(i, len(names) - 1)] in skipped)
            for i, n in enumerate(step.args)
        ]
    )


def behind(edges: list[Edge]) -> list[Node]:
    """All nodes that edges depend on."""
    seen: dict[Node, None] = {}
    stack = [node for node, _ in edges]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen[node] = None
            stack.extend(link.node for link in node.bwds)
    return list(seen)


def argumentNames(module: Module, count: int) -> list[str]:
    """Return unique names for `count` arguments: inputs, numbered if they share a name, then parameters."""
    names = [*inputNames(module, count - len(module.ruleNames)), *module.ruleNames]
    return [f"{name}{i}" if names.count(name) > 1 else name for i, name in enumerate(names)]


def readsOf(step: GraphStep) -> list[int]:
    """Return the values whose data a step of a backward graph reads; of others it reads at most the shape."""
    module = step.module
    flags = getattr(module, "readsData", repeat(True))
    return list(compress(step.args, compress(flags, getattr(module, "present", None) or repeat(True))))


def isOwn(rule: Rule | None, module: Module) -> bool:
    """True if a gradient rule is the module's own; only then does `reads` describe it."""
    return getattr(getattr(rule, "func", rule), "__self__", None) is module
