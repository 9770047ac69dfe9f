"""MultiOptimizer: different optimizers for different parameters, which step together."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from puregraph.core.arguments import AnyFunction, ModuleLike, choice, takes
from puregraph.core.base.attributes import nearest
from puregraph.core.errors import ArgumentError, PuregraphError
from puregraph.optimizers.optimizer import Optimizer

SHARED = ("update", "setupOn", "shrinkFor")  # called on the MultiOptimizer only, for all parameters


class MultiOptimizer(Optimizer):
    """Update each parameter with the optimizer of the first pattern that its path matches.

    A Trainer and `compile` convert a dict to a MultiOptimizer:

        Trainer(net, CrossEntropy(), {"stem": MomentumSGD(1e-3), "*.b": SGD(1e-2), "*": Adam(1e-3)})

    A pattern is the path of a node, `stem` or `stem.conv1`, or of a parameter, `stem.conv1.W`, with `*`, `?` and
    `[...]` as in names of files. Options that use all gradients together are arguments of MultiOptimizer:

        MultiOptimizer({"stem": SGD(1e-2), "*": Adam(1e-3)}, clipNorm=1.0)

    `optimizers`   by pattern; each keeps its learnRate, schedule, decay and clipValue
    `learnRate`    a factor of all learning rates; `schedule` is a second factor
    `clipNorm`     an upper bound of the norm of the gradients of all parameters
    `onNonFinite`  what to do when a gradient holds nan or inf: "raise", or "skip" the update of all parameters

    Schedules are functions of `step`. `rates` has the learning rates of the next update by pattern; `rate`, as in a
    history, is the first one.

    Raises    ArgumentError for a value that is not an optimizer, or has options that use all gradients; on setup
              PuregraphError naming parameters without a pattern, and patterns without a parameter

    >>> net = Sequential(Linear(3, 4, name="stem"), Relu(), Linear(4, 1, name="head"))
    >>> MultiOptimizer({"stem": SGD(1e-2), "*": Adam(1e-3)}, clipNorm=1.0).setupOn(net).rates
    {'stem': 0.01, '*': 0.001}
    """

    rule = {"param": "param"}  # never applied: parameters have the rules of the members

    @takes(schedule=AnyFunction | None, onNonFinite=choice("raise", "skip") | None)
    def __init__(
        self,
        optimizers: Mapping[str, Optimizer],
        learnRate: float = 1.0,
        schedule: Any = None,
        clipNorm: float | None = None,
        onNonFinite: str | None = None,
    ):
        checkOptimizers(optimizers)
        self.optimizers = dict(optimizers)
        super().__init__(learnRate, schedule, clipNorm=clipNorm, onNonFinite=onNonFinite)
        for member in self.members:
            member.whole = self

    @property
    def clipNorm(self) -> float | None:
        """The upper bound of the norm of all gradients. Setting it sets that of every member."""
        return self.mostNorm

    @clipNorm.setter
    def clipNorm(self, value: float | None) -> None:
        self.mostNorm = value
        for pattern, member in self.optimizers.items():
            if value is not None and member.clipValue is not None:
                raise ArgumentError(f"MultiOptimizer: wanted clipNorm, or clipValue for {pattern!r}, got both")
            member.clipNorm = value

    @property
    def decay(self) -> float:
        """Always 0: each member has its own."""
        return 0.0

    @decay.setter
    def decay(self, value: float) -> None:
        self.refuse("decay", value)

    @property
    def clipValue(self) -> float | None:
        """Always None: each member has its own."""
        return None

    @clipValue.setter
    def clipValue(self, value: float | None) -> None:
        self.refuse("clipValue", value)

    def refuse(self, name: str, value: Any) -> None:
        """Raise    ArgumentError for a setting that only the members have"""
        if value:
            first = next(iter(self.optimizers))
            raise ArgumentError(f"MultiOptimizer: it has no {name}; set optimizer.optimizers[{first!r}].{name}")

    @property
    def members(self) -> tuple[Optimizer, ...]:
        return tuple(self.optimizers.values())

    def settings(self, step: int) -> tuple[Any, ...]:
        return (self.rateAt(step), *(member.settings(step) for member in self.members))

    @property
    def rates(self) -> dict[str, float]:
        """The learning rates of the next update, by pattern."""
        factor = self.rateAt(self.step)
        return {pattern: factor * member.rateAt(self.step) for pattern, member in self.optimizers.items()}

    @Optimizer.rate.getter  # type: ignore[attr-defined]
    def rate(self) -> float:
        """The first of the learning rates."""
        return next(iter(self.rates.values()))

    @takes(net=ModuleLike)
    def setupOn(self, net: Any) -> Any:
        """Update the parameters of this module from now on, each by the optimizer of the first pattern that it matches.

        Raises    PuregraphError naming parameters that match no pattern, and patterns that are first for no parameter
        """
        chosen = {path: self.patternOf(path) for path in net.params}
        self.checkPatterns({path: pattern for path, pattern in chosen.items() if pattern or net.params[path].trainable})
        super().setupOn(net)
        self.slots = [slot for slot in self.slots if chosen[slot.path] is not None]
        for slot in self.slots:
            slot.rule = self.optimizers[chosen[slot.path]]  # type: ignore[index]
        for member in self.members:
            member.noteSpared([slot for slot in self.slots if slot.rule is member])
        return self

    def patternOf(self, path: str) -> str | None:
        """Return the first pattern that a path matches, or None."""
        return next((pattern for pattern in self.optimizers if matches(path, pattern)), None)

    def checkPatterns(self, chosen: Mapping[str, str | None]) -> None:
        """Check that every parameter has an optimizer, and every optimizer a parameter."""
        without = [path for path, pattern in chosen.items() if pattern is None]
        if without:
            named = ", ".join(map(repr, without[:5])) + (f" and {len(without) - 5} more" if len(without) > 5 else "")
            raise PuregraphError(f"MultiOptimizer: no pattern matches {named}; add '*' with an optimizer for the rest")
        for pattern in [p for p in self.optimizers if p not in chosen.values()]:
            before = next((chosen[path] for path in chosen if matches(path, pattern)), None)
            if before is not None:
                raise PuregraphError(
                    f"MultiOptimizer: {before!r} has all that {pattern!r} matches: the first match counts; "
                    f"put {pattern!r} before {before!r}"
                )
            near = nearest(pattern, {*chosen, *(path.rpartition(".")[0] for path in chosen)})
            hint = f"did you mean {near!r}?" if near else f"there are {', '.join(chosen):.200}"
            raise PuregraphError(f"MultiOptimizer: no parameter matches {pattern!r}; {hint}")


def optimizerFrom(optimizer: Any) -> Any:
    """Convert a dict to a MultiOptimizer; return anything else as it is."""
    return MultiOptimizer(optimizer) if isinstance(optimizer, dict) else optimizer


def matches(path: str, pattern: str) -> bool:
    """Return True if a parameter's path matches a pattern, or is inside a module that matches."""
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}.*")


