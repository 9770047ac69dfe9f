"""Counts what a training step of PyTorch eager launches, reads and writes on a GPU; nothing is computed.

    python scripts/eagertraffic.py resnet50 gpt2     launches, GB and estimated ms, beside those of scripts/roofline.py

PyTorch runs the step of benchmarks/contenders/torch.py on tensors without memory, with the casts of its autocast, and
each operation that it dispatches is counted: its tensors are read once, its results written once, views cost nothing.
`MORE` has the operations that take more launches or passes than that. Times are by the arithmetic of
scripts/roofline.py with PyTorch's own counts of operations; what the host takes between launches is left out, as in a
captured graph.
"""

import argparse
import sys
import warnings
from math import prod
from pathlib import Path

HERE = Path(__file__).parent.parent
sys.path += [str(HERE), str(HERE / "scripts")]

import roofline  # noqa: E402 - found through the line above
import torch  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402
from torch.utils.flop_counter import flop_registry  # noqa: E402

from benchmarks import workloads  # noqa: E402
from benchmarks.contenders import torch as side  # noqa: E402

MORE = {  # launches, and how often each of the first arguments is read again; as CUDA's kernels in ATen have it
    "native_batch_norm": (2, (1,)),  # statistics, then a pass that normalises
    "cudnn_batch_norm": (2, (1,)),
    "native_batch_norm_backward": (2, (1, 1)),
    "convolution_backward": (2, (1,)),  # the gradient of the data, and of the weights
    "native_layer_norm_backward": (2, (1, 1)),  # of the input, and of the parameters
    "embedding_dense_backward": (3, ()),
}


class TrafficCounter(TorchDispatchMode):
    """Counts the operations that are dispatched: (name, launches, bytes, seconds) of each."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def __torch_dispatch__(self, function, types, args=(), options=None):
        found = function(*args, **(options or {}))
        if not function.is_view and "detach" not in str(function):
            self.add(function, args, options or {}, found)
        return found

    def add(self, function, args, options, found):
        """One operation."""
        reads = [x for x in tree_leaves((args, options)) if isinstance(x, torch.Tensor)]
        known = {id(x) for x in reads}
        makes = [x for x in tree_leaves(found) if isinstance(x, torch.Tensor)]
        writes = [x for x in makes if id(x) not in known] + written(function, args, options)
        name = function.overloadpacket.__name__
        if not writes or (name.startswith("empty") or name in ("_unsafe_view", "lift_fresh")):
            return
        count, again = MORE.get(name, (1, ()))
        reads += [x for x, n in zip([x for x in args if isinstance(x, torch.Tensor)], again) for _ in range(n)]
        size = sum(bytesOf(x) for x in (*reads, *writes))
        seconds = max(size / roofline.BANDWIDTH, self.computing(function, args, options, found))
        between = roofline.BETWEEN * count + roofline.EXTRA * (seconds < roofline.SHORT)
        self.rows.append((name, count, size, seconds + between))

    def computing(self, function, args, options, found):
        """The seconds of the operations of a product, a convolution or attention; 0 for what memory bounds."""
        packet = function.overloadpacket
        if packet not in flop_registry:
            return 0.0
        flops, name = flop_registry[packet](*args, **options, out_val=found), packet.__name__
        if "attention" in name:
            causal = any(x is True for x in args)
            return flops * (0.5 if causal else 1) / ((280 if "backward" in name else 320) * roofline.TERA)
        if "conv" in name:
            return flops / (550 * roofline.TERA)
        sides, inner = found.shape[-2:], flops / 2 / prod(found.shape)
        rate = 700 if min(sides) >= 1024 and inner >= 2048 else 600 if inner >= 512 else 450
        return flops / ((350 if min(sides) <= 128 else rate) * roofline.TERA)


def written(function, args, options):
    """The tensors that an operation writes over."""
    found = []
    for argument, value in zip(function._schema.arguments, args):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found += [x for x in tree_leaves(value) if isinstance(x, torch.Tensor)]
    return found


def bytesOf(x):
    """The bytes of a tensor that are there: along an axis that is broadcast it has the same ones."""
    return prod([n for n, s in zip(x.shape, x.stride()) if s]) * x.element_size()


def step(name):
    """The rows of a training step."""
    batch, precision = roofline.traffic.CASES[name]
    workload = workloads.load(name)
    arrays, target = workloads.dataOf(workload, 1)
    with FakeTensorMode():
        net = workload.torch(torch)
        inputs = [torch.empty((batch * x.shape[0], *x.shape[1:]), dtype=kindOf(x)) for x in arrays]
        goal = torch.empty((batch * target.shape[0], *target.shape[1:]), dtype=kindOf(target))
        if workload.IMAGES:
            for module in net.modules():  # `to` cannot swap tensors without memory
                if isinstance(module, torch.nn.Conv2d):
                    module.weight = torch.nn.Parameter(module.weight.detach().contiguous(memory_format=side.LAST))
            inputs = [x.contiguous(memory_format=side.LAST) if x.ndim == 4 else x for x in inputs]
        run = side.train(net, inputs, goal, workload, False, precision)
        run()
        with TrafficCounter() as counter:
            run()
    return counter.rows


def kindOf(x):
    """The dtype of an array in PyTorch."""
    return getattr(torch, x.dtype.name)


def main(step=step, what=__doc__):
    """The table of a step, counted by this script or by another one, which says what."""
    parser = argparse.ArgumentParser(description=what.splitlines()[0])
    parser.add_argument("workloads", nargs="*", default=["resnet50", "gpt2", "vit"])
    parser.add_argument("--launches", action="store_true", help="each operation")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.workloads:
        rows = step(name)
        for title, count, size, seconds in rows if options.launches else ():
            print(f"{title[:40]:40} {count:3} {size / 1e6:9.1f} MB {seconds * 1e6:8.1f} us")
        count, size, seconds = (sum(row[i] for row in rows) for i in (1, 2, 3))
        head = f"{name} {roofline.traffic.CASES[name][0]} {roofline.traffic.CASES[name][1]}"
        print(f"{head:24} {count:4} launches {size / 1e9:7.2f} GB {seconds * 1e3:7.2f} ms")


if __name__ == "__main__":
    main()
