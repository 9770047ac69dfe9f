"""Or: where any of two inputs is true."""

from puregraph.modules.logic import _Logic


class Or(_Logic):
    """y = (a or b), element by element, of booleans.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator Or
    Raises    ShapeError if the shapes do not broadcast; DtypeError for anything but booleans
    """

    formula = "a or b"
