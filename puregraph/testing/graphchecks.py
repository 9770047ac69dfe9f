"""Checks of a module inside a graph: at two nodes, in evalMode, compiled, and on a GPU."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compile import Program
from puregraph.core import device
from puregraph.core.applied import asGrads
from puregraph.core.rules import gradientRule
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.node import Node
from puregraph.ops.kernel import useFast
from puregraph.testing.case import Case, expect

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


def twoNodes(case: Case) -> None:
    """A module at two nodes gets the sum of both gradients; each input gets its own gradient."""
    if not case.module.isTraining:  # no parameter has a gradient in evalMode
        return
    arity = len(case.inputs)
    ins = [[Input(name=f"{side}{i}").node() for i in range(arity)] for side in "ab"]
    first, second = (Node(case.module, list(nodes), name) for nodes, name in zip(ins, ("first", "second"), strict=True))
    net = Graph(ins[0] + ins[1], [first, second])
    case.restore()
    outputs = net([*case.inputs, *case.inputs])
    seeds = [np.ones_like(y) for y in (outputs if isinstance(outputs, list) else [outputs])]
    net.backward(seeds if len(seeds) > 1 else seeds[0])
    both = {n: p.grad for n, p in case.module.params.items()}
    case.restore()
    total: dict[str, Any] = {}
    for half in (0, 1):
        alone = Graph(ins[half], first if half == 0 else second)
        result = alone(case.inputs)
        alone.backward([np.ones_like(y) for y in result] if isinstance(result, list) else np.ones_like(result))
        for n, p in case.module.params.items():
            total[n] = total.get(n, 0) + p.grad
    for n, grad in both.items():
        expect(
            grad is not None and np.allclose(grad, total[n], rtol=1e-10, atol=1e-12),
            f"{case.label}: at two nodes the gradient of '{n}' is not the sum of both",
        )


def evaluation(case: Case) -> None:
    """In evalMode nothing in the module changes, parameters get no gradient and inputs still do."""
    case.module.evalMode()
    try:
        before = {n: s.data.copy() for n, s in case.module.states.items()}
        params = {n: p.data.copy() for n, p in case.module.params.items()}
        for p in case.module.params.values():
            p.grad = None
        ins = [Input(name=f"i{i}").node() for i in range(len(case.inputs))]
        net = Graph(ins, Node(case.module, list(ins)))
        outputs = net(list(case.inputs))
        net.backward([np.ones_like(y) for y in outputs] if isinstance(outputs, list) else np.ones_like(outputs))
        for n, s in case.module.states.items():
            isDrawn = n == getattr(case.module, "draws", None) and getattr(case.module, "drawsAlways", False)
            expect(isDrawn or np.array_equal(s.data, before[n]), f"{case.label}: evalMode changes the state '{n}'")
        for n, p in case.module.params.items():
            expect(
                np.array_equal(p.data, params[n]) and p.grad is None,
                f"{case.label}: in evalMode '{n}' is changed or gets a gradient",
            )
        grads = net.grad if isinstance(net.grad, list) else [net.grad]
        for i in case.floats:
            if i < len(case.inputs):
                expect(grads[i] is not None, f"{case.label}: in evalMode input '{case.names[i]}' gets no gradient")
    finally:
        case.module.trainMode()


def compiled(case: Case) -> None:
    """The program that numpy carries out matches the graph to the last bit: outputs, gradients and states, twice."""
    ins = [Input(name=f"i{i}").node() for i in range(len(case.inputs))]
    net = Graph(ins, Node(case.module, list(ins)))
    case.restore()
    shapes, dtypes = [x.shape for x in case.inputs], [x.dtype for x in case.inputs]
    with useFast(False):  # native code would round in another order
        program = Program(net, shapes, dtypes, grads=(True,) * len(case.module.outputNames), poison=True)
        seeds = case.seeds(case.run())
        for _ in range(2):
            case.restore()
            net(list(case.inputs))
            net.backward(seeds if len(seeds) > 1 else seeds[0])
            wanted = stateOf(case, listed(net.data), listed(net.grad))
            case.restore()
            outputs = listed(program.run(*case.inputs, *seeds))
            actual = stateOf(case, outputs, listed(program.grad))
            for (what, a), (_, b) in zip(wanted, actual, strict=True):
                isSame = a is b if a is None or b is None else alike(a, b)
                expect(isSame, f"{case.label}: compiled, {what} is another")


def stateOf(case: Case, outputs: list[AnyArray], grads: list[AnyArray]) -> list[tuple[str, Any]]:
    """The results of a pass, with names."""
    named = [(f"output {i}", y) for i, y in enumerate(outputs)]
    named += [(f"the gradient of input {i}", g) for i, g in enumerate(grads[: len(case.inputs)])]
    named += [(f"the gradient of '{name}'", p.grad) for name, p in case.module.params.items()]
    return named + [(f"'{name}'", s.data.copy()) for name, s in case.module.states.items()]


def listed(value: Any) -> list[AnyArray]:
    """A value, or several, as a list."""
    return value if isinstance(value, list) else [value]


def alike(a: AnyArray, b: AnyArray) -> bool:
    """True if two arrays are equal to the last bit."""
    a, b = np.asarray(a), np.asarray(b)
    return (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes())


def onDevice(case: Case) -> None:
    """On a GPU, values and gradients match the CPU's."""
    if device.name() != "cuda":
        return
    reference = case.run()
    wanted = (*case.visible(reference), *(case.gradients(reference)[i] for i in case.floats))
    module = copy.deepcopy(case.module)
    for stored in (*module.params.values(), *module.states.values()):
        stored.data = device.toDevice(stored.data)
    case.restore()
    arguments = [None if a is None else device.toDevice(np.array(a)) for a in case.arguments]
    result = module.updateData(*arguments)
    outputs = result if type(result) is tuple else (result,)
    seeds = [device.toDevice(np.array(s)) for s in case.seeds(reference)]
    rule = gradientRule(module, tuple(i in case.floats for i in range(len(arguments))))
    grads = asGrads(rule(seeds if len(seeds) > 1 else seeds[0], *arguments, *outputs), len(arguments), case.label)
    got = (*outputs[: len(module.outputNames)], *(grads[i] for i in case.floats))
    for a, b in zip(got, wanted, strict=True):
        expect(device.isDeviceArray(a), f"{case.label}: a result leaves the GPU")
        expect(
            np.allclose(device.toHost(a), b, rtol=1e-9, atol=1e-10),
            f"{case.label}: the GPU gives other values than the CPU",
        )
