"""Texts of kernels for a GPU: all that programs would start there, gathered without a GPU and without any array."""

from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest
from everymodule import EXAMPLES, ONNUMPY, alone, examplesOf, isOpen
from fakecupy import useGpu

import puregraph.ops.kernels  # noqa: F401 - those that no module calls too
from puregraph import models, optimizers
from puregraph.compile import program
from puregraph.compile.backend import GPU
from puregraph.compile.gpu.lower.copylaunch import startsOf
from puregraph.core.param import FixedState
from puregraph.graph.function import FunctionCall
from puregraph.graph.sequential import Sequential
from puregraph.modules import Linear, Relu, Transpose
from puregraph.modules.costs import BCE, MSE, CrossEntropy
from puregraph.ops.cuda.runtime.launch import Launch, contiguous
from puregraph.ops.kernel import CompositeKernel, Kernel
from puregraph.optimizers import SGD, Adam, AdamW, MomentumSGD

IMAGES = (64, 3, 224, 224)


def saying(network):
    """A network that scores words, as CrossEntropy takes them."""
    return Sequential(network, Transpose((0, 2, 1)))


MODELS = {  # the network, the shapes of its inputs, and of its targets, its cost, and the optimizer
    "mlp": (models.mlp, [(64, 784)], (64,), CrossEntropy, Adam),
    "lenet": (models.lenet, [(64, 1, 28, 28)], (64,), CrossEntropy, MomentumSGD),
    "lstm": (models.lstm, [(64, 28, 28)], (64,), CrossEntropy, Adam),
    "resnet20": (models.resnet20, [(128, 3, 32, 32)], (128,), CrossEntropy, MomentumSGD),
    "dlrm": (models.dlrm, [(2048, 13), (2048, 26)], (2048, 1), BCE, SGD),
    "transformer": (lambda: models.transformer(2), [(64, 128, 256)], (64, 128, 256), MSE, AdamW),
    "gpt": (lambda: saying(models.gpt(layers=2)), [(64, 256)], (64, 256), CrossEntropy, AdamW),
    "vit": (lambda: models.vit(layers=2), [IMAGES], (64,), CrossEntropy, AdamW),
    "unet": (lambda: models.unet(norm=True), [(16, 1, 256, 256)], (16, 256, 256), CrossEntropy, Adam),
    "mobilenet": (models.mobilenet, [IMAGES], (64,), CrossEntropy, MomentumSGD),
    "resnet50": (models.resnet50, [IMAGES], (64,), CrossEntropy, MomentumSGD),
    "vgg16": (lambda: models.vgg16(norm=True), [IMAGES], (64,), CrossEntropy, MomentumSGD),
    "gpt2": (lambda: saying(models.gpt2()), [(16, 1024)], (16, 1024), CrossEntropy, AdamW),
}
MODELS |= {
    "bert": (lambda: models.bert(layers=2, pooler=False), [(16, 128)] * 3, (16, 128, 768), MSE, AdamW),
    "llama": (lambda: saying(models.llama(3200, 2, 8, 512, 1376, 2)), [(8, 128)], (8, 128), CrossEntropy, AdamW),
    "t5": (lambda: models.t5(layers=2), [(8, 128), (8, 128), (8, 64)], (8, 64, 32128), MSE, AdamW),
}
SMALL = ("mlp", "lenet", "lstm", "resnet20", "dlrm", "transformer", "gpt", "vit")
OTHERS = (optimizers.MultiOptimizer, optimizers.LBFGS)  # of several rules, and on the host
OPTIMIZERS = [getattr(optimizers, name) for name in optimizers.__all__]
OPTIMIZERS = [
    cls for cls in OPTIMIZERS if issubclass(cls, optimizers.Optimizer) and cls.rule and not issubclass(cls, OTHERS)
]
OPTIONS = {"plain": {}, "norm": {"clipNorm": 1.0, "decay": 0.1}, "value": {"clipValue": 1.0, "onNonFinite": "skip"}}


