"""Plan command: the options of `puregraph plan`, and the plans that they describe."""

from __future__ import annotations

import argparse
import runpy
import shlex
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from puregraph import optimizers
from puregraph.cli.modelargument import modelAndShapes
from puregraph.cli.terminal import printJson
from puregraph.cli.usageerror import UsageError
from puregraph.core.errors import ArgumentError
from puregraph.distributed import Cluster, LinkSpeed
from puregraph.distributed.launch import launcher
from puregraph.distributed.plan.dataparallelplan import DataParallelPlan
from puregraph.distributed.plan.parallelplan import ParallelPlan
from puregraph.distributed.plan.pipelineplan import PipelinePlan
from puregraph.graph import Graph
from puregraph.train import prechecks

Plan = DataParallelPlan | ParallelPlan | PipelinePlan


def addArguments(command: argparse.ArgumentParser) -> None:
    """The options of `puregraph plan`."""
    command.add_argument("--ranks", metavar="N", default="2", help="how many processes train together")
    command.add_argument("--link", metavar="BYTES,S", default="25e9,5e-6", help="bytes a second and latency of a link")
    command.add_argument("--node", metavar="N", default="1", help="how many processes share the link of a machine")
    command.add_argument("--flops", metavar="F", default="1e12", help="operations a second of a process")
    command.add_argument("--bandwidth", metavar="BYTES", default="1e11", help="bytes a second of its memory")
    command.add_argument("--memory", metavar="BYTES", default="inf", help="the most that it may take")
    command.add_argument("--optimizer", metavar="NAME", help="Adam, SGD, ...; of a script its own")
    command.add_argument("--batch", metavar="N", help="samples of a whole batch, in place of a script's")
    command.add_argument("--arguments", metavar="TEXT", default="", help="what a script is given, as in a shell")
    command.add_argument("--measure", action="store_true", help="measure these figures with two processes here")


def runPlan(options: argparse.Namespace) -> int:
    """Print the cost of each split of a model on the described machines, or the measured speeds of this machine."""
    if options.measure:
        return measureHere()
    if options.model is None:
        raise UsageError("wanted a script that trains, or a model and the shapes of a batch, or --measure")
    line = ""
    try:
        if options.shapes:
            graph, *shapes = modelAndShapes(options)
            plans = plansFrom(options, graph, shapes)
        elif Path(options.model).is_file():
            line, plans = plansOfScript(options, options.model)
        else:
            raise UsageError(f"there is no script {options.model!r}; for a model give the shapes of a batch as well")
    except ArgumentError as error:
        raise UsageError(str(error)) from None
    if options.json:
        printJson(rowsOf(plans), options.out)
    else:
        print("\n\n".join(filter(None, [line, *[plan.table() for plan in plans]])))
    return 0 if any(plan.best is not None for plan in plans) else 1


class PlannedRun(BaseException):
    """Ends a script at its first training step; has its graph, the shapes of its batch and its optimizer."""

    def __init__(self, graph: Graph, shapes: list[Any], optimizer: Any):
        super().__init__()
        self.graph, self.shapes, self.optimizer = graph, shapes, optimizer


def plansFrom(options: Any, graph: Graph, shapes: list[Any]) -> list[Plan]:
    """The plans of a graph for the machines and the optimizer that the options describe.

    Raises    ArgumentError for impossible options, or batches that cannot be divided among the machines
    """
    kind = getattr(optimizers, options.optimizer or "Adam", None)
    if not (isinstance(kind, type) and issubclass(kind, optimizers.Optimizer)):
        raise ArgumentError(f"--optimizer: there is no optimizer {options.optimizer!r}; write Adam, SGD, ...")
    cluster = clusterFrom(options)
    return [make(graph, shapes, cluster, kind) for make in (DataParallelPlan, PipelinePlan, ParallelPlan)]


def clusterFrom(options: Any) -> Cluster:
    """The machines that the options describe."""
    link = LinkSpeed(*numbersOf("link", options.link, 2))
    numbers = {
        name: numbersOf(name, getattr(options, name))[0] for name in Cluster._fields if name != "link"
    }  # 1e5 counts as an integer; the cluster refuses fractions
    whole = {name: int(value) if value.is_integer() else value for name, value in numbers.items()}
    return Cluster(link=link, **whole).checked()  # type: ignore[arg-type]


