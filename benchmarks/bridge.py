"""What a call through the bridge to PyTorch costs besides its compiled run: `asFunction` and `asModule`.

    python benchmarks/bridge.py [--calls 3000] [--repeats 15]

The network is small (8 samples of 4 numbers), so that a call is little else than its overhead. Three calls take turns:
the one through the bridge, the compiled passes alone on the same arrays, and a torch.autograd.Function with as many
tensors whose forward and backward return tensors made before. Backward passes add their gradients to `grad` of the
input and of all parameters; for asFunction that includes the hooks which leave them in `net.params`. `overhead` is the
first less the others, the median of all repeats, and `least` the smallest; networks without parameters and with 12
show the cost of a parameter. Rows `cleared` time a backward pass alone that finds no gradients, each call by itself:
after an optimizer's update (asFunction) or with each `grad` set to None (asModule, and the empty function).

Prints a table, and saves it with the command to benchmarks/results/bridge.txt.
"""

import argparse
import gc
import statistics
import sys
import time
from functools import partial
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


def clearedCalls(bridge, x, params, net):
    """Backward passes that find no gradients, by name: functions that prepare a call, and return it.

    All are prepared alike, for what precedes a call decides what is in the cache: by an update, where a net gives its
    parameters, and by `None` in each `grad` that it leaves.
    """
    import torch

    leaves, seed = (x, *params), torch.ones_like(bridge(x))
    others = [torch.zeros_like(t).requires_grad_() for t in leaves]
    empty = emptyFunction(torch.zeros_like(seed), tuple(map(torch.zeros_like, leaves)))
    run = backwardCalls(bridge, x, params)["run"]
    update = None if net is None else SGD(0.0).setupOn(net).update
    if update is not None:
        bridge(x).backward(seed)  # the first update needs gradients

    def prepare(call, inputs, cleared):
        if update is not None:
            update()
        for tensor in cleared:
            tensor.grad = None
        return partial(call(*inputs).backward, seed)

    def prepareRun():
        prepare(bridge, (x,), ours)
        return run

    ours = leaves if update is None else (x,)
    return {
        "bridge": lambda: prepare(bridge, (x,), ours),
        "run": prepareRun,
        "empty": lambda: prepare(empty, others, others),
    }


def median(prepare, calls):
    """The median processor time of single calls, each of which was prepared."""
    times = []
    for _ in range(calls):
        call = prepare()
        start = time.thread_time_ns()
        call()
        times.append((time.thread_time_ns() - start) / 1000)
    return statistics.median(times)


def row(runs, clock, calls, repeats):
    """A row's numbers: each median, the overhead, and the smallest of all repeats."""
    for run in runs.values():
        clock(run, 50)
    rows = [[clock(run, calls) for run in runs.values()] for _ in range(repeats)]
    overheads = [bridge - run - empty for bridge, run, empty in rows]
    return *map(statistics.median, zip(*rows)), statistics.median(overheads), min(overheads)


def measure(calls, repeats):
    """Lines of the table."""
    import torch

    torch.set_num_threads(1)
    for count, make in NETWORKS.items():
        for name, wrap in [("asFunction", asFunction), ("asModule", asModule)]:
            net, x = make(), torch.randn(8, 4, requires_grad=True)
            bridge = wrap(net)
            params = list(bridge.module.parameters() if name == "asFunction" else bridge.parameters())
            cases = [
                ("forward", forwardCalls(bridge, x, params), microseconds),
                ("backward", backwardCalls(bridge, x, params), microseconds),
            ]
            if params:
                runs = clearedCalls(bridge, x, params, net if name == "asFunction" else None)
                cases.append(("cleared", runs, median))
            for direction, runs, clock in cases:
                numbers = row(runs, clock, calls, repeats)
                verdict = "" if numbers[-2] < TARGET else "   above the target"
                columns = "".join(f"{number:9.1f}" for number in (*numbers, TARGET))
                yield f"{name:12}{count:6}  {direction:10}{columns}{verdict}"


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
