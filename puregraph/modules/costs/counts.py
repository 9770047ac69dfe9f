"""Costs of counts and amounts: negative log-likelihoods of a mean whose logarithm is predicted."""

from typing import Annotated

from puregraph.core.arguments import Argument, Flag, Positive, isNumber
from puregraph.modules.costs.cost import REDUCTION
from puregraph.modules.costs.pointwisecost import PointwiseCost

Power = Annotated[float, Argument("a number between 1 and 2", lambda value: isNumber(value) and 1 < value < 2)]
STIRLING = "where(target > 1, target * log(maximum(target, 1)) - target + 0.5 * log(2 * pi * maximum(target, 1)), 0)"


class Poisson(PointwiseCost):
    """cost = mean of exp(x) - t x, for counts t of a Poisson distribution whose mean has the logarithm x

    With `logs` False x is the mean itself: x - t ln(x + epsilon), as in Keras. `full` adds the part that x does not
    change, ln t! by Stirling's formula, for t above 1.

    Shapes    x and target of one shape -> a scalar
    Source    Nelder, Wedderburn 1972, Generalized Linear Models, Journal of the Royal Statistical Society A 135
    Raises    ShapeError for a target of another shape
    """

    formula = "exp(x) - target * x"

    def __init__(
        self, logs: Flag = True, full: Flag = False, epsilon: Positive = 1e-8, name=None, reduction: REDUCTION = "mean"
    ):
        text = self.formula if logs else "x - target * log(x + epsilon)"
        constants = {} if logs else {"epsilon": epsilon}
        super().__init__(name, f"{text} + {STIRLING}" if full else text, reduction, **constants)
        self.logs = logs

    def sample(self, rng, x, target, *more):
        return [rng.random(x) + 0.1, rng.integers(0, 6, target), *map(rng.random, more)]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4, 3)]
        yield cls(logs=False, full=True), [(2, 3, 2), (2, 3, 2), (2,)]
        yield cls(full=True, reduction="none"), [(5,), (5,)]


class Tweedie(PointwiseCost):
    """cost = mean of exp((2 - p) x) / (2 - p) - t exp((1 - p) x) / (1 - p), for amounts t of at least 0, many of them 0

    The logarithm of the mean is x, and the variance is proportional to mean^p: `power` p near 1 is nearly Poisson, near
    2 a gamma distribution. Between them an amount is a sum of a random number of random parts, such as the claims of a
    year or the rain of a day.

    Shapes    x and target of one shape -> a scalar
    Source    Jorgensen 1987, Exponential Dispersion Models, Journal of the Royal Statistical Society B 49
    Raises    ArgumentError for a power that is not between 1 and 2; ShapeError for a target of another shape
    """

    formula = "exp((2 - power) * x) / (2 - power) - target * exp((1 - power) * x) / (1 - power)"

    def __init__(self, power: Power = 1.5, name=None, reduction: REDUCTION = "mean"):
        super().__init__(name, reduction=reduction, power=power)

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4, 3)]
        yield cls(power=1.1, reduction="sum"), [(5,), (5,), (5,)]
