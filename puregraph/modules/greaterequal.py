"""GreaterEqual: where one input is larger or equal to another."""

from puregraph.modules.comparison import _Comparison


class GreaterEqual(_Comparison):
    """y = (a >= b), element by element, as booleans; exact for integers, and without a gradient.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator GreaterOrEqual
    Raises    ShapeError if the shapes do not broadcast
    """

    formula = "a >= b"
