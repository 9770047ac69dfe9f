"""And: where both inputs are true."""

from puregraph.modules.logic import _Logic


class And(_Logic):
    """y = (a and b), element by element, of booleans.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator And
    Raises    ShapeError if the shapes do not broadcast; DtypeError for anything but booleans
    """

    formula = "a and b"
