"""Plan command: what `puregraph plan` is given besides a model, and the plan that is meant by it."""

from __future__ import annotations

import argparse
from typing import Any

from puregraph import optimizers
from puregraph.errors import ArgumentError
from puregraph.graph import Graph
from puregraph.many import Cluster, LinkSpeed, launcher
from puregraph.train.together.splitplan import SplitPlan


def addArguments(command: argparse.ArgumentParser) -> None:
    """The options of `puregraph plan`."""
    command.add_argument("--ranks", metavar="N", default="2", help="how many processes train together")
    command.add_argument("--link", metavar="BYTES,S", default="25e9,5e-6", help="bytes a second and latency of a link")
    command.add_argument("--node", metavar="N", default="1", help="how many processes share the link of a machine")
    command.add_argument("--flops", metavar="F", default="1e12", help="operations a second of a process")
    command.add_argument("--bandwidth", metavar="BYTES", default="1e11", help="bytes a second of its memory")
    command.add_argument("--memory", metavar="BYTES", default="inf", help="the most that it may take")
    command.add_argument("--optimizer", metavar="NAME", default="Adam", help="Adam, SGD, ...")
    command.add_argument("--measure", action="store_true", help="measure these figures with two processes here")


def planFrom(options: Any, graph: Graph, shapes: list[Any]) -> SplitPlan:
    """The plan of a graph for the machines and the optimizer that the options describe.

    Raises    ArgumentError for options that no machine has, and for batches that cannot be divided so
    """
    kind = getattr(optimizers, options.optimizer, None)
    if not (isinstance(kind, type) and issubclass(kind, optimizers.Optimizer)):
        raise ArgumentError(f"--optimizer: there is no optimizer {options.optimizer!r}; write Adam, SGD, ...")
    link = LinkSpeed(*numbersOf("link", options.link, 2))
    numbers = {
        name: numbersOf(name, getattr(options, name))[0] for name in Cluster._fields if name != "link"
    }  # 1e5 is a whole number; what is none is refused by the cluster
    whole = {name: int(value) if value.is_integer() else value for name, value in numbers.items()}
    return SplitPlan(graph, shapes, Cluster(link=link, **whole), kind)  # type: ignore[arg-type]


def measureHere() -> int:
    """Have two processes print the options that describe this machine; their exit code."""
    from puregraph.many import measure  # nothing else here needs it

    launched = argparse.Namespace(n=2, hosts=None, patience=None, script=measure.__file__, arguments=[])
    return launcher.launch(launched)


def numbersOf(name: str, text: str, count: int = 1) -> list[float]:
    """The numbers of an option, as in 25e9,5e-6.

    Raises    ArgumentError if there are more or fewer
    """
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(found) != count:
        wanted = "a number" if count == 1 else "two numbers with a comma between them, as in 25e9,5e-6"
        raise ArgumentError(f"--{name}: wanted {wanted}, got {text!r}")
    return found