class Hollow:
    """What stands for an array, of any size: it has no numbers."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self.strides, self.ndim = contiguous(self.shape, self.dtype.itemsize), len(self.shape)

    def __array_function__(self, function, types, arguments, options):
        isLike = function in (np.zeros_like, np.ones_like, np.full_like)
        assert isLike, f"{function.__name__} wants numbers, and there are none"
        like, *dtype = arguments
        given = dtype[0] if dtype and function is np.zeros_like else options.get("dtype", like.dtype)
        return Hollow(like.shape, given)

    def copy(self):
        return Hollow(self.shape, self.dtype)

    def __getitem__(self, key):
        return Hollow(np.broadcast_to(0, self.shape)[key].shape, self.dtype)

    def reshape(self, shape):
        return Hollow(shape, self.dtype)


class Gathered:
    """In place of what would run a plan: its launches, calls of libraries, the calls that are neither, and the
    functions that it carries out."""

    isQuiet, frozen = True, None

    def __init__(self, plan, room, poison=False):
        calls, found = [call for call in plan.schedule.calls if not call.kind.isView], startsOf(plan)
        self.launches = [each for each in found if isinstance(each, Launch)]
        self.libraries = [each for each in found if not isinstance(each, Launch)]
        self.left = [call for call in calls if not call.kind.isNative]
        self.functions = {each.function for call in calls if call.kind.isNative for each in call.function.calls}


@contextmanager
def onPaper(libraries):
    """Programs for a GPU are made, and none can run; `libraries` says whether cuBLASLt and cuDNN have plans there."""
    with pytest.MonkeyPatch.context() as patch:
        useGpu(patch, libraries)
        patch.setattr(program, "backendFor", lambda graph, dtype: GPU._replace(build=Gathered))
        yield


def gathered(net, *shapes, **options):
    """What a program of a graph would start."""
    for each in (*net.params.values(), *net.states.values()):
        if isinstance(each, FixedState) and each.isAhead:
            continue  # its elements are part of the program
        each.array = Hollow(each.shape, each.dtype)
    made = net.compile(*shapes, **options)
    assert made.executable is not None, f"{net.title()} is not compiled: {made.why}"
    return made.executable


@cache
def ofModules(libraries, mode="float32"):
    """What every example of every module and cost starts, by (class, number, whether it trains)."""
    found = {}
    with onPaper(libraries):
        for cls, number in EXAMPLES:
            if cls is FunctionCall or cls.__name__ in ONNUMPY or isOpen(cls):
                continue  # rules of Python, which would have to run first, or what no program is compiled for
            for train in (True, False):
                module, shapes = examplesOf(cls)[number]
                net, data = alone(module, module.sample(np.random.default_rng(0), *shapes))
                options = {"train": train}
                if any(
                    x.dtype.itemsize == 1 and x.dtype.kind in "iu" for x in data
                ):  # whose types follow their inputs'
                    options["dtypes"] = [np.dtype(np.float32) if x.dtype.kind == "f" else x.dtype for x in data]
                found[cls, number, train] = gathered(net.calcMode(mode), *[x.shape for x in data], **options)
    return found


@cache
def ofModel(name, libraries, mode="float32"):
    """What a training step and an inference of a known network start."""
    make, inputs, target, cost, optimizer = MODELS[name]
    with onPaper(libraries):
        net = make().calcMode(mode)
        step = gathered(net, *inputs, target, cost=cost(), optimizer=optimizer(0.1, clipNorm=1.0), guarded=True)
        return step, gathered(make().calcMode(mode), *inputs, train=False)


@cache
def ofOptimizers(mode="float32"):
    """What the updates of every optimizer with several options start, by (class, name of the options)."""
    found = {}
    with onPaper(False):
        for cls in OPTIMIZERS:
            for name, options in OPTIONS.items():
                net, optimizer = Sequential(Linear(7, 5), Relu(), Linear(5, 4)).calcMode(mode), cls(0.1, **options)
                found[cls, name] = gathered(net, (5, 7), (5,), cost=CrossEntropy(), optimizer=optimizer, guarded=True)
    return found


@cache
def ofRules(mode="float32"):
    """The launches that the rules of every example of every module and cost make where nothing is compiled; the kernels
    that were called; and those that had no launches, with the dtypes of their arguments."""
    launches, called, refused = [], set(), set()

    def noting(call):
        def noted(self, *arguments, **options):
            if "cuda" in self.implementations:
                outline = self.shapeRule(*arguments, **options)
                several = isinstance(outline, list)
                outs = [np.empty(*one) for one in (outline if several else [outline])]
                made = self.implementations["cuda"](outs if several else outs[0], *arguments, **options)
                kinds = tuple([x.dtype.name for x in arguments if isinstance(x, np.ndarray)])
                if made is NotImplemented:
                    refused.add((self.name, kinds))
                else:
                    launches.extend(made)
                    called.add(self)
            return call(self, *arguments, **options)

        return noted

    with pytest.MonkeyPatch.context() as patch:
        for cls in (Kernel, CompositeKernel):
            patch.setattr(cls, "__call__", noting(cls.__call__))
        for cls, number in EXAMPLES:
            module, shapes = examplesOf(cls)[number]
            net, xs = alone(module, [np.asarray(x) for x in module.sample(np.random.default_rng(0), *shapes)])
            net.calcMode(mode)
            kind = np.float32 if type(mode) is str else mode
            outs = net([x.astype(kind) if x.dtype.kind == "f" else x for x in xs])
            seeds = [np.ones_like(y) for y in (outs if isinstance(outs, list) else [outs])]
            net.backward(seeds if len(seeds) > 1 else seeds[0])
    return launches, called, refused
