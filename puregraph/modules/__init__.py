"""The modules that networks are built from, by family."""

from puregraph.modules import operators as operators  # gives nodes their operators
from puregraph.modules.activation import Elu, Gelu, HardSwish, LeakyRelu, Relu, Sigmoid, SoftPlus, Swish, Tanh
from puregraph.modules.arithmetic import Add, Clip, Div, Mod, Mul, MulAddConst, Power, Sub
from puregraph.modules.attention import Attention
from puregraph.modules.batchnorm import BatchNorm
from puregraph.modules.bits import BitCast, BitShift, Bitwise
from puregraph.modules.comparison import (
    And,
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Not,
    NotEqual,
    Or,
    Where,
    Xor,
)
from puregraph.modules.constant import Constant, EyeLike, Full, Range, Weight
from puregraph.modules.control.ifelse import If
from puregraph.modules.control.loop import Loop
from puregraph.modules.control.scan import Scan
from puregraph.modules.convolution import Conv1D, Conv2D, Conv3D, ConvNd, Convolve
from puregraph.modules.cumulative import CumProd, CumSum
from puregraph.modules.deconvolution import Deconv2D, DeconvNd, Deconvolve
from puregraph.modules.detection import NonMaxSuppression, RoiAlign, RoiPool
from puregraph.modules.dropout import Dropout, Multinomial
from puregraph.modules.embedding import Embedder, Position, Prepend
from puregraph.modules.gathering import Gather, GatherElements, GatherND, ReverseSequence
from puregraph.modules.gridsample import AffineGrid, GridSample
from puregraph.modules.identity import Cast, Identity, StopGradient
from puregraph.modules.joining import Concat, Split
from puregraph.modules.linear import Linear
from puregraph.modules.localnorm import LocalResponseNorm, LpNormalize
from puregraph.modules.normalization import GroupNorm, LayerNorm, RmsNorm
from puregraph.modules.normreduction import L1Norm, L2Norm, LogSum, LogSumExp, LpNorm, Prod, SumSquares
from puregraph.modules.pad import Pad
from puregraph.modules.parametrizations import (
    FakeQuantise,
    LoRA,
    Masked,
    Orthogonal,
    SpectralNorm,
    Standardised,
    WeightNorm,
)
from puregraph.modules.penalty import Penalty
from puregraph.modules.pooling import (
    AvgPool1D,
    AvgPool2D,
    AvgPool3D,
    AvgPoolNd,
    GlobalAvgPool,
    LpPoolNd,
    MaxPool1D,
    MaxPool2D,
    MaxPool3D,
    MaxPoolNd,
    MaxUnpool,
)
from puregraph.modules.product import Determinant, Einsum, MatMul, PairDot
from puregraph.modules.quantization import Dequantize, Quantize
from puregraph.modules.quantizedlayers import QuantizedConvolve, QuantizedMatMul
from puregraph.modules.randomlike import RandomLike
from puregraph.modules.recurrent import GRU, LSTM, RNN
from puregraph.modules.recurrentcells import RecurrentCells
from puregraph.modules.reducealong import ReduceAlong
from puregraph.modules.reduction import ArgMax, ArgMin, Max, Mean, Min, Sum
from puregraph.modules.reshaping import Expand, Flatten, Reshape, Squeeze, Tile, Transpose, Unsqueeze
from puregraph.modules.resize import Resize, Upsample2D
from puregraph.modules.scalemaps import ScaleMaps
from puregraph.modules.scattering import ScatterElements, ScatterND
from puregraph.modules.selection import Compress, NonZero, OneHot, TopKValues, Trilu, Unique
from puregraph.modules.shapeof import Shape, Size
from puregraph.modules.signal import DFT, Col2Im
from puregraph.modules.slice import DynamicSlice, Slice
from puregraph.modules.softmax import HardMax, LogSoftMax, SoftMax
from puregraph.modules.tensorscatter import TensorScatter

__all__ = [
    "StopGradient",
    "FakeQuantise",
    "LoRA",
    "Masked",
    "Orthogonal",
    "SpectralNorm",
    "Standardised",
    "WeightNorm",
    "Add",
    "AffineGrid",
    "And",
    "ArgMax",
    "ArgMin",
    "Attention",
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "AvgPoolNd",
    "BatchNorm",
    "BitCast",
    "BitShift",
    "Bitwise",
    "Cast",
    "Clip",
    "Col2Im",
    "Compress",
    "Concat",
    "Constant",
    "Conv1D",
    "Conv2D",
    "Conv3D",
    "ConvNd",
    "Convolve",
    "CumProd",
    "CumSum",
    "DFT",
    "Deconv2D",
    "DeconvNd",
    "Deconvolve",
    "Dequantize",
    "Determinant",
    "Div",
    "Dropout",
    "DynamicSlice",
    "Einsum",
    "Elu",
    "Embedder",
    "Equal",
    "Expand",
    "EyeLike",
    "Flatten",
    "Full",
    "GRU",
    "Gather",
    "GatherElements",
    "GatherND",
    "Gelu",
    "GlobalAvgPool",
    "Greater",
    "GreaterEqual",
    "GridSample",
    "GroupNorm",
    "HardMax",
    "HardSwish",
    "Identity",
    "If",
    "L1Norm",
    "L2Norm",
    "LSTM",
    "LayerNorm",
    "LeakyRelu",
    "Less",
    "LessEqual",
    "Linear",
    "LocalResponseNorm",
    "LogSoftMax",
    "LogSum",
    "LogSumExp",
    "Loop",
    "LpNorm",
    "LpNormalize",
    "LpPoolNd",
    "MatMul",
    "Max",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "MaxPoolNd",
    "MaxUnpool",
    "Mean",
    "Min",
    "Mod",
    "Mul",
    "MulAddConst",
    "Multinomial",
    "NonMaxSuppression",
    "NonZero",
    "Not",
    "NotEqual",
    "OneHot",
    "Or",
    "Pad",
    "Penalty",
    "PairDot",
    "Position",
    "Power",
    "Prepend",
    "Prod",
    "Quantize",
    "QuantizedConvolve",
    "QuantizedMatMul",
    "RNN",
    "RandomLike",
    "Range",
    "RecurrentCells",
    "ReduceAlong",
    "Relu",
    "Reshape",
    "Resize",
    "ReverseSequence",
    "RmsNorm",
    "RoiAlign",
    "RoiPool",
    "ScaleMaps",
    "Scan",
    "ScatterElements",
    "ScatterND",
    "Shape",
    "Sigmoid",
    "Size",
    "Slice",
    "SoftMax",
    "SoftPlus",
    "Split",
    "Squeeze",
    "Sub",
    "Sum",
    "SumSquares",
    "Swish",
    "Tanh",
    "TensorScatter",
    "Tile",
    "TopKValues",
    "Transpose",
    "Trilu",
    "Unique",
    "Unsqueeze",
    "Upsample2D",
    "Weight",
    "Where",
    "Xor",
]
