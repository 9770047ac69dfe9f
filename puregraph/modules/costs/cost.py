"""Cost: a cost whose terms are written in numpy; means, sums, sample weights and the gradient follow from them."""

from typing import Annotated

from puregraph.autodiff.derivatives.ruletape import derivedGrad
from puregraph.core.arguments import choice
from puregraph.core.base.dtype import inferredType, isFloating, needFloats
from puregraph.core.base.widen import widen
from puregraph.core.errors import need, show
from puregraph.graph.module import Module

REDUCTION = Annotated[str, choice("mean", "sum", "none")]


class Cost(Module):
    """cost = mean of w_i l_i over the terms l = terms(x, target)

        class MeanRatio(Cost):
            def terms(self, x, target):
                return np.abs(x / target).mean(axis=1)

            def termShape(self, x, target):
                return super().termShape(x, target)[:1]

    `reduction` "sum" is their sum, "none" all terms. A subclass writes `terms` in functions of numpy, and `termShape`
    if terms have another shape than x. The gradient is derived from the terms, eager and compiled. A cost with
    other inputs than a prediction and a target overrides `updateData` and `dataShapeFrom`. A `sampleWeight`
    w multiplies the terms of its sample, and the mean still divides by the number of terms; the mean of no terms is 0.
    float16 is computed in float32.

    Shapes    x and target as `termShape` takes them, perhaps sampleWeight (n,) -> a scalar, or the terms
    Source    the gradient is the derivative of the terms, Griewank, Walther 2008, Evaluating Derivatives, ch. 3
    Raises    ShapeError for shapes that do not fit; ArgumentError for another reduction

    >>> class Ratio(Cost):
    ...     def terms(self, x, target):
    ...         return np.abs(x / target)
    >>> cost = Ratio(reduction="sum")
    >>> float(cost(np.array([2.0, 3.0]), np.array([1.0, 2.0])))
    3.5
    """

    def __init__(self, name=None, reduction: REDUCTION = "mean"):
        super().__init__(name)
        self.reduction = reduction

    def terms(self, *arguments):
        """The terms of the cost from its inputs, floats of 32 bits or more; their first axis is the samples."""
        raise NotImplementedError(f"{type(self).__name__} has no terms: write terms(self, x, target)")

    def termShape(self, x, *others):
        """The shape of the terms, after checking the shapes of the inputs; by default all inputs have that shape."""
        for other in others:
            need(other == x, x, other, "the target has the shape of x, nothing broadcasts")
        return x

    def dataShapeFrom(self, x, target, sampleWeight=None):
        return self.shapeOfCost(sampleWeight, x, target)

    def updateData(self, x, target, sampleWeight=None):
        return self.cost(sampleWeight, x, target)

    def updateGrad(self, grad, *values, needs):
        return derivedGrad(self.updateData, grad, values, needs)

    def shapeOfCost(self, sampleWeight, *shapes):
        """The shape of the cost for these inputs."""
        shape = self.termShape(*shapes)
        needWeights(sampleWeight, shapes[0])
        return shape if self.reduction == "none" else ()

    def cost(self, sampleWeight, x, *others):
        """The cost of inputs, in the dtype of x."""
        like = widen(x)
        return self.reduced(self.terms(like, *[asFloats(a, like) for a in others]), sampleWeight).astype(x.dtype)

    def reduced(self, terms, sampleWeight=None):
        """Return the terms times the weights of their samples, or their sum or mean, by `reduction`."""
        if sampleWeight is not None:
            terms = terms * alongSamples(sampleWeight, terms)
        if self.reduction == "none":
            return terms
        return terms.sum() if self.reduction == "sum" else terms.sum() / max(terms.size, 1)

    def dataTypeFrom(self, x, *others):
        if self.needsFloats:
            inferredType(self, (x, *others[:1]))
        else:
            needFloats([("x", x)])
        return x

    def flopsFrom(self, *shapes):
        return 4 * sum(map(elements, filter(None, shapes)))

    @classmethod
    def examples(cls):
        if cls is Cost:
            return
        for reduction in ("mean", "sum", "none"):
            yield cls(reduction=reduction), [(4, 3), (4, 3)]
        yield cls(), [(4, 3), (4, 3), (4,)]


def elements(shape):
    """The number of elements of a shape."""
    count = 1
    for size in shape:
        count = count * size
    return count


def asFloats(value, like):
    """Return floats widened for computation, integers and booleans in the dtype of `like`; None as it is."""
    return value if value is None else widen(value) if isFloating(value.dtype) else value.astype(like.dtype)


def needWeights(sampleWeight, x):
    """Check that there is one weight for each sample of x.

    Raises    ShapeError for another shape
    """
    if sampleWeight is not None:
        need(len(x) > 0, "(n, ...), samples along the first axis", x)
        need(sampleWeight == x[:1], f"sampleWeight of shape {show(x[:1])}", sampleWeight, "one weight for each sample")


def alongSamples(weight, like):
    """The sample weights, shaped to broadcast along the first axis of an array, in the dtype of computation."""
    return widen(weight).reshape(-1, *(1,) * (like.ndim - 1))
