"""Equal: where one input is equal to another."""

from puregraph.modules.comparison import _Comparison


class Equal(_Comparison):
    """y = (a == b), element by element, as booleans; exact for integers, and without a gradient.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator Equal
    Raises    ShapeError if the shapes do not broadcast
    """

    formula = "a == b"
