"""OnnxFamilies: random uses of all operators, each family of which registers its own."""

import onnxblocks  # noqa: F401
import onnxelements  # noqa: F401
import onnxlayers  # noqa: F401
import onnxscaled  # noqa: F401
import onnxshapes  # noqa: F401
import onnxsignals  # noqa: F401
from onnxsettings import READERS, setting

__all__ = ["READERS", "setting"]
