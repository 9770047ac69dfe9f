"""Times the kernels of a training step on a GPU, next to the bytes that those of this library move.

    python scripts/kerneltimes.py resnet50 gpt2     by their time, the longest first

Times are CUPTI's, by PyTorch's profiler, of one step as one graph of CUDA, after others. The bytes are those of
`scripts/roofline.py`, by which what is updated in place counts once. Needs a GPU, and a PyTorch that finds it.
"""

import argparse
import sys
from collections import Counter, defaultdict

from roofline import traffic

from benchmarks.contenders import puregraph as side
from puregraph.core import device

STEPS = 3  # the last one counts
WIDTH = 70


def step(workload):
    """The training step of a workload."""
    batch, precision = traffic.CASES[workload]
    return side.prepare(workload, "train", batch, None, compiled=True, precision=precision)[0]


def traced(run):
    """The kernels of the last of some steps, in their order: names and seconds."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    for _ in range(STEPS):
        run()
    side.wait()
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        for _ in range(STEPS):
            run()
        side.wait()
    found = [event for event in trace.events() if event.device_type == DeviceType.CUDA]
    found.sort(key=lambda event: event.time_range.start)
    return [(event.name, event.time_range.elapsed_us() * 1e-6) for event in found[-len(found) // STEPS :]]


def moved(plan):
    """The bytes that the kernels of this library read and write, by their names."""
    found = Counter()
    for call in plan.schedule.calls:
        for task in call.function.works if call.kind.isNative else ():
            if hasattr(task.what, "entry"):
                found[task.what.entry] += traffic.touched(task.what)
    return found


def table(kernels, sizes):
    """Lines: how often a kernel ran, how long, and how many bytes a second it moved; the longest first."""
    times = defaultdict(list)
    for name, seconds in kernels:
        times[name].append(seconds)
    yield f"{'us':>9} {'runs':>5} {'GB':>7} {'TB/s':>6}  kernel"
    for name, each in sorted(times.items(), key=lambda item: -sum(item[1])):
        total, size = sum(each), sizes.get(name)
        bytes_ = f"{size / 1e9:7.2f} {size / total / 1e12:6.2f}" if size else f"{'':14}"
        yield f"{1e6 * total:9.0f} {len(each):5} {bytes_}  {name[:WIDTH]}"
    yield f"{1e6 * sum(seconds for _, seconds in kernels):9.0f} {len(kernels):5}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "workloads", nargs="+", choices=list(traffic.CASES), metavar="WORKLOAD", help="as for roofline.py"
    )
    options = parser.parse_args()
    if device.name() != "cuda":
        sys.exit(f"there is nothing to time: {device.reason()}")
    for name in options.workloads:
        sizes = moved(traffic.planOf(name))
        print(f"{name} {' '.join(map(str, traffic.CASES[name]))}")
        print("\n".join(table(traced(step(name)), sizes)), end="\n\n")


if __name__ == "__main__":
    main()
