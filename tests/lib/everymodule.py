"""Every module and cost with its examples, found in their folders, and two functions beside them."""

import importlib
import inspect
import pkgutil

import numpy as np
from strict import Strict

from puregraph import modules
from puregraph.graph import Graph
from puregraph.graph.derived import Derived
from puregraph.graph.function import Function, FunctionCall
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.pointwise import Pointwise
from puregraph.modules import Constant, costs

UNSWEPT = (costs.Cost, Derived, modules.Penalty)  # two bases, and what adds to the cost: see test_penalty
MODES = {"train": True, "eval": False}


def classesOf(package):
    """Every Module that a file of the package defines."""
    for file in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        found = importlib.import_module(file.name)
        for name, value in inspect.getmembers(found, inspect.isclass):
            isOwn = value.__module__ == found.__name__ and issubclass(value, Module) and name[0] != "_"
            if isOwn and value not in UNSWEPT:
                yield value


class Cube(Function):
    """y = x^3"""

    @staticmethod
    def dataShapeFrom(x):
        return x

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_variables
        return 3 * x * x * grad


class Swap(Function):
    """y, z = b, 2 a"""

    outputNames = ("y", "z")

    @staticmethod
    def dataShapeFrom(a, b):
        return [b, a]

    @staticmethod
    def forward(a, b):
        return b, 2 * a

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, y, z):
        return 2 * z, y


EXPORTED = {found: package for package in (modules, costs) for found in classesOf(package)}
CLASSES = [*EXPORTED, Input, FunctionCall, Pointwise]
OTHERS = {FunctionCall: lambda: [(FunctionCall(Cube), [(2, 3)]), (FunctionCall(Swap), [(2,), (3, 1)])]}


def examplesOf(found):
    """(module, shapes) of each example, new ones."""
    return list(OTHERS.get(found, found.examples)())


def countOf(found):
    try:
        return len(examplesOf(found))
    except Exception:
        return 0  # test_a_class_has_examples says why


EXAMPLES = [(found, index) for found in CLASSES for index in range(countOf(found))]


# what shapes alone decide, or whose shape the data decides: there is no direction, or none that leaves the shape
SIZED = {modules.Constant, modules.Weight, modules.Full, modules.NonZero, modules.Shape, modules.Unique}
# whose rules loop over the data, or call what numpy alone has: no forward mode, no second derivative, no per-sample rule
FIRSTORDER = {
    *(modules.AffineGrid, modules.Col2Im, modules.Dequantize, modules.Determinant, modules.DFT),
    *(modules.GridSample, modules.Loop, modules.NonMaxSuppression, modules.TensorScatter, modules.Trilu),
    *(modules.Prod, modules.ReduceAlong, modules.Resize, modules.RoiAlign, modules.RoiPool, modules.Scan),
}
# whose gradient is another one than that of the values, on purpose: see test_derived, test_softmax
STRAIGHT = {modules.FakeQuantise, modules.GumbelSoftMax, modules.SpectralNorm, modules.StopGradient}
DERIVED = [(found, index) for found, index in EXAMPLES if found not in SIZED | FIRSTORDER | STRAIGHT]
RECORDED = [e for e in DERIVED if not issubclass(e[0], Derived)]  # without inputs there is nothing to record

# examples whose gradients write in place where windows overlap or edges fold: refused a second time, with an error
# and sums over alignments, whose gradient is a kernel without a derivative
ONCE = (modules.AvgPoolNd, modules.LpPoolNd, costs.CTC, costs.RNNT)
NOTTWICE = {e for e in EXAMPLES if e[0] in ONCE} | {(modules.Pad, 11)}

# modules some of whose steps numpy computes: loops over the data, integers, and functions without a lowering
ONNUMPY = set(
    """
    AdaptiveMaxPool BitCast BitShift Bitwise Col2Im DFT MaxPoolNd
    Orthogonal Pad Determinant GridSample If MaxUnpool
    Multinomial PRelu Prod RandomLike ReduceAlong Resize ReverseSequence RoiAlign RoiPool Scan TensorScatter
    """.split()
)

# those of them whose steps native code computes, and a GPU does not
NATIVEONLY = set("AdaptiveMaxPool GridSample Multinomial ReverseSequence Scan".split())


def isOpen(found):
    """Whether sizes of a class depend on the data, so that no program is compiled."""
    return any(None in shape for module, shapes in examplesOf(found) for shape in shapesFrom(module, shapes))


def shapesFrom(module, shapes):
    """The shapes that a module gives, where all sizes are known that it is given."""
    if module.shapeInputs:
        return []
    outs = module.dataShapeFrom(*shapes)
    return outs if isinstance(outs, list) else [outs]


def alone(module, data):
    """A graph of one module, and what goes into it: inputs that shapes follow from are constants inside."""
    names = [module.arguments[min(i, len(module.arguments) - 1)] for i in range(len(data))]
    nodes = [(Constant(x) if name in module.shapeInputs else Input()).node() for x, name in zip(data, names)]
    inputs = [node for node in nodes if isinstance(node.module, Input)]
    given = [x for x, node in zip(data, nodes) if node in inputs]
    return Graph(inputs, module.node(*nodes)), given


def label(value):
    return value.__name__ if inspect.isclass(value) else None


def toStrict(array):
    return None if array is None else array if isinstance(array, Strict) else Strict(np.array(array))
