"""KLDivergence: how far a distribution is from the one that was wanted."""

from typing import Annotated

from puregraph.core.arguments import Flag, choice
from puregraph.core.errors import need
from puregraph.modules.costs.cost import Cost
from puregraph.ops.formula import Formula
from puregraph.ops.reduction.reference import logSoftmax

PLAIN = Formula("xlogy(t, t) - t * x").numpy(("x", "t"))
OFLOGS = Formula("exp(t) * (t - x)").numpy(("x", "t"))


class KLDivergence(Cost):
    """cost = mean of t (ln t - x), with x the logarithms of predicted probabilities, and t those that are wanted

    With `scores` x are scores, whose softmax over axis 1 is predicted. With `logs` the targets are logarithms too.
    A target of 0 costs nothing. The mean is over all elements; the divergence itself is their sum over the classes, of
    which `reduction` "batchmean" takes the mean over the samples.

    Shapes    x and target of one shape, perhaps sampleWeight (n,) -> a scalar, or as x with "none"
    Source    Kullback, Leibler 1951, On Information and Sufficiency, Annals of Mathematical Statistics 22
    Raises    ShapeError for a target of another shape; ArgumentError for another reduction
    """

    def __init__(
        self,
        scores: Flag = False,
        logs: Flag = False,
        name=None,
        reduction: Annotated[str, choice("mean", "sum", "none", "batchmean")] = "mean",
    ):
        super().__init__(name, "sum" if reduction == "batchmean" else reduction)
        self.scores, self.logs, self.isOfSamples = scores, logs, reduction == "batchmean"

    @property
    def takes(self):
        """The kind of scores that x is, for warnings about the network's last activation."""
        return "scores" if self.scores else ""

    def termShape(self, x, target):
        need(len(x) > 0, "(n, ...), samples along the first axis", x)
        need(not self.scores or len(x) > 1 and x[1] != 0, "scores (n, classes, ...), at least one class", x)
        return super().termShape(x, target)

    def terms(self, x, target):
        x = logSoftmax(x, 1) if self.scores else x
        return (OFLOGS if self.logs else PLAIN)(x, target)

    def reduced(self, terms, sampleWeight=None):
        total = super().reduced(terms, sampleWeight)
        return total / max(len(terms), 1) if self.isOfSamples else total

    def sample(self, rng, x, target, *more):
        return [rng.standard_normal(x), rng.random(target) + 0.01, *map(rng.random, more)]

    @classmethod
    def examples(cls):
        for reduction in ("mean", "sum", "none", "batchmean"):
            yield cls(reduction=reduction), [(4, 3), (4, 3)]
        yield cls(scores=True), [(4, 3, 2), (4, 3, 2), (4,)]
        yield cls(logs=True), [(4, 3), (4, 3)]
