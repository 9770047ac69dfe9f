"""The lowering rules: imported so that all are declared before a step is lowered; calls without one run in numpy."""

from puregraph.compile.lower import copies, loopworks
from puregraph.ops.alignment import lowering as alignment
from puregraph.ops.attention import lowering as attention
from puregraph.ops.convolution import lowering as convolution
from puregraph.ops.gather import lowering as gather
from puregraph.ops.movement import lowering as movement
from puregraph.ops.order import lowering as order
from puregraph.ops.pooling import lowering as pooling
from puregraph.ops.product import lowering as product
from puregraph.ops.quantized import lowering as quantized
from puregraph.ops.recurrent import lowering as recurrent
from puregraph.ops.reduction import lowering as reduction

__all__ = [
    "alignment",
    "attention",
    "convolution",
    "copies",
    "gather",
    "loopworks",
    "movement",
    "order",
    "pooling",
    "product",
    "quantized",
    "recurrent",
    "reduction",
]
