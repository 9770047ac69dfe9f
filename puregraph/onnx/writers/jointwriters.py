"""JointWriters: modules by the calls of their rules, and those that occur only in backward graphs."""

from __future__ import annotations

from puregraph import modules
from puregraph.autodiff.joint.remat import CotangentInput, Exposed, Outline, Parameter
from puregraph.graph.backward import Accumulate, Gradient
from puregraph.modules.adaptivepool import _Adaptive
from puregraph.modules.augmentation import _Augmentation
from puregraph.modules.costs import Cost
from puregraph.modules.gated import _Gated
from puregraph.modules.graphlayers import _GraphLayer
from puregraph.modules.localnorm import _OfWindows
from puregraph.modules.mixing import _Mixing
from puregraph.modules.penalty import Penalty
from puregraph.modules.shuffling import _Shuffle
from puregraph.modules.similarity import _Similarity
from puregraph.onnx.gradients.gradientregistry import ANYSIZE, GRADIENTS, loadGradients
from puregraph.onnx.onnxwriter import OnnxStep, kindOf, writesOnnx
from puregraph.onnx.rules.opensizes import forAnySize
from puregraph.onnx.rules.rulewriter import nameOutput, writeRule
from puregraph.onnx.writers.controlwriters import KEEPING


@writesOnnx(Exposed)
def traced(step: OnnxStep) -> None:
    """The calls of the rule, or the operator of a module that runs graphs, with the values that its gradient needs."""
    write = KEEPING.get(type(step.module.inner))
    if write is None:
        forAnySize(step, writeRule)
    else:
        write(step)


RULED: tuple[type, ...] = (
    modules.AutoContrast,
    modules.Bilinear,
    modules.DepthConcat,
    modules.GroupLinear,
    modules.KMaxPool,
)
RULED += (modules.EmbedderBag, modules.Entmax, modules.NoiseInjector, modules.RRelu, modules.SoftMin)
RULED += (modules.SparseMax, modules.Unfold)


@writesOnnx(Cost, *RULED, _Adaptive, _Augmentation, _Gated, _GraphLayer, _Mixing, _OfWindows, _Shuffle, _Similarity)
def ruled(step: OnnxStep) -> None:
    """The calls of the rule; data checks, such as of labels, are left out."""
    forAnySize(step, writeRule)


@writesOnnx(Penalty)
def penalty(step: OnnxStep) -> None:
    """The input itself where nobody reads the cost, whose mean has no ONNX equivalent for a symbolic batch."""
    if step.row.step.outs[1] in step.writer.steps.readValues:
        forAnySize(step, writeRule)
    else:
        step.op("Identity", step.x, out=step.y)
        step.absent.add(step.outputs[1])


@writesOnnx(Gradient)
def gradient(step: OnnxStep) -> None:
    """The registered gradient of the module, or the calls of its rule."""
    loadGradients()
    kind = type(step.module.of)
    if kind in ANYSIZE:
        writeRegistered(step)
    else:
        forAnySize(step, writeRegistered if kind in GRADIENTS else writeRule)


def writeRegistered(step: OnnxStep) -> None:
    """Write the gradient registered for the module."""
    mark = len(step.writer.nodes)
    gradients = GRADIENTS[type(step.module.of)](step)
    for k, i in enumerate(step.module.wanted):
        if gradients[i] is None:
            step.absent.add(step.outputs[k])
        else:
            nameOutput(step, gradients[i], step.outputs[k], mark, isFirst=k == 0)


@writesOnnx(Accumulate)
def accumulated(step: OnnxStep) -> None:
    """Add the gradients that exist, in order."""
    addends = [x for x in step.inputs if x is not None]
    if not addends:
        step.absent.add(step.y)
    elif len(addends) == 1:
        step.op("Identity", *addends, out=step.y)
    else:
        total, *rest, last = addends
        for x in rest:
            total = step.op("Add", total, x)
        step.op("Add", total, last, out=step.y)


@writesOnnx(Parameter)
def parameter(step: OnnxStep) -> None:
    """The stored array itself; no output if the module has none."""
    if step.module.value is None:
        step.absent.add(step.y)
        return
    step.writer.alias(step, step.module.value)


@writesOnnx(CotangentInput)
def cotangent(step: OnnxStep) -> None:
    """The gradient from outside, in the dtype of the output."""
    outputDtype, gradDtype = step.indtypes
    if outputDtype is None or outputDtype == gradDtype:
        step.op("Identity", step.inputs[1], out=step.y)
    else:
        step.op("Cast", step.inputs[1], out=step.y, to=kindOf(outputDtype))


@writesOnnx(Outline)
def outline(step: OnnxStep) -> None:
    """Zeros in the shape of x; only the shape is used."""
    zero = step.op("Cast", step.constant(0.0), to=kindOf(step.dtypes[0] or step.indtypes[0]))
    step.op("Expand", zero, step.op("Shape", step.x), out=step.y)
