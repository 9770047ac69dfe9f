"""Traffic: the bytes that the steps of a training step read and write on a GPU, and the count of its launches.

All is planned without a GPU and without data. `traffic.json` has what each node took; a change that adds a pass over
memory fails with the node whose step was added. `python tests/compile/test_traffic.py` writes that file anew.
"""

import json
import math
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
sys.path += [str(path) for path in (ROOT, ROOT / "tests" / "lib") if str(path) not in sys.path]

from fakecupy import useGpu  # noqa: E402 - found through the line above
from texts import Hollow  # noqa: E402

from benchmarks import workloads  # noqa: E402
from benchmarks.contenders import puregraph as side  # noqa: E402
from puregraph.compile import program  # noqa: E402
from puregraph.compile.backend import GPU  # noqa: E402
from puregraph.compile.gpu.lower.copylaunch import stored  # noqa: E402
from puregraph.ops.cuda.runtime.launch import PointerTable  # noqa: E402
from puregraph.ops.ir.value import Offset  # noqa: E402

GOLDEN = Path(__file__).with_name("traffic.json")
CASES = {
    "resnet50": (256, "bfloat16"),
    "gpt2": (16, "bfloat16"),
    "vit": (64, "bfloat16"),
    "unet": (4, "float32"),
    "lstm": (32, "float32"),
    "mlp": (64, "float32"),
    "lenet": (64, "float32"),
}
MEGABYTE = 10**6


class Planned:
    """In place of what would run a plan: the plan."""

    neverWarns, isStale, packedWeights = True, False, None

    def __init__(self, plan, workspace, poison=False):
        self.plan = plan


def planOf(name):
    """The plan of a workload's training step, whose libraries have a plan for everything."""
    batch, precision = CASES[name]
    workload = workloads.load(name)
    inputs, target = workloads.dataOf(workload, 1)
    shapes = [(batch * x.shape[0], *x.shape[1:]) for x in (*inputs, target)]
    with pytest.MonkeyPatch.context() as patch:
        net = side.network(name, None).calcMode(precision).trainMode()
        useGpu(patch)
        for each in (*net.params.values(), *net.states.values()):
            each.array = Hollow(each.shape, each.dtype)
        patch.setattr(program, "backendFor", lambda graph, dtype: GPU._replace(build=Planned))
        cost, optimizer = side.COSTS[workload.COST](), side.OPTIMIZERS[workload.OPTIMIZER]()
        wanted = [True, *[False] * len(net.outputNames)]
        made = net.compile(shapes, cost=cost, optimizer=optimizer, train=True, wanted=wanted, keepGrads=False)
        return made.executable.plan


def bytesOf(what):
    """The bytes that a launch touches of an argument: along an axis that is broadcast it reads the same ones."""
    if isinstance(what, PointerTable):
        return sum(map(bytesOf, what.whats))
    x = what if hasattr(what, "shape") else what.value
    return math.prod(n for n, s in zip(x.shape, x.strides) if s) * x.dtype.itemsize


def touched(work):
    """The bytes that a launch reads and writes: of a part of an array no more than the most of what it has beside."""
    whats = [what for kind, what in work.slots if kind == "pointer"]
    most = max([bytesOf(what) for what in whats if not isinstance(what, Offset)], default=math.inf)
    return sum(min(bytesOf(what), most) if isinstance(what, Offset) else bytesOf(what) for what in whats)


def trafficOf(plan):
    """By node and phase the launches, and the megabytes that they read and write."""
    launches, moved = Counter(), Counter()
    for call in plan.schedule.calls:
        if not call.kind.isView:
            node = f"{call.origin.phase} {call.origin.path}"
            works = [task.what for task in call.function.works] if call.kind.isNative else []
            launches[node] += len(works) or 1
            moved[node] += sum(map(touched, works))
    for target, value in plan.copies:
        launches["copies"] += len(stored(value, target.array))
    return {node: [n, round(moved[node] / MEGABYTE, 1)] for node, n in launches.items()}


def totals(found):
    """The launches and the megabytes of a step."""
    return sum(n for n, _ in found.values()), sum(size for _, size in found.values())


@pytest.mark.parametrize("name", CASES)
def test_a_step_reads_and_writes_no_more_than_before_and_the_node_that_does_is_named(name):
    wanted, found = json.loads(GOLDEN.read_text())[name], trafficOf(planOf(name))
    more = [
        f"{node}: {n} launches, {size} MB, and were {was[0]}, {was[1]} MB"
        for node, (n, size) in found.items()
        if n > (was := wanted.get(node, [0, 0.0]))[0] or size > was[1] + 0.5
    ]
    launches, size = totals(found)
    before, least = totals(wanted)
    assert launches <= before and size <= least * 1.001, "\n".join(["added to the step:", *more])
    assert launches == before and size >= least * 0.999, (
        f"{GOLDEN.name} has {before} launches, {least:.0f} MB: renew it"
    )


@pytest.mark.parametrize("name, launches, size", [("resnet50", 500, 93e3), ("gpt2", 330, 44e3)])
def test_a_step_keeps_its_limits(name, launches, size):
    count, moved = totals(json.loads(GOLDEN.read_text())[name])
    assert count <= launches and moved <= size


def test_a_norm_and_its_relu_take_eight_passes_over_their_input_forward_and_backward_together():
    found, size = json.loads(GOLDEN.read_text())["resnet50"], 256 * 64 * 56 * 56 * 2 / MEGABYTE
    for index in (1, 2):
        block = "resnet50.stage1.block1"
        names = f"forward {block}.norm{index}", f"forward {block}.relu{index}", f"backward grad:{block}.norm{index}"
        assert sum(found[node][1] for node in names) == pytest.approx(8 * size, rel=2e-3)


def test_a_layer_norm_goes_back_with_three_reads_and_one_write_and_forward_with_its_skip_in_one():
    found, size = json.loads(GOLDEN.read_text())["gpt2"], 16 * 1024 * 768 * 2 / MEGABYTE
    sums = 2 * 768 * 4 * 781 / MEGABYTE  # of each of 781 blocks, for the gradients of scale and bias
    for index in range(2, 12):
        block = f"sequential.gpt.block{index}"
        launches, moved = found[f"backward sum:{block}.add2"]  # the output's gradient, the input, the skip's gradient
        assert launches == 2 and moved == pytest.approx(4 * size + 2 * sums, rel=2e-3)
        launches, moved = found[f"forward {block}.norm2"]  # both terms of the skip; their sum, and its norm
        assert launches == 1 and moved == pytest.approx(4 * size, rel=2e-3)


def test_an_added_pass_is_named(monkeypatch):
    from puregraph.compile import pipeline

    monkeypatch.setattr(pipeline, "inlineCheapValues", lambda schedule: schedule)
    with pytest.raises(AssertionError, match=r"added to the step:\s+forward resnet50.relu: 1 launches"):
        test_a_step_reads_and_writes_no_more_than_before_and_the_node_that_does_is_named("resnet50")


if __name__ == "__main__":
    rows = {name: trafficOf(planOf(name)) for name in CASES}
    GOLDEN.write_text(json.dumps(rows, indent=0) + "\n")
    for name, found in rows.items():
        print(name, *CASES[name], "{} launches, {:.0f} MB".format(*totals(found)))
