"""What is compared: each file has one network, the same for every contender, and its data.

TITLE       what it is
CASES       pairs of what is done, "train" or "infer", and the batch
COST        "crossentropy", "mse" or "bce"
OPTIMIZER   "sgd" (momentum 0.9) or "adamw"
IMAGES      whether inputs are images, so that channels-last makes a difference
data(rng, batch)   the inputs and the target, as numpy arrays
ours()             the network as a puregraph Graph
TINY        what to make smaller so that it can be tried in seconds, if it is large
torch(torch)       the network as a torch.nn.Module, its parameters in the same order
jax(net, *inputs)  the network as a function that takes its layers, in the same order, from `net`
"""

import importlib

import numpy as np

NAMES = (
    *("mlp", "lenet", "resnet20", "resnet18", "mobilenet", "unet"),
    *("lstm", "transformer", "gpt", "dlrm"),
)
ONGPU = ("resnet50", "gpt2", "vit")  # too large for anything but a GPU, and without JAX
RATE = 1e-12  # so small that weights stay: nothing diverges, and no momentum decays to denormal numbers


def load(name):
    """The workload of this name."""
    return importlib.import_module(f"benchmarks.workloads.{name}")


def resize(name, settings):
    """Give the constants of a workload other values in this process."""
    for key, value in settings.items():
        setattr(load(name), key, value)


def dataOf(workload, batch):
    """Inputs and target of a batch: the same for every contender."""
    return workload.data(np.random.default_rng(0), batch)


def floats(rng, *shape):
    """Standard normal values in float32."""
    return rng.standard_normal(shape, np.float32)


def withPixelsLast(x):
    """Images (n, c, h, w) as (n, h, w, c)."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if x.ndim == 4 else x
