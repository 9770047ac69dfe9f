"""Where: one input where a condition holds, another elsewhere."""

from puregraph.base.dtype import inferredType, promoted
from puregraph.pointwise import Pointwise


class Where(Pointwise):
    """y = a where the condition is true, elsewhere b; a and b keep their dtype, or get the one that both fit.

    Integers beside floats become floats of these, as in every formula.

    Shapes    condition, a, b that broadcast -> their broadcast
    Source    the NumPy reference, numpy.where; ONNX operator Where
    Raises    ShapeError if the shapes do not broadcast; DtypeError for a condition that is not of booleans
    """

    formula = "where(condition, a, b)"
    masks = ("condition",)

    def dataTypeFrom(self, condition, a, b):
        inferredType(self, (condition, a, b))
        return None if a is None or b is None else promoted([a, b])

    def sample(self, rng, condition, a, b):
        return [rng.random(condition) < 0.5, rng.standard_normal(a), rng.standard_normal(b)]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), (2, 3), (2, 3)]
        yield cls(), [(2, 1), (4, 1, 3), ()]
