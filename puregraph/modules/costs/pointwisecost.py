"""PointwiseCost: a cost whose value and gradient come from one formula of a prediction and its target."""

from functools import cache
from typing import Any

import numpy as np

from puregraph.core.base.widen import widen
from puregraph.core.errors import FormulaError, need
from puregraph.core.shape import product
from puregraph.graph.pointwise import asGradient
from puregraph.modules.costs.cost import REDUCTION, Cost, alongSamples
from puregraph.ops.formula import Formula

NAMES = ("x", "target")


class PointwiseCost(Cost):
    """cost = mean of formula(x, target); 0 where there is nothing to take the mean of. With a `sampleWeight` w the
    terms of sample i are multiplied by w_i: cost = 1 / size(x) sum_i w_i sum_j formula(x_ij, target_ij). With
    `reduction` "sum" nothing is divided, with "none" the cost has a term for each element.

        class MSE(PointwiseCost):
            formula: Any = "(x - target) ** 2"

    Other names in the formula are the constants given to `super().__init__`; `PointwiseCost(formula="...")` needs
    no class at all. Targets may be integers or bools; float targets get a gradient too. float16 is computed
    and summed in float32.

    Shapes    x and target of one shape (n, ...), perhaps sampleWeight (n,) -> a scalar, or x with "none"; nothing
              broadcasts
    Source    the gradient is the formula's derivative, over the number of elements
    Raises    FormulaError for a formula that cannot be read; ShapeError for a target of another shape
    """

    reads = (*NAMES, "sampleWeight")
    formula: Any = "(x - target) ** 2"

    def __init__(self, name=None, formula=None, reduction: REDUCTION = "mean", **constants):
        super().__init__(name, reduction)
        if type(self) is PointwiseCost and formula is None and not (name or "cost").isidentifier():
            raise FormulaError(
                f"PointwiseCost: wanted a formula, as in PointwiseCost(formula={name!r}), got it as the name"
            )
        self.formula = Formula(type(self).formula if formula is None else formula).put(**constants)
        if "x" not in self.formula.names:
            raise FormulaError(f"{type(self).__name__}: wanted a formula of x and target, got {self.formula}")
        self.formula.numpy(NAMES)  # raises here for other names than x and target

    def termShape(self, x, target):
        need(x == target, x, target, f"the target has the shape of x, nothing broadcasts: {remedy(x, target)}")
        return x

    def updateGrad(self, grad, x, target, *others, needs):
        weight = others[0] if len(others) > 1 else None  # without weights, it is None or missing
        share = widen(grad) / max(x.size, 1) if self.reduction == "mean" else widen(grad)
        slope = share if weight is None else share * alongSamples(weight, x)
        values = np.broadcast_to(slope, x.shape), widen(x), widen(target)
        gx, gt = slopes(self.formula)
        return (
            asGradient(gx(*values), values[0], x.shape).astype(x.dtype) if needs[0] else None,
            asGradient(gt(*values), values[0], x.shape).astype(target.dtype) if needs[1] else None,
            self.weightGrad(share, *values[1:], weight) if len(needs) > 2 and needs[2] else None,
        )[: len(needs)]

    def terms(self, x, target):
        """The formula for each element, broadcast if it is constant."""
        values = self.formula.numpy(NAMES)(x, target)
        return values if values.shape == x.shape else np.broadcast_to(values, x.shape)

    def weightGrad(self, share, x, target, weight):
        """Return the gradient of each sample's weight: the cost of the sample."""
        terms = self.terms(x, target)
        axes = tuple(range(1, terms.ndim))
        total = share * terms.sum(axis=axes) if self.reduction != "none" else (share * terms).sum(axis=axes)
        return total.astype(weight.dtype)

    def flopsFrom(self, x, *others):
        return (self.formula.flops + 1) * product(x)

    @classmethod
    def examples(cls):
        if cls is PointwiseCost:
            yield cls(formula="log(cosh(scale * (x - target)))", scale=0.5), [(4, 3), (4, 3)]
        else:
            yield cls(), [(4, 3), (4, 3)]
            yield cls(), [(2, 3, 2, 1), (2, 3, 2, 1), (2,)]
            yield cls(reduction="sum"), [(4, 3), (4, 3), (4,)]
            yield cls(reduction="none"), [(4, 3), (4, 3), (4,)]


@cache
def slopes(formula):
    """For x and target, the function (share, x, target) -> share times the formula's derivative."""
    gradient = formula.gradient(NAMES, seed="share")
    return [gradient[name].numpy(("share", *NAMES)) for name in NAMES]


def remedy(x, target):
    """Return a hint for a target of another shape."""
    if x == (*target, 1):
        return "write target[..., None]"
    if len(x) == 2 and target == x[:1]:
        return "labels of classes are for CrossEntropy"
    return "write target[..., 0]" if target == (*x, 1) else "reshape one"
