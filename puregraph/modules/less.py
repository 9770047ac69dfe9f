"""Less: where one input is smaller than another."""

from puregraph.modules.comparison import _Comparison


class Less(_Comparison):
    """y = (a < b), element by element, as booleans; exact for integers, and without a gradient.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator Less
    Raises    ShapeError if the shapes do not broadcast
    """

    formula = "a < b"
