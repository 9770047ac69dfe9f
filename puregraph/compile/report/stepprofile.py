"""Step profile: how long each step of a compiled program takes on this machine."""

from __future__ import annotations

from copy import deepcopy
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from puregraph.compile.report.flops import flopsOf
from puregraph.compile.report.steptable import table
from puregraph.compile.runtime.steptimer import StepTimer
from puregraph.core.arguments import Count, takes
from puregraph.core.errors import PuregraphError
from puregraph.core.late import Late
from puregraph.graph.analysis.summary import secondsText

if TYPE_CHECKING:
    from puregraph.compile.memory.planner import MemoryPlan
    from puregraph.compile.program import Program

WARMUP = 3  # uncounted runs: they touch pages, fill caches and choose kernels


class StepProfile:
    """Measured times of a program's steps: medians over some runs.

    `seconds`  of each step, in the order of `program.table()`
    `whole`    of a normal run, in which native steps share one start of the threads
    """

    _repr_html_ = Late("puregraph.draw.notebook", "profileHtml")

    def __init__(self, plan: MemoryPlan, seconds: dict[int, float], whole: float):
        self.plan, self.byCall, self.whole = plan, seconds, whole

    @property
    def seconds(self) -> list[float]:
        """The seconds of each step, in the order of the program's table."""
        return list(self.byCall.values())

    def table(self, width: int = 120) -> str:
        """Every step with its time, its share of the total, and the operations per second it reaches."""
        total = sum(self.byCall.values())
        cells: dict[int, tuple[str, ...]] = {}
        calls = self.plan.schedule.calls
        for number, seconds in self.byCall.items():
            flops = flopsOf(calls[number])
            rate = f"{1e-9 * flops / seconds:,.1f}" if flops and seconds else ""
            cells[number] = secondsText(seconds), f"{seconds / total:.1%}", rate
        note = f"{secondsText(total)} with each step timed alone, {secondsText(self.whole)} for a normal run"
        return "\n".join([table(self.plan, width, measured=cells), note])

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<StepProfile: {len(self.byCall)} steps, {secondsText(self.whole)} a run>"


@takes(runs=Count)
def profile(program: Program, *inputs: Any, runs: int = 20, **numbers: float) -> StepProfile:
    """Measure each step: `print(program.profile(x, y))`; medians over `runs` runs with these inputs.

    It runs on a copy of the graph and the optimizer: parameters, states and the count of updates do not change.

    Raises    PuregraphError if the program is not compiled, with the reason, or runs on a GPU; any error of `run`
    """
    plan = program.plan
    if program.isAhead:
        raise PuregraphError(
            f"{program!r} runs on a GPU as CUDA graphs, whose steps the host does not see: "
            "measure them with  nsys profile python SCRIPT.py"
        )
    clone = deepcopy(program)
    times = []
    for _ in range(WARMUP + runs):
        begin = perf_counter()
        clone.run(*inputs, copy=False, **numbers)
        times.append(perf_counter() - begin)
    clone.observer = timer = StepTimer()
    clone.buildExecutable(clone.plan)
    for _ in range(WARMUP + runs):
        clone.run(*inputs, copy=False, **numbers)
    if len(timer.runs) < WARMUP + runs or len(clone.plan.schedule.calls) != len(plan.schedule.calls):
        raise PuregraphError(
            f"{program!r}: these inputs are not run by the compiled steps, so there is nothing to measure"
        )
    del timer.runs[:WARMUP]
    return StepProfile(plan, timer.seconds(), median(times[WARMUP:]))
