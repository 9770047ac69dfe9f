"""Rules: trace a module's rule once, and write its calls as ONNX operators; the rooms' writers are imported here."""

from puregraph.ops.attention import onnx as attention
from puregraph.ops.convolution import onnx as convolution
from puregraph.ops.elementwise import onnx as elementwise
from puregraph.ops.gather import onnx as gather
from puregraph.ops.movement import onnx as movement
from puregraph.ops.order import onnx as order
from puregraph.ops.pooling import onnx as pooling
from puregraph.ops.product import onnx as product
from puregraph.ops.recurrent import onnx as recurrent
from puregraph.ops.reduction import onnx as reduction

__all__ = [
    "attention",
    "convolution",
    "elementwise",
    "gather",
    "movement",
    "order",
    "pooling",
    "product",
    "recurrent",
    "reduction",
]
