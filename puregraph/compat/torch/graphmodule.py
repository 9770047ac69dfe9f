"""Graphmodule: a graph as a module of torch (`asModule`), and as a function on tensors (`asFunction`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

from puregraph.autodiff.joint.addbackward import graph_of
from puregraph.compat.torch.graphcall import GraphCall
from puregraph.compat.torch.sharing import NONE, SharedTensor, Sharing
from puregraph.compat.torch.tensors import asArray
from puregraph.core.arguments import Argument, Flag, ModuleLike, Shapes, takes
from puregraph.core.errors import ArgumentError
from puregraph.core.versioning import ARRAYVERSIONS, LastUpdate
from puregraph.graph import Graph
from puregraph.graph.module import Module
from puregraph.graph.sequential import Sequential

GraphSource = Argument(
    f"{ModuleLike.wanted}, or an ONNX model, or its path",
    lambda value: ModuleLike.holds(value) or isinstance(value, (str, os.PathLike)) or hasattr(value, "opset_import"),
)


@takes(graph=GraphSource, isCompiled=Flag)
def asModule(graph: Any, isCompiled: bool = True) -> Any:
    """A `torch.nn.Module` that computes a Graph: its parameters and buffers have the memory of the graph's arrays.

    `graph`       a Graph, or a module, which becomes a Sequential of one, or an ONNX model, or the path of one
    `isCompiled`  compile forward and backward passes for each shape, mode and choice of gradients

    An optimizer of torch updates the graph, and the graph's files load into the module. Names in `state_dict` are the
    graph's paths. `train()` and `eval()` set the graph's mode; parameters have gradients in both. torch can compute
    gradients and second derivatives of inputs and parameters. `module.graph` is the graph; do not change its nodes.

    Raises    DataError, ShapeError, DtypeError when called on tensors that do not fit; DeviceError when it is moved;
              PuregraphError in a backward pass, if a parameter that it reads or a mode was changed since

    >>> module = asModule(Sequential(Linear(3, 2, name="fc")))      # doctest: +SKIP
    >>> list(module.state_dict())                                   # doctest: +SKIP
    ['fc.W', 'fc.b']
    """
    return moduleClass()(graphOf(graph), isCompiled)


@takes(graph=GraphSource, shapes=Shapes | None, isCompiled=Flag)
def asFunction(graph: Any, shapes: list[Any] | None = None, isCompiled: bool = True) -> Callable[..., Any]:
    """A function of tensors that computes a Graph and that torch differentiates, for optimizers of puregraph.

    `graph`       a Graph, or a module, which becomes a Sequential of one, or an ONNX model, or the path of one
    `shapes`      of the inputs: checked, and compiled for at once
    `isCompiled`  as for `asModule`

    A backward pass of torch leaves the gradients of the graph's parameters in their `grad`, added to those since the
    last update of an optimizer. `function.module` is the graph as a module of torch.

    Raises    as `asModule` does; ShapeError for shapes that do not fit

    >>> function = asFunction(Sequential(Linear(3, 2, name="fc")))  # doctest: +SKIP
    >>> function(torch.ones(5, 3)).shape                            # doctest: +SKIP
    torch.Size([5, 2])
    """
    module = asModule(graph, isCompiled)
    for slot in module.sharing.params:
        if slot.tensor.requires_grad:
            leaveGrads(slot, module.sharing)
    if shapes is not None:
        module.graph.dataShapeFrom([tuple(shape) for shape in shapes])
        module.call.compileFor([tuple(shape) for shape in shapes])

    def function(*tensors: Any) -> Any:
        return module.call(tensors)

    function.module = module  # type: ignore[attr-defined]
    return function


def graphOf(source: Any) -> Graph:
    """Return a graph: the argument itself, one of a single module, or an ONNX model, whose parameters get gradients.

    Raises    ArgumentError for a module with several inputs, and for a path that does not end in .onnx
    """
    graph = graph_of(source)
    if not isinstance(graph, Module):
        raise ArgumentError(f"wanted the path of an ONNX model, which ends in .onnx, got {graph!r:.80}")
    if isinstance(graph, Graph):
        return graph
    if len(graph.arguments) != 1:
        raise ArgumentError(
            f"wanted a Graph, got {type(graph).__name__} with inputs {', '.join(graph.arguments)}; "
            "make a Graph of Input nodes and this one"
        )
    return Sequential(graph)


def leaveGrads(slot: SharedTensor, sharing: Sharing) -> None:
    """Let a tensor's gradient, accumulated by torch, be the parameter's `grad`, and reset it after every update."""
    tensor, param = slot.tensor, slot.stored
    attributes = vars(param)  # bypasses __setattr__, for speed: torch checked shape and dtype

    known: Any = None  # the accumulated gradient, of which `array` is the memory at `address`
    array: Any = None
    address = 0
    sharing.leavesGrads = True

    def begin(grad: Any) -> None:
        if attributes["gradVersion"] < LastUpdate.version or attributes["grad"] is None:
            tensor.grad = None

    def end(tensor: Any) -> None:
        nonlocal known, array, address
        grad = tensor.grad
        now = grad.data_ptr()
        if grad is not known or now != address:
            made, start = slot.made
            array = made if now == start and grad.is_contiguous() else asArray(grad)  # wrapping it takes longer
            known, address, slot.made = grad, now, NONE
        attributes["grad"] = array
        attributes["gradVersion"] = next(ARRAYVERSIONS)

    tensor.register_hook(begin)
    tensor.register_post_accumulate_grad_hook(end)


@cache
def moduleClass() -> type:
    """The class of modules that `asModule` makes."""
    import torch

    class GraphModule(torch.nn.Module):
        """A puregraph Graph as a module of torch; `graph` is the graph."""

        def __init__(self, graph: Graph, isCompiled: bool = True):
            super().__init__()
            self.graph, self.isCompiled = graph, isCompiled
            self.sharing = Sharing(graph, self)
            self.call = GraphCall(graph, self.sharing, isCompiled)
            self.register_state_dict_pre_hook(lambda module, *_: module.sharing.join())
            self.register_load_state_dict_post_hook(lambda module, _: module.sharing.follow())

        @property
        def training(self) -> bool:
            """The mode of the graph."""
            return self.graph.isTraining

        @training.setter
        def training(self, mode: bool) -> None:
            if "graph" in vars(self):  # torch sets `training` before `graph`
                self.graph.mode(mode)

        def forward(self, *inputs: Any, **named: Any) -> Any:
            """The output of the graph, or a tuple of several; inputs by position, the last ones also by name."""
            if named:
                names = self.graph.arguments[len(inputs) :]
                wrong = [name for name in named if name not in names]
                if wrong or len(named) != len(names):
                    raise ArgumentError(f"{self.graph.title()}: wanted {', '.join(names)}, got {', '.join(named)}")
                inputs = (*inputs, *[named[name] for name in names])
            return self.call(inputs)

        def _apply(self, fn: Any, recurse: bool = True) -> Any:
            super()._apply(fn, recurse)
            self.sharing.follow()
            return self

        def __reduce__(self) -> Any:
            for slot in self.sharing.params:
                slot.stored.trainable = slot.tensor.requires_grad
            return asModule, (self.graph, self.isCompiled)

        def extra_repr(self) -> str:
            return repr(self.graph)

    return GraphModule