def plansOfScript(options: Any, script: str) -> tuple[str, list[Plan]]:
    """Plan the training of a script, by running it up to its first step; also returns a line about its batch.

    The batch has `--batch` samples, or as many as the script's. If that is fewer than the processes, each process gets
    a batch of the script's size.

    Raises    ArgumentError for a script that does not train, and for arguments that `plansFrom` refuses
    """
    cluster = clusterFrom(options)
    batch = batchFrom(options)
    planned = plannedRun(script, shlex.split(options.arguments))
    size: int = planned.shapes[0][0]
    batch = batch or size
    line = f"{script} trains with batches of {size:,}"
    if not options.batch and size < cluster.ranks:
        batch = size * cluster.ranks
        line += f", fewer than {cluster.ranks:,} processes: a batch of {size:,} for each; --batch N plans another one"
    shapes = [(batch, *shape[1:]) for shape in planned.shapes]
    kind = planned.optimizer if options.optimizer is None else getattr(optimizers, options.optimizer, None)
    if kind is None:
        raise ArgumentError(f"--optimizer: there is no optimizer {options.optimizer!r}; write Adam, SGD, ...")
    makers: list[Callable[..., Plan]] = [DataParallelPlan] if batch >= cluster.ranks else []
    return line, [make(planned.graph, shapes, cluster, kind) for make in (*makers, PipelinePlan, ParallelPlan)]


def batchFrom(options: Any) -> int:
    """Return the samples of `--batch`; 0 if it is not set.

    Raises    ArgumentError if it is not a number of samples
    """
    if options.batch is None:
        return 0
    (samples,) = numbersOf("batch", options.batch)
    if not (samples.is_integer() and samples >= 1):
        raise ArgumentError(f"--batch: wanted a whole number of samples of at least 1, got {options.batch}")
    return int(samples)


def plannedRun(script: str, arguments: list[str]) -> PlannedRun:
    """Run a script with these arguments up to its first training step.

    Raises    ArgumentError if it ends without one
    """

    def look(trainer: Any, source: Any) -> None:
        batch = source.first(min(trainer.batchsize, source.samples)) if source.samples else next(source.batches())
        optimizer = getattr(trainer.optimizer, "members", [trainer.optimizer])[0]
        raise PlannedRun(trainer.net, [(batch.size, *x.shape[1:]) for x in batch.data], optimizer)

    before = sys.argv, list(sys.path)
    sys.argv, sys.path = [script, *arguments], [str(Path(script).resolve().parent), *sys.path]
    prechecks.LOOKERS.append(look)
    try:
        with redirect_stdout(sys.stderr):
            runpy.run_path(script, run_name="__main__")
    except PlannedRun as found:
        return found
    finally:
        prechecks.LOOKERS.remove(look)
        sys.argv, sys.path = before
    raise ArgumentError(f"{script} ends without training: wanted a script in which a Trainer trains")


def rowsOf(plans: list[Plan]) -> dict[str, Any]:
    """Return splits, pipelines and mixes as JSON data."""
    ways: dict[str, list[Any]] = {}
    for plan in plans:
        if isinstance(plan, PipelinePlan):
            ways["pipelines"] = [split._asdict() for split in plan.splits]
        else:
            name, rows = ("splits", plan.splits) if isinstance(plan, DataParallelPlan) else ("mixes", plan.mixes)
            ways[name] = [{**way._asdict(), "calls": [call._asdict() for call in way.calls]} for way in rows]
    return ways


def measureHere() -> int:
    """Run two processes that print the options describing this machine; returns their exit code."""
    from puregraph.distributed.plan import measure  # nothing else here needs it

    launched = argparse.Namespace(n=2, hosts=None, patience=None, ulfm=False, script=measure.__file__, arguments=[])
    return launcher.launch(launched)


def numbersOf(name: str, text: str, count: int = 1) -> list[float]:
    """Parse the numbers of an option, as in 25e9,5e-6.

    Raises    ArgumentError if there are more or fewer
    """
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != count:
        wanted = "a number" if count == 1 else "two numbers with a comma between them, as in 25e9,5e-6"
        raise ArgumentError(f"--{name}: wanted {wanted}, got {text!r}")
    return numbers
