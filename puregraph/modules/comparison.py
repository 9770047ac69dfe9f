"""Comparisons and logic of arrays, and a choice between two by a condition."""

from puregraph.core.base.dtype import BOOL, inferredType, promoted
from puregraph.graph.pointwise import Pointwise


class _Comparison(Pointwise):
    def sample(self, rng, *shapes):
        return [rng.integers(-1, 2, shape).astype("float64") for shape in shapes]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), (2, 3)]
        yield cls(), [(2, 1), (4, 1, 3)]
        yield cls(), [(), (2,)]


class Equal(_Comparison):
    """y = (a == b), element by element, as booleans; exact for integers, and without a gradient.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator Equal
    Raises    ShapeError if the shapes do not broadcast
    """

    formula = "a == b"


class NotEqual(_Comparison):
    """y = (a != b), element by element, as booleans; exact for integers, and without a gradient.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator Not of Equal
    Raises    ShapeError if the shapes do not broadcast
    """

    formula = "a != b"


class Less(_Comparison):
    """y = (a < b), element by element, as booleans; exact for integers, and without a gradient.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator Less
    Raises    ShapeError if the shapes do not broadcast
    """

    formula = "a < b"


class LessEqual(_Comparison):
    """y = (a <= b), element by element, as booleans; exact for integers, and without a gradient.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator LessOrEqual
    Raises    ShapeError if the shapes do not broadcast
    """

    formula = "a <= b"


class Greater(_Comparison):
    """y = (a > b), element by element, as booleans; exact for integers, and without a gradient.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator Greater
    Raises    ShapeError if the shapes do not broadcast
    """

    formula = "a > b"


class GreaterEqual(_Comparison):
    """y = (a >= b), element by element, as booleans; exact for integers, and without a gradient.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator GreaterOrEqual
    Raises    ShapeError if the shapes do not broadcast
    """

    formula = "a >= b"


class _Logic(Pointwise):
    @property
    def masks(self):
        return self.arguments

    def dataTypeFrom(self, *dtypes):
        inferredType(self, dtypes)
        return BOOL

    def sample(self, rng, *shapes):
        return [rng.random(shape) < 0.5 for shape in shapes]

    @classmethod
    def examples(cls):
        count = len(cls().arguments)
        yield cls(), [(2, 3)] * count
        yield cls(), [(4, 1, 3), (2, 1)][:count]


class And(_Logic):
    """y = (a and b), element by element, of booleans.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator And
    Raises    ShapeError if the shapes do not broadcast; DtypeError for anything but booleans
    """

    formula = "a and b"


class Or(_Logic):
    """y = (a or b), element by element, of booleans.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator Or
    Raises    ShapeError if the shapes do not broadcast; DtypeError for anything but booleans
    """

    formula = "a or b"


class Xor(_Logic):
    """y = (a != b), element by element, of booleans.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator Xor
    Raises    ShapeError if the shapes do not broadcast; DtypeError for anything but booleans
    """

    formula = "a != b"


class Not(_Logic):
    """y = (not a), element by element, of booleans.

    Shapes    a (any) -> y the same
    Source    ONNX operator Not
    Raises    DtypeError for anything but booleans
    """

    formula = "not a"


class Where(Pointwise):
    """y = a where the condition is true, elsewhere b, in the dtype of both, or the one that both fit.

    Integers mixed with floats become floats, as in every formula.

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
