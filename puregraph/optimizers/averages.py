"""Averages: EMA, SWA and Lookahead keep an average of the parameters beside any optimizer, inside its update."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from puregraph.core.arguments import Count, Probability, Size, takes
from puregraph.optimizers.initrecorder import InitRecorder

if TYPE_CHECKING:
    from puregraph.core.device import Array

Pairs = tuple[tuple[str, str], ...]


class Average(InitRecorder):
    """An average of the parameters as the option `average` of any optimizer, such as `Adam(1e-3, average=EMA(0.99))`.

    The state "average" begins as the parameters. `rule` updates it after `param` has its new value, and may change
    `param`; `scalars` are formulas of the step, as in an Optimizer. A Trainer validates with the averages;
    `with optimizer.averaged():` gives them to the network for one block, `optimizer.keepAverage()` for good.
    """

    rule: Pairs = ()
    scalars: dict[str, Any] = {}

    def around(self, rule: Any) -> Any:
        """Return an optimizer's rule followed by this one: pairs of names and formulas, or a function of arrays."""
        return self.aroundFunction(rule) if callable(rule) else (*rule, *self.rule)

    def aroundFunction(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls a rule and then updates the average."""
        from puregraph.ops.formula import Formula

        arguments = inspect.signature(rule).parameters
        extra = [name for name in ("average", *self.scalars) if name not in arguments]

        def update(**values: Any) -> dict[str, Any]:
            results = dict(rule(**{name: value for name, value in values.items() if name in arguments}))
            known = {**values, **results}
            for name, text in self.rule:
                formula = Formula(text)
                known[name] = results[name] = formula(**{n: known[n] for n in formula.names})
            return results

        kind = inspect.Parameter.KEYWORD_ONLY
        named = [inspect.Parameter(name, kind, default=a.default) for name, a in arguments.items()]
        update.__signature__ = inspect.Signature([*named, *[inspect.Parameter(name, kind) for name in extra]])  # type: ignore[attr-defined]
        return update

    def start(self, param: Array) -> dict[str, Array]:
        """Return the average before the first update: a copy of the parameter."""
        return {"average": param.copy()}


class EMA(Average):
    """average = d average + (1 - d) w after each update,   d = min(decay, (1 + t) / (10 + t))

    An exponential moving average; t counts the updates of each parameter, so that the average follows quickly at
    first.

    Source    Polyak, Juditsky 1992, SIAM Journal on Control and Optimization 30(4); the growing d as in TensorFlow's
              ExponentialMovingAverage with num_updates
    Raises    ArgumentError for a decay that is not from 0 to below 1

    >>> net = Sequential(Linear(3, 1))
    >>> optimizer = Adam(1e-2, average=EMA(0.9))
    >>> trainer = Trainer(net, MSE(), optimizer, progress="none")
    >>> history = trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=3)
    >>> with optimizer.averaged():
    ...     y = net(np.ones((8, 3), np.float32))
    """

    rule = (("average", "average + averageShare * (param - average)"),)

    @takes(decay=Probability)
    def __init__(self, decay: float = 0.999):
        self.decay = decay
        self.scalars = {"averageShare": f"1 - minimum({float(decay)!r}, (1 + step) / (10 + step))"}


class SWA(Average):
    """average = mean of w after the updates start, start + every, start + 2 every, ...

    Stochastic weight averaging, mostly with a learning rate that stays high at the end. Until `start` the average is w
    itself.

    Source    Izmailov et al. 2018, arXiv:1803.05407, algorithm 1
    Raises    ArgumentError for a start below 0 or an interval below 1

    >>> optimizer = SGD(0.1, average=SWA(start=2, every=2)).setupOn(Sequential(Linear(1, 1, name="fc")))
    >>> sorted(optimizer.average.scalars)
    ['averageShare']
    """

    rule = (("average", "average + averageShare * (param - average)"),)

    @takes(start=Size, every=Count)
    def __init__(self, start: int, every: int = 1):
        self.begin, self.every = start, every
        self.scalars = {"averageShare": self.share}

    def share(self, step: float) -> float:
        """Return the weight of the parameter in the average after this update."""
        count, between = divmod(step - self.begin, self.every)
        return 1.0 if count < 0 else 0.0 if between else 1.0 / (count + 1)


class Lookahead(Average):
    """Every k updates: average = average + alpha (w - average), and w = average

    The fast weights explore, the slow ones follow; the slow ones are the average.

    Source    Zhang et al. 2019, arXiv:1907.08610, algorithm 1
    Raises    ArgumentError for k below 1, or alpha that is not from 0 to below 1

    >>> optimizer = SGD(0.1, average=Lookahead(k=5)).setupOn(Sequential(Linear(1, 1, name="fc")))
    >>> optimizer.average.k
    5
    """

    rule = (
        ("average", "average + averageShare * (param - average)"),
        ("param", "where(averageShare > 0, average, param)"),
    )

    @takes(k=Count, alpha=Probability)
    def __init__(self, k: int = 5, alpha: float = 0.5):
        self.k, self.alpha = k, alpha
        self.scalars = {"averageShare": self.share}

    def share(self, step: float) -> float:
        """Return the weight of the parameter in the average at this update: alpha every k updates, otherwise 0."""
        return 0.0 if step % self.k else self.alpha
