"""Rematerialization: the modules that stand for parts of a forward pass inside a graph that also goes backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from puregraph.core.dim import Dim
from puregraph.core.errors import need
from puregraph.core.linkednode import Edge
from puregraph.core.rules import gradientRule
from puregraph.core.traversal import weakenReader
from puregraph.graph.backward import inputNames
from puregraph.graph.module import Inputs, Module
from puregraph.graph.node import Node
from puregraph.graph.steps import ABSENT, GraphStep, shapeOnly

if TYPE_CHECKING:
    import numpy as np

    from puregraph.core.param import Stored
    from puregraph.core.protocols import AnyArray


class Exposed(Module):
    """y, h = f(x): a module with its hidden outputs made visible, so that other nodes can read them.

    Shapes    as the module's inputs -> its outputs, then its hidden outputs
    Source    the hidden outputs of `Module`
    """

    def __init__(self, inner: Module, rule: str | None = None):
        super().__init__()
        self.inner, self.rule = inner, rule

    inputSpec = property(lambda self: self.inner.inputSpec)
    outputNames = property(lambda self: (*self.inner.outputNames, *self.inner.hidden))
    ruleNames = property(lambda self: self.inner.ruleNames)
    params = property(lambda self: self.inner.params)
    states = property(lambda self: self.inner.states)
    indices = property(lambda self: self.inner.indices)
    views = property(lambda self: self.inner.views)
    isTraining = property(
        lambda self: self.inner.isTraining, lambda self, mode: setattr(self.inner, "isTraining", mode)
    )

    def __getattr__(self, name: str) -> Stored | None:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)  # a parameter or state, which steps read by name

    def dataShapeFrom(self, *shapes: tuple[int, ...] | None) -> list:
        visible = self.inner.dataShapeFrom(*shapes)
        hidden = self.inner.hiddenShapeFrom(*shapes)
        return [*(visible if isinstance(visible, list) else [visible]), *hidden]

    def dataTypeFrom(self, *dtypes: np.dtype | None) -> list:
        count = len(self.inner.outputNames)
        if all(d is None for d in dtypes):
            return [None] * len(self.outputNames)
        inferred = self.inner.dataTypeFrom(*dtypes)
        visible = inferred if isinstance(inferred, list) else [inferred] * count
        return [*visible, *self.inner.hiddenTypeFrom(*dtypes)]

    def updateData(self, *arguments: AnyArray | None) -> Any:
        return self.inner.updateData(*arguments)

    def updateGrad(self, grad: list, *values: Any, needs: tuple[bool, ...]) -> tuple[AnyArray | None, ...]:
        visible = grad[: len(self.inner.outputNames)]
        rule = gradientRule(self.inner, needs, self.rule)
        return rule(visible if len(visible) > 1 else visible[0], *values)

    def flopsFrom(self, *shapes: Any) -> Any:
        return self.inner.flopsFrom(*shapes)

    def brief(self) -> str:
        return self.inner.brief()


class Parameter(Module):
    """y = W: the value of a parameter or state of another module.

    Shapes    none -> as the parameter
    Source    `Param` and `State`
    """

    views = True
    ruleNames = ("value",)

    def __init__(self, owner: Module, attribute: str):
        super().__init__()
        self.owner, self.attribute = owner, attribute

    inputSpec = Inputs(())
    value = property(lambda self: getattr(self.owner, self.attribute))

    def ruleParams(self) -> list:
        return [self.value]

    def dataShapeFrom(self) -> tuple[int, ...]:
        return (0,) if self.value is None else self.value.shape

    def dataTypeFrom(self) -> Any:
        return None if self.value is None else self.value.dtype

    def updateData(self, value: AnyArray | None) -> AnyArray | None:
        return value

    def updateGrad(self, grad: Any, value: object, y: Any) -> tuple[AnyArray | None, ...]:
        return grad

    def flopsFrom(self) -> int:
        return 0


class CotangentInput(Module):
    """dy = g: the gradient of an output, as it comes from outside, in the shape and dtype of that output.

    Shapes    y, g (any, the same) -> dy the same
    Source    the first adjoint of reverse mode; Griewank, Walther 2008, ch. 3
    """

    def dataShapeFrom(self, y: tuple[int, ...], g: tuple[int, ...]) -> tuple[int, ...] | None:
        isAlike = len(g) == len(y) and all(n == m or isinstance(m, Dim) and m.isOfData for n, m in zip(g, y))
        need(isAlike, f"a gradient of shape {y}", g, "only the gradient of a single number may be left out, and is 1")
        return y

    def dataTypeFrom(self, y: Any, g: Any) -> Any:
        return y

    def updateData(self, y: AnyArray, g: AnyArray) -> AnyArray:
        return g if getattr(g, "dtype", None) == getattr(y, "dtype", None) else g.astype(y.dtype)

    def updateGrad(self, grad: Any, y: Any, g: Any, dy: Any) -> tuple[AnyArray | None, ...]:
        return None, grad

    def flopsFrom(self, y: Any, g: Any) -> int:
        return 0


class Outline(Module):
    """y = 0 in the shape and dtype of x, without memory of its own.

    Shapes    x (any) -> y the same
    Source    numpy.broadcast_to
    """

    reads = ()
    keepsDtype = True

    def dataShapeFrom(self, x: tuple[int, ...]) -> tuple[int, ...]:
        return x

    def updateData(self, x: AnyArray) -> AnyArray | None:
        return shapeOnly(x)

    def flopsFrom(self, x: Any) -> int:
        return 0


def rematerialized(
    step: GraphStep, source: Callable[[int], Edge], grow: Callable[..., Node], name: str
) -> dict[int, Edge]:
    """Add a node that runs a step's module again; return its output edges. `source` maps a value to its edge.

    The node is linked only to the nodes of its inputs.
    """
    module: Module = Exposed(step.module, step.node.rule) if step.module.hidden else step.module
    node = grow(module, None, name)
    node.rule = None if step.module.hidden else step.node.rule
    inputs = step.args[: step.inputs]
    for argument, number in zip(inputNames(step.module, step.inputs), inputs):
        if number != ABSENT:
            node.addBackwards(source(number), argument if ABSENT in inputs else None)
    weakenReader(node)
    return {number: (node, slot) for slot, number in enumerate(step.outs)}
