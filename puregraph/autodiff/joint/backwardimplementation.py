"""BackwardImplementation: a gradient rule written as a module, or a whole graph, that runs in the backward pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from puregraph.core.accumulate import zeroLike
from puregraph.core.errors import AutoDiffException
from puregraph.core.rules import Registered, RuleContext, register
from puregraph.graph.backward import argumentNames, inputNames
from puregraph.graph.lookup import nearest
from puregraph.graph.module import Module
from puregraph.graph.node import Node

if TYPE_CHECKING:
    from puregraph.graph.graph import Graph


@dataclass(frozen=True)
class BackwardContext:
    """The location of a reverse node. There is one level, so a graph is its own state.

    Unknown entries are None, as for a module without a graph.

    >>> BackwardContext().forward_sdfg is None              # a module without a graph
    True
    """

    forward_sdfg: Any = None
    forward_state: Any = None
    backward_sdfg: Any = None
    backward_state: Any = None
    backward_generator: Any = None


@dataclass(frozen=True)
class BackwardResult:
    """The names of the gradients that a reverse node, or a whole backward pass, gives and takes.

    `required_grad_names`   name of a forward input or parameter -> name of its gradient, an output of the reverse node
    `given_grad_names`      name of a forward output -> name of its gradient, an input of the reverse node

    None names the only one: of the forward node's inputs or outputs, of the reverse node's outputs, and of its inputs
    that are no values of the forward node.
    """

    required_grad_names: dict[str | None, str | None] = field(default_factory=dict)
    given_grad_names: dict[str | None, str | None] = field(default_factory=dict)


class BackwardImplementation(ABC):
    """dx = reverse(dy, x, y): the gradient rule of a type of module, given as a reverse node.

        @BackwardImplementation.register(op="Tanh", name="default")
        class TanhBackward(BackwardImplementation):
            @staticmethod
            def backward(forward_node, context, given_gradients, required_gradients):
                reverse = Pointwise(formula="dy * (1 - y * y)")  # its input y is the output y of the forward node
                return reverse.node(), BackwardResult({"x": "y"}, {"y": "dy"})

    Once registered it is used by `Graph.backward`, `BackwardGraph` and `add_backward_pass`. Of several rules that can
    be applied, that of the nearest type is used; of one type, that named "default", else the first by name. A node made
    with `rule=name` uses the one of that name.
    """

    @classmethod
    def register(cls, node_type: type | None = None, op: str | None = None, name: str | None = None) -> Any:
        """Register a class for modules that are instances of `node_type`, or whose type is named `op`.

        `op` may also be the operator of ONNX that nodes were read from, "Conv" or "Gemm". An operator that was
        read as several nodes does not match; the types of those nodes do.

        A decorator; called on a subclass, it registers that.

        Raises    ValueError without a name, without exactly one of `node_type` and `op`, or if that name is taken
        """
        if not (isinstance(name, str) and name):
            raise ValueError(f"{cls.__name__}.register: wanted name=, a text of the implementation's own, got {name!r}")
        if not (isinstance(node_type, type) and op is None or isinstance(op, str) and op and node_type is None):
            raise ValueError(
                f"{cls.__name__}.register: wanted node_type=, a class of modules, or op=, the name of one, "
                f"got node_type={node_type!r} and op={op!r}"
            )

        def keep(implementation: type[BackwardImplementation]) -> type[BackwardImplementation]:
            if not (isinstance(implementation, type) and issubclass(implementation, BackwardImplementation)):
                raise ValueError(f"register: wanted a subclass of BackwardImplementation, got {implementation!r}")
            register(node_type or op or "", name, Registered(implementation.rule, implementation.applies))
            return implementation

        return keep if cls is BackwardImplementation else keep(cls)

    @staticmethod
    def backward_can_be_applied(node: Node, state: Graph | None, sdfg: Graph | None) -> bool:
        """True if `backward` can be used for a node; `state` and `sdfg` are both the node's graph."""
        return True

    @staticmethod
    @abstractmethod
    def backward(
        forward_node: Node, context: BackwardContext, given_gradients: list[str], required_gradients: list[str]
    ) -> tuple[Node, BackwardResult]:
        """The reverse node of a forward node, and the names of the gradients that it takes and gives.

        `given_gradients` names the forward outputs that have a gradient, `required_gradients` the inputs and
        parameters that need one. The reverse node's other inputs are named like the forward node's inputs, parameters,
        outputs and hidden outputs that they take.
        """
        raise NotImplementedError(
            "write a static method backward(forward_node, context, given_gradients, required_gradients)"
        )

    @classmethod
    def applies(cls, module: Module, where: RuleContext) -> bool:
        return cls.backward_can_be_applied(nodeOf(module, where), where.graph, where.graph)

    @classmethod
    def rule(cls, module: Module, needs: tuple[bool, ...], where: RuleContext) -> _Reverse:
        """The reverse node as a gradient rule, for the lookup that all gradients share."""
        names = argumentNames(module, len(needs))
        hasGrad = where.hasGrad or (True,) * len(module.outputNames)
        required = [name for name, needed in zip(names, needs, strict=True) if needed]
        forward, backward = where.graph, where.backward
        reverse = cls.backward(
            nodeOf(module, where),
            BackwardContext(forward, forward, backward, backward, backward),
            [name for name, there in zip(module.outputNames, hasGrad, strict=True) if there],
            required,
        )
        node, result = reverse if isinstance(reverse, tuple) and len(reverse) == 2 else (reverse, None)
        if not (isinstance(node, Node) and isinstance(result, BackwardResult)):
            raise AutoDiffException(f"{cls.__name__}.backward: wanted (Node, BackwardResult), got {reverse!r}")
        return _Reverse(cls.__name__, module, needs, hasGrad, node, result)


