"""Autogradfunctions: the functions of torch.autograd for calls of a graph, defined when torch is imported."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from puregraph.compat.torch.tensors import asArray, asTensor
from puregraph.core.errors import AutoDiffException

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from puregraph.core.protocols import AnyArray


def arraysOf(tensors: torch.Tensor) -> list[Any]:
    """Tensors as arrays; None stays None."""
    return [None if t is None else asArray(t) for t in tensors]


def tensorsOf(arrays: Sequence[AnyArray]) -> tuple[Any, ...]:
    """Arrays as tensors; None stays None."""
    import torch

    fromNumpy = torch.from_numpy
    try:
        return tuple([None if a is None else fromNumpy(a) for a in arrays])  # as in every call of a graph
    except (TypeError, ValueError):
        return tuple([None if a is None else asTensor(a) for a in arrays])


@cache
def callFunction() -> type[torch.autograd.Function]:
    """The function of torch.autograd that runs a graph forward and backward."""
    import torch

    keepsGraph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)

    class GraphCallFunction(torch.autograd.Function):
        """A call of a graph: inputs, then parameters, to outputs."""

        @staticmethod
        def forward(ctx: Any, start: Any, *tensors: Any) -> Any:
            call, arrays, stored = start
            count = len(arrays)
            ctx.set_materialize_grads(False)
            ctx.record = record = call.record(arrays, stored, ctx.needs_input_grad[1:], tensors[count:])
            made = tensorsOf(record.outputs)
            ctx.save_for_backward(*tensors[:count], *[made[i] for i in record.returned])
            wholes = [t for t in made if not t.is_floating_point()]
            if wholes:
                ctx.mark_non_differentiable(*wholes)
            return made[0] if len(made) == 1 else made

        @staticmethod
        def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Any) -> tuple[torch.Tensor | None, ...]:
            saved, record = ctx.saved_tensors, ctx.record  # torch refuses tensors that were modified in place
            if torch.is_grad_enabled():
                inputs = saved[: len(record.arrays)]
                return None, *gradientFunction().apply(record, *inputs, *record.params, *grads)
            results = record.gradients(arraysOf(grads))
            if not keepsGraph():
                ctx.record = None  # as torch frees what it saved
            made, count = tensorsOf(results), len(record.arrays)
            record.call.sharing.noteGradients(made[count:], results[count:])
            return None, *made

    return GraphCallFunction


@cache
def gradientFunction() -> type[torch.autograd.Function]:
    """The function of torch.autograd that goes backward through a graph and can itself be differentiated once."""
    import torch

    class GraphGradientFunction(torch.autograd.Function):
        """The gradients of a call: inputs, parameters and output gradients to gradients."""

        @staticmethod
        def forward(
            ctx: torch.autograd.function.FunctionCtx, record: Any, *tensors: torch.Tensor | None
        ) -> tuple[torch.Tensor, ...]:
            ctx.set_materialize_grads(False)
            ctx.record, count = record, len(record.arrays) + len(record.params)
            ctx.save_for_backward(*[t for t in tensors if t is not None])
            ctx.grads = arraysOf(tensors[count:])
            return tensorsOf(record.gradients(ctx.grads))

        @staticmethod
        def backward(ctx: torch.autograd.function.FunctionCtx, *vectors: Any) -> tuple[torch.Tensor | None, ...]:
            _ = ctx.saved_tensors  # torch refuses tensors that were modified in place
            if torch.is_grad_enabled():
                raise AutoDiffException(
                    f"{ctx.record.call.graph.title()}: third derivatives do not pass through a graph on tensors; "
                    "leave out create_graph in the second backward pass"
                )
            return None, *tensorsOf(ctx.record.secondGradients(ctx.grads, arraysOf(vectors)))

    return GraphGradientFunction
