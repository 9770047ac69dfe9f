"""Plans every convolution and attention of the known models by cuDNN, without a GPU.

    python scripts/plans.py            compare the workspaces with those in puregraph/ops/cuda/libraries/workspaces.json
    python scripts/plans.py --write    write them there
    python scripts/plans.py --here --write    the same for the GPU that is here, which knows its workspaces best
    python scripts/plans.py --only lenet resnet20 --cache FOLDER    keep the plans, for a GPU of these properties

Needs a C compiler and cuDNN, with NVIDIA's frontend: the extra cuda13. What is planned for is an H200, or, with
--properties FILE, the device that a file of properties describes, as `scripts/gpu.sh` writes it.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

import numpy as np
import stubcuda

from puregraph import models
from puregraph.compile.pipeline import schedule
from puregraph.compile.trace.steprequest import StepRequest
from puregraph.graph.sequential import Sequential
from puregraph.modules import Conv2D
from puregraph.ops.attention import cudnn as attention
from puregraph.ops.attention.reference import attend, attendGrad
from puregraph.ops.convolution import cudnn as convolution
from puregraph.ops.convolution.reference import convolve, convolveData, convolveWeight
from puregraph.ops.cuda.libraries import cudnn, workspaces
from puregraph.ops.ir.channelslast import layoutFor
from puregraph.ops.ir.strides import contiguous

HERE = Path(__file__).parent
H200 = HERE.parent / "puregraph/ops/cuda/libraries/h200.json"
LAYS = [(None, None), (None, cudnn.channelsLast), (cudnn.channelsLast, cudnn.channelsLast)]  # of inputs, of filters
STUB = "PUREGRAPH_STUB"  # says that this process has the stub driver

ZOO = {  # the network, the shape of its input, and whether that is integers
    "lenet": (models.lenet, (64, 1, 28, 28)),
    "resnet20": (models.resnet20, (128, 3, 32, 32)),
    "resnet18": (models.resnet18, (64, 3, 224, 224)),
    "resnet50": (models.resnet50, (64, 3, 224, 224)),
    "resnet50 at 256": (models.resnet50, (256, 3, 224, 224)),
    "vgg16": (lambda: models.vgg16(norm=True), (64, 3, 224, 224)),
    "mobilenet": (models.mobilenet, (64, 3, 224, 224)),
    "unet": (lambda: models.unet(norm=True), (16, 1, 256, 256)),
    "gpt": (models.gpt, (64, 256), np.int64),
    "gpt2": (models.gpt2, (16, 1024), np.int64),
    "transformer": (lambda: models.transformer(1), (64, 128, 256)),
    "vit patches": (lambda: Sequential(Conv2D(3, 768, 16, stride=16)), (64, 3, 224, 224)),
    "vit": (lambda: models.transformer(1, 768, 12), (64, 197, 768)),
}

FURTHER = ("lenet", "resnet18", "unet", "gpt2", "vit")  # of which more is planned than their steps ask for


class Believer:
    """A planner that has a plan for everything."""

    def plan(self, task):
        return cudnn.CudnnPlan(b"", 0)


class Array:
    """A placeholder of an array: shape, dtype and strides."""

    def __init__(self, shape, dtype, strides):
        self.shape, self.dtype, self.strides = shape, dtype, strides
        self.size = int(np.prod(shape))


class Kind:
    """A dtype that numpy need not know."""

    def __init__(self, name):
        self.name = "float32" if name == "tf32" else name
        self.itemsize = 4 if self.name == "float32" else 2


def calls(make, shape, dtype=np.float32):
    """The calls of kernels for which there is a library, in a pass forward and backward."""
    found = schedule(make(), [shape], [dtype], StepRequest([True], updGrad=False, layout=layoutFor)).calls
    return [call for call in found if call.function in TASKS]


def arrayOf(value, kind, lay=None):
    """A value of a step as an array of a dtype; `lay` gives other strides."""
    strides = [step // value.dtype.itemsize for step in value.strides] if lay is None else lay(value.shape)
    return Array(value.shape, kind, tuple(step * kind.itemsize for step in strides))


def forward(call, kind, tf32, lay, filters, **tail):
    x, W, *rest = call.arguments
    out, x, W = arrayOf(call.outs[0], kind, lay), arrayOf(x, kind, lay), arrayOf(W, kind, filters)
    return convolution.convolve(out, x, W, *rest, tf32=tf32, **tail)


def data(call, kind, tf32, lay, filters):
    grad, W, *rest = call.arguments
    out, grad, W = arrayOf(call.outs[0], kind, lay), arrayOf(grad, kind, lay), arrayOf(W, kind, filters)
    return convolution.convolveData(out, grad, W, *rest, tf32=tf32)


def weight(call, kind, tf32, lay, filters):
    grad, x, *rest = call.arguments
    out, grad, x = arrayOf(call.outs[0], kind, filters), arrayOf(grad, kind, lay), arrayOf(x, kind, lay)
    return convolution.convolveWeight(out, grad, x, *rest, tf32=tf32)


def heads(call, kind, tf32, *lays, **more):
    q, k, v, mask, causal, scale = call.arguments
    y, q, k, v = (arrayOf(x, kind) for x in (call.outs[0], q, k, v))
    return attention.attend([y, row(q)], q, k, v, causal, scale, tf32=tf32, **more)


def headsGrad(call, kind, tf32, *lays, isInPlace=False, **more):
    grad, q, k, v, mask, lse, rest, causal, scale, ofMask = call.arguments
    grad, q, k, v = (arrayOf(x, kind) for x in (grad, q, k, v))
    outs = [q, k, v] if isInPlace else [arrayOf(x, kind) for x in call.outs]
    more = {"repeats": True, **more}
    return attention.attendGrad(outs, grad, q, k, v, grad, row(q), causal, scale, tf32=tf32, **more)


def further(call, kind, tf32):
    """Further tasks: a bias, a residual and an activation after a convolution; attention with
    dropout, a mask of keys, or sums that need not be deterministic."""
    if call.function is convolve:
        out = arrayOf(call.outs[0], kind, cudnn.channelsLast)
        bias = Array(out.shape[1:2], kind, (kind.itemsize,))
        yield forward(call, kind, tf32, *LAYS[-1], bias=bias, activation="relu")
        yield forward(call, kind, tf32, *LAYS[-1], bias=bias, residual=out, activation="relu")
    elif call.function in (attend, attendGrad):
        number, keys = Array((1,), np.dtype(np.int64), (8,)), call.arguments[2 if call.function is attendGrad else 1]
        shape = (keys.shape[0], 1, 1, keys.shape[2])
        make = TASKS[call.function]
        yield make(call, kind, tf32, dropout=0.1, random=(number, number))
        yield make(call, kind, tf32, bias=Array(shape, kind, contiguous(shape, kind.itemsize)))
        if call.function is attendGrad:
            yield make(call, kind, tf32, repeats=False)
            yield make(call, kind, tf32, repeats=False, isInPlace=True)


def row(q):
    """The log-sum-exp of queries."""
    shape = (*q.shape[:3], 1)
    return Array(shape, np.dtype(np.float32), contiguous(shape, 4))


TASKS = {convolve: forward, convolveData: data, convolveWeight: weight, attend: heads, attendGrad: headsGrad}


def tasks(names):
    """Each task of cuDNN that the models of these names ask for, once: as their steps have it, with filters channels
    last, and with all activations so as well."""
    chosen = [(name, entry) for name, entry in ZOO.items() if not names or name.startswith(tuple(names))]
    made = []
    with cudnn.usePlanner(Believer()):
        for name, entry in chosen:
            for call, kind in product(calls(*entry), workspaces.KINDS):
                how = Kind(kind), kind == "tf32"
                made += [TASKS[call.function](call, *how, *lays) for lays in LAYS]
                made += [headsGrad(call, *how, isInPlace=True)] if call.function is attendGrad else []
                made += further(call, *how) if name in FURTHER else []
    return {call.name: call.task for call in made if isinstance(call, cudnn.CudnnCall)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the workspaces, instead of comparing them")
    parser.add_argument("--here", action="store_true", help="plan for the GPU of this machine")
    parser.add_argument("--only", nargs="*", default=[], metavar="MODEL", help="only models whose names begin so")
    parser.add_argument("--cache", metavar="FOLDER", help="where plans are kept, and taken from")
    parser.add_argument("--properties", default=str(H200), metavar="FILE", help="what tells the device")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write takes all models")
    if cudnn.missing():
        sys.exit(cudnn.missing())
    if STUB not in os.environ and not options.here:
        return again(options.cache)
    return plan(options)


def again(cache):
    """The same in a process that has the stub driver; without a folder for them, plans are forgotten."""
    with tempfile.TemporaryDirectory() as folder:
        stubcuda.build(folder)
        paths = [folder, *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)]
        environment = os.environ | {
            STUB: "1",
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, paths)),
            "PUREGRAPH_CACHE": cache or str(Path(folder) / "cache"),
            "PUREGRAPH_DEVICE": "cpu",
        }
        return subprocess.run([sys.executable, *sys.argv], env=environment).returncode


def plan(options):
    """Plan everything, and write or compare."""
    wanted = tasks(options.only)
    planner, made = cudnn.CudnnPlanner("" if options.here else Path(options.properties).read_text()), {}
    if not planner.compiles:
        sys.exit("cuDNN cannot compile its kernels here, by NVRTC and the driver that drives nothing")
    for text, task in wanted.items():
        found = planner.plan(task)
        made[text] = None if found is None else found.workspace
    print(f"{planner.label}: {len(made)} tasks, {sum(size is None for size in made.values())} without a plan")
    if options.write:
        workspaces.FILE.write_text(workspaces.written(made, planner.label))
        return 0
    wrong = [text for text, size in made.items() if workspaces.known(text) != size]
    for text in wrong:
        print(f"{text}: {workspaces.known(text)} bytes are in {workspaces.FILE.name}, cuDNN says {made[text]}")
    if wrong:
        print("If that is as it should be (other models, layouts or versions): python scripts/plans.py --write")
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
