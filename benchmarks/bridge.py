"""What a call through the bridge to PyTorch costs besides its compiled run: `asFunction` and `asModule`.

    python benchmarks/bridge.py [--calls 3000] [--repeats 15]

The network is small (8 samples of 4 numbers), so that a call is little else than its overhead. Three calls take turns:
the one through the bridge, the compiled passes alone on the same arrays, and a torch.autograd.Function with as many
tensors whose forward and backward return tensors made before. Backward passes add their gradients to `grad` of the
input and of all parameters; for asFunction that includes the hooks which leave them in `net.params`. `overhead` is the
first less the others, the median of all repeats, and `least` the smallest; networks without parameters and with 12
show the cost of a parameter. Rows `cleared` time a backward pass alone that finds no gradients, after an optimizer's
update (asFunction) or with each `grad` set to None (asModule), and have no other columns.

Prints a table, and saves it with the command to benchmarks/results/bridge.txt.
"""

import argparse
import gc
import statistics
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import machine
from puregraph import Linear, Sequential, Tanh
from puregraph.optimizers import SGD
from puregraph.torch import asArray, asFunction, asModule

TARGET = 30.0  # microseconds a call and direction
RESULT = Path(__file__).parent / "results" / "bridge.txt"
NETWORKS = {  # parameters to the network
    0: lambda: Sequential(Tanh(name="tanh")),
    2: lambda: Sequential(Linear(4, 4, name="fc")),
    12: lambda: Sequential([Linear(4, 4, name=f"fc{i}") for i in range(6)]),
}


def emptyFunction(output, gradients):
    """A torch.autograd.Function that computes nothing."""
    import torch

    class Empty(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            return output.detach()

        @staticmethod
        def backward(ctx, grad):
            return gradients

    return Empty.apply


def forwardCalls(bridge, x, params):
    """The forward calls by name: bridge, compiled pass, empty function."""
    import torch

    call = bridge.call if hasattr(bridge, "call") else bridge.module.call
    y, arrays = bridge(x), [asArray(x)]
    forward = call.split((True,) * (1 + len(params))).forwardPass.last
    empty = emptyFunction(y.detach(), tuple(torch.zeros_like(t) for t in (x, *params)))
    return {"bridge": lambda: bridge(x), "run": lambda: forward.runFast(arrays), "empty": lambda: empty(x, *params)}


def backwardCalls(bridge, x, params):
    """The backward calls by name, with gradients for the input and all parameters."""
    import torch

    call = bridge.call if hasattr(bridge, "call") else bridge.module.call
    y, leaves = bridge(x), (x, *params)
    seed = torch.ones_like(y)
    split, seen = call.split((True,) * len(leaves)), []
    torch.autograd.grad(y, leaves, seed, retain_graph=True)
    last, runFast = split.backwardPass.last, split.backwardPass.last.runFast
    last.runFast = lambda values: seen.append(values) or runFast(values)
    torch.autograd.grad(y, leaves, seed, retain_graph=True)
    del last.runFast
    others = [torch.zeros_like(t).requires_grad_() for t in leaves]
    z = emptyFunction(y.detach(), tuple(torch.zeros_like(t) for t in leaves))(*others)
    return {
        "bridge": lambda: y.backward(seed, retain_graph=True),
        "run": lambda: runFast(seen[0]),
        "empty": lambda: z.backward(seed, retain_graph=True),
    }


def microseconds(run, calls):
    """The mean processor time of a call, which other processes disturb less than time by the clock."""
    start = time.thread_time_ns()
    for _ in range(calls):
        run()
    return (time.thread_time_ns() - start) / 1000 / calls


def clearedBackward(bridge, x, params, net, calls):
    """The median processor time of a backward pass after an update, or after gradients were set to None."""
    import torch

    optimizer = None if net is None else SGD(0.0).setupOn(net)
    if optimizer is not None:
        bridge(x).sum().backward()  # the first update needs gradients
    seed, times = torch.ones_like(bridge(x)), []
    for _ in range(calls):
        if optimizer is not None:
            optimizer.update()
        for tensor in (x,) if optimizer is not None else (x, *params):
            tensor.grad = None
        y = bridge(x)
        start = time.thread_time_ns()
        y.backward(seed)
        times.append((time.thread_time_ns() - start) / 1000)
    return statistics.median(times[50:])


def measure(calls, repeats):
    """Lines of the table."""
    import torch

    torch.set_num_threads(1)
    for count, make in NETWORKS.items():
        for name, wrap in [("asFunction", asFunction), ("asModule", asModule)]:
            net, x = make(), torch.randn(8, 4, requires_grad=True)
            bridge = wrap(net)
            params = list(bridge.module.parameters() if name == "asFunction" else bridge.parameters())
            for direction, callsOf in [("forward", forwardCalls), ("backward", backwardCalls)]:
                runs = callsOf(bridge, x, params)
                for run in runs.values():
                    microseconds(run, 50)
                rows = [[microseconds(run, calls) for run in runs.values()] for _ in range(repeats)]
                middle = [statistics.median(column) for column in zip(*rows)]
                overhead = statistics.median(row[0] - row[1] - row[2] for row in rows)
                least = min(row[0] - row[1] - row[2] for row in rows)
                verdict = "" if overhead < TARGET else "   above the target"
                numbers = "".join(f"{number:9.1f}" for number in (*middle, overhead, least, TARGET))
                yield f"{name:12}{count:6}  {direction:10}{numbers}{verdict}"
            if params:
                cleared = clearedBackward(bridge, x, params, net if name == "asFunction" else None, calls + 50)
                yield f"{name:12}{count:6}  {'cleared':10}{cleared:9.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    titles = "".join(f"{title:>9}" for title in ("bridge", "run", "empty", "overhead", "least", "target"))
    lines = [
        f"{' '.join(['python', 'benchmarks/bridge.py', *sys.argv[1:]])}",
        machine.processor(),
        machine.versions(("puregraph", "numpy", "llvmlite", "torch")),
        f"{options.repeats} repeats of {options.calls} calls in turns; medians, microseconds of processor time a call",
        "",
        f"{'':12}{'params':>6}  {'direction':10}{titles}",
    ]
    print("\n".join(lines), flush=True)
    gc.collect()
    for line in measure(options.calls, options.repeats):
        lines.append(line)
        print(line, flush=True)
    RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
