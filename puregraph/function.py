"""Function: a user's own differentiable operation, written as two static methods around a context."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.errors import PuregraphError
from puregraph.module import Inputs, Module
from puregraph.node import Node


class Context:
    """What one use of a Function keeps for its gradient. Every use has its own, so nothing is shared by accident."""

    def __init__(self, needs: tuple[bool, ...]):
        self.needs_input_grad = needs
        self.saved: tuple = ()

    def save_for_backward(self, *values: Any) -> None:
        """Keep values for `backward`."""
        self.saved = values

    @property
    def saved_variables(self) -> tuple:
        """What `save_for_backward` kept."""
        return self.saved


class Function:
    """An operation with a gradient of its own.

        class Cube(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x**3

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_variables
                return 3 * x**2 * grad

        y = Cube.node(x)

    Or `forward(*inputs)` without a context, and `setup_context(ctx, inputs, output)` beside it. `backward` takes one
    gradient per output and returns one per input, None where there is none; `ctx.needs_input_grad` says which are
    wanted. `outputNames` names the outputs where there are several. `dataShapeFrom(*shapes)`, a static method too, says
    the output's shape; without it `forward` is tried once on zeros of the inputs' shapes.

    Shapes    as `dataShapeFrom` says
    Source    torch.autograd.Function, whose names afnio shares
    """

    outputNames: tuple[str, ...] = ("y",)

    def __init__(self, *args: Any, **kwargs: Any):
        name = type(self).__name__
        raise RuntimeError(f"{name} is not instantiated: use {name}.node(...) in a graph")

    @staticmethod
    def forward(*args: Any) -> Any:
        """The output, or a tuple of outputs, from the inputs (after the context, unless `setup_context` is written)."""
        raise NotImplementedError("a Function needs a static method forward(ctx, *inputs)")

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple, output: Any) -> None:
        """Fill the context from inputs and output; writing it takes the context out of `forward`."""
        raise NotImplementedError("a Function may write setup_context(ctx, inputs, output)")

    @staticmethod
    def backward(ctx: Context, *grads: Any) -> Any:
        """The gradient of each input from those of the outputs."""
        raise NotImplementedError("a Function needs a static method backward(ctx, *grads)")

    @classmethod
    def call(cls, ctx: Context, inputs: tuple) -> Any:
        """Run `forward` in either style."""
        if cls.setup_context is Function.setup_context:
            return cls.forward(ctx, *inputs)
        output = cls.forward(*inputs)
        cls.setup_context(ctx, inputs, output)
        return output

    @classmethod
    def node(cls, *parents: Any, name: str | None = None) -> Node:
        """A Node that uses this operation in a graph."""
        return Call(cls, name=name).node(*parents)


class Call(Module):
    """y = f(x, ...): a Function as a Module. Its context is a hidden output, so one Function may stand at many nodes.

    Shapes    as the Function's `dataShapeFrom` says
    Source    `Function`
    """

    hidden = ("context",)
    reads = ("context",)

    def __init__(self, function: type[Function], name: str | None = None):
        super().__init__(name or function.__name__.lower())
        self.function = function

    @property
    def outputNames(self) -> tuple[str, ...]:
        return self.function.outputNames

    @property
    def inputSpec(self) -> Inputs:
        return Inputs(("inputs",), (), True)

    def dataShapeFrom(self, *shapes: Any) -> Any:
        rule = getattr(self.function, "dataShapeFrom", None)
        if rule is not None:
            return rule(*shapes)
        if not all(isinstance(d, int) for s in shapes for d in s):
            raise PuregraphError(
                f"{self.function.__name__} has no shape rule for symbols: write a static method dataShapeFrom(*shapes)"
            )
        result = self.function.call(Context((False,) * len(shapes)), tuple(np.zeros(s, np.float32) for s in shapes))
        return [tuple(y.shape) for y in result] if isinstance(result, tuple) else tuple(np.shape(result))

    def hiddenShapeFrom(self, *shapes: Any) -> list:
        return [((), object)]

    def updateData(self, *inputs: Any) -> tuple:
        context = Context((True,) * len(inputs))
        result = self.function.call(context, inputs)
        return (*result, context) if isinstance(result, tuple) else (result, context)

    def updateGrad(self, grad: Any, *values: Any, needs: tuple[bool, ...]) -> tuple:
        context = values[-1]
        context.needs_input_grad = needs
        result = self.function.backward(context, *(grad if isinstance(grad, list) else [grad]))
        return result if isinstance(result, tuple) else (result,)

    def written(self, without: tuple[str, ...] = ()) -> str:
        return f"Call({self.function.__name__})"