def checkOptimizers(optimizers: Any) -> None:
    """Raise    ArgumentError for members that a MultiOptimizer cannot have"""
    if not isinstance(optimizers, Mapping) or not optimizers:
        raise ArgumentError(
            f'MultiOptimizer: wanted a dict such as {{"stem": SGD(), "*": Adam()}}, got {optimizers!r:.60}'
        )
    for pattern, optimizer in optimizers.items():
        if not isinstance(pattern, str):
            raise ArgumentError(f"MultiOptimizer: wanted paths of nodes or parameters as keys, got {pattern!r:.60}")
        if not isinstance(optimizer, Optimizer) or isinstance(optimizer, MultiOptimizer):
            raise ArgumentError(
                f"MultiOptimizer: wanted an optimizer for {pattern!r}, such as Adam(), got {optimizer!r:.60}"
            )
        overridden = [name for name in SHARED if getattr(type(optimizer), name) is not getattr(Optimizer, name)]
        if overridden:
            raise ArgumentError(
                f"MultiOptimizer: {type(optimizer).__name__}, for {pattern!r}, has its own {overridden[0]}, "
                "which all share here"
            )
        if optimizer.whole is not None:
            raise ArgumentError(
                f"MultiOptimizer: {pattern!r} has an optimizer of another MultiOptimizer; make a new one"
            )
        if optimizer.net is not None:
            raise ArgumentError(
                f"MultiOptimizer: the optimizer for {pattern!r} is set up on a network by itself; make a new one"
            )
        for name in ("clipNorm", "onNonFinite"):
            if getattr(optimizer, name) is not None:
                raise ArgumentError(
                    f"MultiOptimizer: {name} looks at all gradients: give it to MultiOptimizer({{...}}, "
                    f"{name}={getattr(optimizer, name)!r}), not to the optimizer for {pattern!r}"
                )