def nodeOf(module: Module, where: RuleContext) -> Node:
    """Return the node of a rule's context, or a new node for a module without a graph."""
    return Node(module) if where.node is None else where.node


def paired(names: Sequence[str], table: dict[str | None, str | None], connectors: Sequence[str]) -> list[str | None]:
    """Look up the connector of each name in a BackwardResult's table; None there is the only name or connector."""
    if None in table and len(names) == 1:
        table = {names[0]: table[None]}
    only = connectors[0] if len(connectors) == 1 else None
    return [(table[name] or only) if name in table else None for name in names]


class _Reverse:
    """The rule `(grad, *arguments, *outputs) -> one gradient per argument` that runs a reverse node.

    `reads` names the arguments and outputs that the reverse node takes.
    """

    def __init__(
        self,
        label: str,
        module: Module,
        needs: tuple[bool, ...],
        hasGrad: tuple[bool, ...],
        reverse: Node,
        result: BackwardResult,
    ):
        self.label, self.module, self.needs = label, reverse.module, needs
        names = argumentNames(module, len(needs))
        self.values = [*names, *module.outputNames, *module.hidden]
        free = [name for name in self.module.arguments if name not in self.values]
        self.grads = paired(module.outputNames, result.given_grad_names, free)
        self.results = paired(names, result.required_grad_names, self.module.outputNames)
        for name, grad, there in zip(module.outputNames, self.grads, hasGrad, strict=True):
            if there:
                self.check(f"the gradient of output {name!r}", "an input", grad, self.module.arguments)
        for name, made, needed in zip(names, self.results, needs, strict=True):
            if needed:
                self.check(f"the gradient of {name!r}", "an output", made, self.module.outputNames)
        spec = self.module.inputSpec
        if spec.variadic:
            raise AutoDiffException(
                f"{label}: the reverse node takes any number of inputs, which have no names: put it into a Graph"
            )
        for name in spec.names:
            if name not in {*self.grads, *self.values, *spec.optional}:
                raise AutoDiffException(
                    f"{label}: the reverse node takes {name!r}, which is neither a gradient nor a value of the forward "
                    f"node; that has {', '.join(nearest(name, self.values))}"
                )
        plain = [*inputNames(module, len(needs) - len(module.ruleNames)), *module.ruleNames]
        self.reads = tuple(n for n, v in zip([*plain, *self.values[len(needs) :]], self.values) if v in spec.names)

    def check(self, what: str, kind: str, name: str | None, known: tuple[str, ...]) -> None:
        """A gradient that the result names is one that the reverse node has."""
        if name not in known:
            raise AutoDiffException(
                f"{self.label}: {what} must be {kind} of the reverse node, one of {', '.join(known)}; "
                f"the BackwardResult says {name!r}"
            )

    def __call__(self, grad: Any, *values: Any) -> tuple:
        table: dict[Any, Any] = dict(zip(self.values, values))
        outputs = values[len(self.needs) :]
        for name, g, y in zip(self.grads, grad if isinstance(grad, list) else [grad], outputs):
            table[name] = zeroLike(y) if g is None else g
        result = self.module.updateData(*map(table.get, self.module.arguments), *self.module.ruleValues())
        made = dict(zip(self.module.outputNames, result if type(result) is tuple else (result,)))
        return tuple([made[name] if needed else None for name, needed in zip(self.results, self.needs)])
