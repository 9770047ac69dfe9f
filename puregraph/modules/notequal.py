"""NotEqual: where one input is different from another."""

from puregraph.modules.comparison import _Comparison


class NotEqual(_Comparison):
    """y = (a != b), element by element, as booleans; exact for integers, and without a gradient.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator Not of Equal
    Raises    ShapeError if the shapes do not broadcast
    """

    formula = "a != b"
