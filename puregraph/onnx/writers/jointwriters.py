"""JointWriters: what only graphs have that also go backward: gradient rules, values of parameters, cotangents."""

from __future__ import annotations

from puregraph.autodiff.joint.remat import CotangentInput, Exposed, Outline, Parameter
from puregraph.graph.backward import Accumulate, Gradient
from puregraph.onnx.onnxwriter import OnnxStep, kindOf, writesOnnx
from puregraph.onnx.rules.opensizes import forAnySize
from puregraph.onnx.rules.rulewriter import given, writeRule
from puregraph.onnx.writers.gradientwriters import GRADIENTS, IndexedGradient


@writesOnnx(Exposed)
def traced(step: OnnxStep) -> None:
    """The calls of the rule."""
    forAnySize(step, writeRule)


@writesOnnx(Gradient)
def gradient(step: OnnxStep) -> None:
    """What is registered for the module, or the calls of its rule."""
    forAnySize(step, writeRule if type(step.module.of) not in GRADIENTS else writeRegistered)


def writeRegistered(step: OnnxStep) -> None:
    """What is registered for the module."""
    mark = len(step.writer.nodes)
    found = GRADIENTS[type(step.module.of)](IndexedGradient(step))
    for k, i in enumerate(step.module.wanted):
        if found[i] is not None:
            given(step, found[i], step.outputs[k], mark, isFirst=k == 0)


@writesOnnx(Accumulate)
def accumulated(step: OnnxStep) -> None:
    """Add, in the order of the gradients."""
    total, *rest = step.inputs
    for i, x in enumerate(rest):
        total = step.op("Add", total, x, out=step.y if i == len(rest) - 1 else None)
    if not rest:
        step.op("Identity", total, out=step.y)


@writesOnnx(Parameter)
def parameter(step: OnnxStep) -> None:
    """The stored array itself; nothing where the module has none."""
    if step.module.value is None:
        step.isAbsent = True
        return
    step.writer.alias(step, step.module.value)


@writesOnnx(CotangentInput)
def cotangent(step: OnnxStep) -> None:
    """The gradient from outside, in the dtype of the output."""
    own, given = step.indtypes
    if own is None or own == given:
        step.op("Identity", step.inputs[1], out=step.y)
    else:
        step.op("Cast", step.inputs[1], out=step.y, to=kindOf(own))


@writesOnnx(Outline)
def outline(step: OnnxStep) -> None:
    """Zeros in the shape of x, of which nobody reads the elements."""
    zero = step.op("Cast", step.constant(0.0), to=kindOf(step.dtypes[0] or step.indtypes[0]))
    step.op("Expand", zero, step.op("Shape", step.x), out=step.y)
