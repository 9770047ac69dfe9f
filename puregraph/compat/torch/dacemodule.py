"""DaceModule: DaceML's class of this name, a module of torch whose results puregraph computes."""

from __future__ import annotations

from typing import Any

from puregraph.compat.torch.exportreader import fromTorch
from puregraph.compat.torch.graphmodule import asModule
from puregraph.core.arguments import Flag, takes
from puregraph.core.errors import ArgumentError
from puregraph.graph.lookup import few, nearest


@takes(backward=Flag)
def DaceModule(module: Any, dummy_inputs: Any = None, backward: bool = False, inputs_to_skip: Any = ()) -> Any:
    """A `torch.nn.Module` that computes another one by a Graph, forward and, with `backward`, backward.

    `dummy_inputs`    a tensor, or a tuple of the tensors that the module is called with
    `inputs_to_skip`  names of inputs whose gradient is not computed

    Its parameters are copies, under the names of `fromTorch(module, dummy_inputs)`.

    Source    DaceML's daceml.pytorch.DaceModule
    Raises    ArgumentError without inputs, and for a name that is not an input; GraphError as `fromTorch` does

    >>> net = DaceModule(torch.nn.Linear(3, 2), torch.ones(5, 3), backward=True)    # doctest: +SKIP
    >>> net(torch.ones(5, 3)).sum().backward()                                      # doctest: +SKIP
    """
    if dummy_inputs is None:
        raise ArgumentError("DaceModule: wanted dummy_inputs, the tensors that the module is called with, got None")
    graph = fromTorch(module, dummy_inputs)
    skipped = [inputs_to_skip] if isinstance(inputs_to_skip, str) else list(inputs_to_skip)
    unknown = [name for name in skipped if name not in graph.arguments]
    if unknown:
        known = few(nearest(str(unknown[0]), list(graph.arguments)))
        raise ArgumentError(f"DaceModule: there is no input {unknown[0]!r} to skip; the inputs are {known}")
    made = asModule(graph)

    def prepare(_: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([x.detach() if name in skipped else x for name, x in zip(graph.arguments, inputs)])

    made.register_forward_pre_hook(prepare)
    return made if backward else made.requires_grad_(False)
