"""Focal costs: cross-entropies with little weight for what is already predicted well."""

from puregraph.core.arguments import Fraction, NotNegative
from puregraph.modules.costs.bce import BCE
from puregraph.modules.costs.cost import REDUCTION
from puregraph.modules.costs.nll import NLL
from puregraph.ops.formula import Formula
from puregraph.ops.reduction.reference import logSoftmax

FACTOR = "q = sigmoid(x) * (1 - target) + sigmoid(-x) * target"
ENTROPY = "q ** gamma * (target * softplus(-x) + (1 - target) * softplus(x))"


class Focal(BCE):
    """cost = mean of a (1 - p_t)^gamma (-ln p_t), with p_t = sigmoid(x) where t is 1, 1 - sigmoid(x) where t is 0

    x are logits, t the target. `alpha` is a where t is 1, and 1 - alpha where it is 0; None: 1 for both. `gamma` 0 is
    `BCE`.

    Shapes    x and target of one shape -> a scalar
    Source    Lin, Goyal, Girshick, He, Dollar 2017, arXiv:1708.02002, eq. 5
    Raises    ArgumentError for a negative gamma, or an alpha not from 0 to 1; ShapeError for a target of another shape;
              DataError for a target that is not from 0 to 1
    """

    def __init__(
        self,
        gamma: NotNegative = 2.0,
        alpha: Fraction | None = None,
        name=None,
        reduction: REDUCTION = "mean",
    ):
        share = "" if alpha is None else "(alpha * target + (1 - alpha) * (1 - target)) * "
        constants = {"gamma": gamma} if alpha is None else {"gamma": gamma, "alpha": alpha}
        super(BCE, self).__init__(name, f"{FACTOR}; {share}{ENTROPY}", reduction, **constants)

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4, 3)]
        yield cls(gamma=0, alpha=0.25), [(6, 1), (6, 1), (6,)]
        yield cls(gamma=1.5, alpha=0.7, reduction="none"), [(4, 3), (4, 3)]


class FocalCrossEntropy(NLL):
    """cost = sum_i w[t_i] (1 - p_i)^gamma (-ln p_i) / sum_i w[t_i], with p_i the probability of the label t_i

    Probabilities are the softmax of the scores x over the classes, on axis 1. `weights` and `ignoreIndex` are those of
    `CrossEntropy`, which is the same for `gamma` 0.

    Shapes    x (n, c, *spatial), labels (n, *spatial) of integers, perhaps sampleWeight (n,) -> a scalar, or as labels
              with "none"
    Source    Lin, Goyal, Girshick, He, Dollar 2017, arXiv:1708.02002, eq. 4, for several classes
    Raises    as `NLL`; ArgumentError for a negative gamma
    """

    takes = "scores"

    def __init__(
        self, gamma: NotNegative = 2.0, weights=None, ignoreIndex=None, name=None, reduction: REDUCTION = "mean"
    ):
        super().__init__(weights, ignoreIndex, name, reduction)
        self.gamma = gamma

    def losses(self, x, index):
        logs = super().losses(logSoftmax(x, 1), index)
        # without the bound, the slope at x = 0 (ignored labels) is 0 times infinity for a gamma below 1
        return Formula("(-expm1(-maximum(x, 1e-30))) ** gamma * x").put(gamma=self.gamma).numpy(("x",))(logs)

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4,)]
        yield cls(gamma=0.5, weights=(0.5, 2.0, 1.0), ignoreIndex=-1), [(5, 3, 2), (5, 2), (5,)]
        yield cls(gamma=0, reduction="none"), [(4, 3), (4,)]
